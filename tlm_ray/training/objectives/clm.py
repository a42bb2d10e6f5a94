"""Causal language modelling: predict each token from those before it (Radford et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tlm_ray.training.objectives.objective import Keys, Rows, Targets
from tlm_ray.training.objectives.tokens import OfTokens
from tlm_ray.training.tokens.masking import Vocabulary


@dataclass(frozen=True)
class Clm(OfTokens):
    """Causal language modelling with a decoder's own head; padding is predicted from no token, and predicts none.

    In stage two its weight beside the labels is 0.5 in Radford et al. (2018), equation 5.
    """

    name: ClassVar[str] = "clm"
    opens_as: ClassVar[str] = "AutoModelForCausalLM"
    is_causal: ClassVar[bool] = True

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        following, chosen = np.roll(rows.tokens, -1, axis=1), np.roll(rows.attention, -1, axis=1) == 1
        chosen[:, -1] = False
        return rows.with_targets(self.name, Targets(following, chosen, int(chosen.sum())))
