"""Replaced-token detection: a generator fills masked places, and the encoder tells which tokens it replaced.

Source: Clark et al. 2020 (ELECTRA). A recipe lists both objectives, `(Generator(), Rtd())`, with an ELECTRA encoder.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tlm_ray.training.objectives.objective import Keys, Objective, Prediction, Rows, Targets
from tlm_ray.training.tokens.masking import Masking, Vocabulary, uniform

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PretrainedConfig

    from tlm_ray.training.encoders.heads import Head
    from tlm_ray.training.encoders.weights import Weights

DRAWS = 0x5EED  # keys the generator's draws apart from the masks


@dataclass(frozen=True)
class Generator(Objective):
    """Masked language modelling by a narrower encoder that reads the discriminator's token embeddings.

    It replaces what the encoder reads: each chosen token by a draw from the generator's distribution, with one uniform
    number per place, so draws do not depend on workers or layout. The task's labels are learned from the same rows.
    """

    name: ClassVar[str] = "generator"
    in_stage_two: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("mask_token",)

    share: float = 0.25
    """size of the generator relative to the encoder: heads, width and inner size (section 3.2)"""
    masking: Masking = Masking(masked=0.85, random=0.0)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"generator share {self.share}: must be above 0 and at most 1")

    def head(self, weights: "Weights") -> "nn.Module":
        """Return the generator; ValueError for another architecture than ELECTRA."""
        return _generator(_checked(weights.config), self.share)

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return masked rows; values are (rows, length, 2) float64, the original token and a uniform draw."""
        tokens, chosen = self.masking(rows.tokens, vocabulary, seed=keys.seed, step=keys.step, rows=keys.rows)
        draws = uniform(seed=keys.seed ^ DRAWS, step=keys.step, rows=keys.rows, columns=tokens.shape[1], draws=1)[0]
        targets = Targets(np.stack([rows.tokens, draws], axis=-1), chosen, int(chosen.sum()))
        return replace(rows, tokens=tokens).with_targets(self.name, targets)

    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        import torch
        from torch.nn.functional import embedding

        from tlm_ray.training.kernels.projected_losses import ProjectedCrossEntropy, filled

        assert prediction.places is not None, "tokens are predicted, not rows"
        table = features.model.encoder.get_input_embeddings().weight
        ids, others = features.inputs["input_ids"], {k: v for k, v in features.inputs.items() if k != "input_ids"}
        hidden = head.encoder(inputs_embeds=embedding(ids, table), **others).last_hidden_state.flatten(0, 1)
        states = head.transform(hidden.index_select(0, filled(prediction.places))[None])[0]
        original, draws = prediction.values[:, 0].long(), prediction.values[:, 1]
        with torch.no_grad():
            drawn = _drawn(states[: len(original)], table, head.bias, draws)
        features.read(ids.flatten().scatter(0, prediction.places, drawn).view_as(ids))
        return ProjectedCrossEntropy.apply(states, table, head.bias, original)


@dataclass(frozen=True)
class Rtd(Objective):
    """Detection of replaced tokens among all; a drawn token that equals the original counts as real."""

    name: ClassVar[str] = "rtd"
    in_stage_two: ClassVar[bool] = False
    opens_as: ClassVar[str] = "AutoModelForPreTraining"

    times: float = 50.0
    """weight beside the generator's loss (section 3.3)"""

    def head(self, weights: "Weights") -> "Head":
        """Return ELECTRA's discriminator head; ValueError for another architecture."""
        from transformers import AutoModelForPreTraining

        _checked(weights.config)
        return weights.head(AutoModelForPreTraining)

    def check(self, *, tokens: int, before: Collection[str]) -> None:
        """Raise ValueError if no generator comes before it."""
        if Generator.name not in before:
            raise ValueError("objective rtd: needs a generator before it; give objectives=(Generator(), Rtd())")

    def prepare(self, rows: Rows, vocabulary: Vocabulary, keys: Keys) -> Rows:
        """Return the rows with all tokens as targets; ValueError if no generator has prepared them."""
        self.check(tokens=rows.tokens.shape[1], before=rows.targets)
        original = rows.targets[Generator.name].values[..., 0].astype(np.int64)
        return rows.with_targets(self.name, Targets(original, rows.attention == 1, int(rows.attention.sum())))

    def loss(self, head: Any, features: Any, prediction: Prediction) -> "torch.Tensor":
        from torch.nn.functional import binary_cross_entropy_with_logits

        seen = features.inputs["input_ids"].flatten().index_select(0, prediction.places)
        logits = head(features.tokens.index_select(0, prediction.places)[None])[0].float()
        return binary_cross_entropy_with_logits(logits, (seen != prediction.values).float(), reduction="sum")

    def export(self, model: Any, folder: Path) -> None:
        """Write the discriminator."""
        model.heads[self.name].export(model.encoder, folder)


def _checked(config: "PretrainedConfig") -> "PretrainedConfig":
    if config.model_type != "electra":
        raise ValueError(
            f"architecture {config.model_type!r}: replaced tokens are detected by ELECTRA alone; "
            "give start=Scratch(Geometry(family='electra', ...)) or an ELECTRA as --architecture"
        )
    return config


def _generator(config: "PretrainedConfig", share: float) -> "nn.Module":
    """Return a narrower encoder without token embeddings of its own, its transform, and its output bias."""
    import torch
    from torch import nn
    from transformers import ElectraForMaskedLM

    own: Any = copy.deepcopy(config)
    own.num_attention_heads = max(1, round(config.num_attention_heads * share))
    own.hidden_size = own.num_attention_heads * (config.hidden_size // config.num_attention_heads)
    own.intermediate_size = max(1, round(config.intermediate_size * share))
    own.tie_word_embeddings = False
    model: Any = ElectraForMaskedLM(own)
    model.electra.embeddings.word_embeddings = None
    head = nn.Module()
    head.encoder, head.transform = model.electra, model.generator_predictions
    head.bias = nn.Parameter(torch.zeros(config.vocab_size))
    return head


def _drawn(
    states: "torch.Tensor", table: "torch.Tensor", bias: "torch.Tensor", draws: "torch.Tensor"
) -> "torch.Tensor":
    """Return the token at which the cumulative probability exceeds each draw, int64 (places,)."""
    logits = states.float() @ table.float().T + bias.float()
    sums = logits.double().softmax(-1).cumsum(-1)  # in float64, so that rounding moves few draws across a boundary
    return (sums < draws[:, None] * sums[:, -1:]).sum(-1).clamp(max=len(table) - 1)
