"""Starts: what a training begins with, as named parts of a recipe; free of torch until a model is made.

Scratch        random weights of a geometry
Architecture   random weights of any encoder's configuration
Pretrained     the weights of an encoder
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlm_ray import storage
from tlm_ray.digests import identity_of
from tlm_ray.opening import open_settings
from tlm_ray.training.families import Family, Geometry
from tlm_ray.training.objectives import Objective

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from tlm_ray.training.model import JointModel
    from tlm_ray.training.weights import Weights

SPECIAL_IDS = ("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "mask_token_id")


@dataclass(frozen=True)
class Start(ABC):
    """How a model comes to be before its first step; derive from it for a start of your own."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """The parameters by which a stage that begins so is named."""

    @abstractmethod
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> AbstractContextManager["Weights"]:
        """Lend the weights that a model is made of; labels: of the task, none for a regression."""

    @property
    def family(self) -> Family | None:
        """The family of the encoder, None where it is only known to transformers."""
        return None

    @property
    def positions(self) -> int | None:
        """Tokens that a row may have, None where it is not known before the encoder is opened."""
        return None

    @property
    def width(self) -> int | None:
        """The size of a token embedding, None where it is not known before the encoder is opened."""
        return None

    def parameters(self, *, vocabulary: int) -> int | None:
        """Return the parameters of the encoder with its MLM head, None where the encoder must be opened to know."""
        return None

    def model(self, objectives: Sequence[Objective], **options: Any) -> "JointModel":
        """Return the model, with a head for each objective; options: those of `weights`."""
        from tlm_ray.training.model import JointModel

        with self.weights(**options) as weights:
            return JointModel(weights, objectives, family=self.family)


@dataclass(frozen=True)
class Scratch(Start):
    """Random weights of a geometry."""

    geometry: Geometry

    @property
    def identity(self) -> dict[str, Any]:
        return {"geometry": self.geometry}

    @property
    def family(self) -> Family | None:
        return self.geometry.of_family

    @property
    def positions(self) -> int | None:
        return self.geometry.positions

    @property
    def width(self) -> int | None:
        return self.geometry.width

    def parameters(self, *, vocabulary: int) -> int | None:
        return self.geometry.parameters(vocabulary=vocabulary)

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        from tlm_ray.training.weights import RandomWeights

        size = {"vocabulary": len(tokenizer), "pad_id": tokenizer.pad_token_id}
        yield RandomWeights(scratch_config(self.geometry, **size, labels=labels), seed=seed)


@dataclass(frozen=True)
class Architecture(Start):
    """Random weights of any encoder's configuration, for the recipe's vocabulary; source: hub name or local folder."""

    source: str

    @property
    def identity(self) -> dict[str, Any]:
        return {"architecture": identity_of(self.source)}

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        from tlm_ray.training.weights import RandomWeights

        with opened(self.source) as source:
            yield RandomWeights(config_of(source, tokenizer, labels), seed=seed)


@dataclass(frozen=True)
class Pretrained(Start):
    """The weights of an encoder, with a fresh task head; source: hub name or local folder."""

    source: str

    @property
    def identity(self) -> dict[str, Any]:
        return {"start": identity_of(self.source)}

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        from tlm_ray.training.weights import TrainedWeights

        with opened(self.source) as source:
            yield TrainedWeights(source, labels=labels, seed=seed)


def scratch_config(geometry: Geometry, *, vocabulary: int, pad_id: int, labels: tuple[str, ...]) -> "PretrainedConfig":
    """Return the transformers configuration of a geometry, with class names."""
    from tlm_ray.training.weights import label_names

    common = geometry.common | {"vocab_size": vocabulary, "pad_token_id": pad_id} | label_names(labels)
    return geometry.of_family.config(geometry, **common)


def config_of(source: str | Path, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...]) -> "PretrainedConfig":
    """Return the configuration of any encoder, by hub name or local folder, for another vocabulary and other labels."""
    from transformers import AutoConfig

    from tlm_ray.training.weights import label_names

    ids = {name: getattr(tokenizer, name, None) for name in SPECIAL_IDS}
    config = open_settings(AutoConfig, source, **label_names(labels))
    own = {name: number for name, number in ids.items() if number is not None and hasattr(config, name)}
    for name, value in (own | {"vocab_size": len(tokenizer)}).items():
        setattr(config, name, value)
    return config


@contextmanager
def opened(source: str) -> Iterator[str]:
    """Lend a local folder with what lies at a location; what is not there is a hub name."""
    if not storage.exists(source):
        yield source
        return
    with storage.folder_for_reading(source) as folder:
        yield str(folder)
