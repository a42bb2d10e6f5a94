"""Masked language modelling: predict masked tokens from the others (Devlin et al. 2019)."""

from dataclasses import dataclass, replace
from typing import ClassVar

from tlm_ray.training.objectives.objective import Keys, Rows, Targets
from tlm_ray.training.objectives.tokens import OfTokens
from tlm_ray.training.tokens.masking import Masking, Vocabulary


@dataclass(frozen=True)
class Mlm(OfTokens):
    """Masked language modelling with the architecture's own head."""

    name: ClassVar[str] = "mlm"
    opens_as: ClassVar[str] = "AutoModelForMaskedLM"

    needs: ClassVar[tuple[str, ...]] = ("mask_token",)

    masking: Masking = Masking()  # noqa: RUF009 - frozen

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        tokens, chosen = self.masking(rows.tokens, vocabulary, seed=keys.seed, step=keys.step, rows=keys.rows)
        targets = Targets(rows.tokens, chosen, int(chosen.sum()))
        return replace(rows, tokens=tokens).with_targets(self.name, targets)
