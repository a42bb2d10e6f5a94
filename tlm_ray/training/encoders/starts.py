"""Starts: the initial model of a training, as parts of a recipe; import torch only when a model is created.

Scratch        random weights, sizes of a geometry
Architecture   random weights, configuration of any encoder
FewerLayers    some of the teacher's layers
Pretrained     the weights of an encoder
Trimmed        some layers of an encoder, and its frequent pieces
Extended       an encoder with further words
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray import storage
from tlm_ray.identity import NO_RESULT
from tlm_ray.storage.digests import identity_of
from tlm_ray.storage.opening import open_settings
from tlm_ray.training.encoders.configs import kept_layers, with_kept_layers, with_vocabulary, with_vocabulary_size
from tlm_ray.training.encoders.families import Family, Geometry

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from tlm_ray.training.encoders.weights import Weights

# of a configuration, in which a start from a teacher's layers equals the teacher
SIZES = ("model_type", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")


@dataclass(frozen=True)
class Start(ABC):
    """Creates the initial model of a training; derive from it to add your own."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """The parameters that identify this start in a stage's fingerprint."""

    @abstractmethod
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> AbstractContextManager["Weights"]:
        """Yield the initial weights; labels: the task's classes, none for a regression."""

    @property
    def pieces(self) -> dict[str, int]:
        """How it changes the pieces of its encoder's tokenizer, for the tokenizer's fingerprint; {} if it does not."""
        return {}

    fits_general: ClassVar[bool] = False
    """whether the texts of `fitted` are also a recipe's general text, not the tasks' alone"""

    def fitted(self, tokenizer: "PreTrainedTokenizerBase", texts: Iterable[str]) -> "PreTrainedTokenizerBase":
        """Return the tokenizer with its pieces changed for some texts; how is in `pieces`."""
        return tokenizer

    def beside(self, teacher: str) -> "Start":
        """Return this start with the location of the teacher's model, which some starts read."""
        return self

    @property
    def family(self) -> Family | None:
        """The encoder's family; None if only transformers knows it."""
        return None

    @property
    def positions(self) -> int | None:
        """Maximum tokens per row; None if unknown before the encoder is opened."""
        return None

    @property
    def width(self) -> int | None:
        """The size of token embeddings; None if unknown before the encoder is opened."""
        return None

    def parameters(self, *, vocabulary: int) -> int | None:
        """Return the number of parameters with the MLM head; None if unknown before the encoder is opened."""
        return None


@dataclass(frozen=True)
class Scratch(Start):
    """Starts from random weights, with the sizes of a geometry."""

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
        return self.family.table_width(self.geometry) if self.family else None

    def parameters(self, *, vocabulary: int) -> int | None:
        return self.geometry.parameters(vocabulary=vocabulary)

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        from tlm_ray.training.encoders.weights import RandomWeights

        size = {"vocabulary": len(tokenizer), "pad_id": tokenizer.pad_token_id}
        yield RandomWeights(scratch_config(self.geometry, **size, labels=labels), seed=seed, tokenizer=tokenizer)


@dataclass(frozen=True)
class FewerLayers(Scratch):
    """Starts from the teacher's embeddings, head and as many of its layers as the geometry has (Sanh et al. 2019).

    The layers are evenly spaced, the first and the last among them: of 12 layers 0, 2, 4, 7, 9 and 11, as released.
    """

    source: str = field(default="", metadata=NO_RESULT)
    """location of the teacher's model, which the flow fills in"""

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"layers_of": "teacher"}

    def beside(self, teacher: str) -> "FewerLayers":
        return replace(self, source=teacher)

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        from tlm_ray.training.encoders.fewer_layers import SomeLayers

        with opened(self.source) as source:
            weights = SomeLayers(source, layers=self.geometry.layers, labels=labels, seed=seed, tokenizer=tokenizer)
            own = scratch_config(self.geometry, vocabulary=weights.config.vocab_size, pad_id=0, labels=labels)
            for name in SIZES:
                asked, known = getattr(own, name, None), getattr(weights.config, name, None)
                if asked != known:
                    raise ValueError(
                        f"start FewerLayers: {name} is {asked} in its geometry and {known} in the teacher; only layers "
                        "may differ"
                    )
            yield weights


@dataclass(frozen=True)
class Architecture(Start):
    """Starts from random weights, with any encoder's configuration and the recipe's vocabulary.

    source: hub name or local folder.
    """

    source: str

    @property
    def identity(self) -> dict[str, Any]:
        return {"architecture": identity_of(self.source)}

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        from tlm_ray.training.encoders.weights import RandomWeights

        with opened(self.source) as source:
            yield RandomWeights(config_of(source, tokenizer, labels), seed=seed, tokenizer=tokenizer)


@dataclass(frozen=True)
class Pretrained(Start):
    """Starts from an encoder's weights, with a new task head; source: hub name or local folder."""

    source: str

    @property
    def identity(self) -> dict[str, Any]:
        return {"start": identity_of(self.source)}

    @contextmanager
    def weights(
        self, *, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...], seed: int
    ) -> Iterator["Weights"]:
        with opened(self.source) as source:
            yield self.weights_of(source, labels=labels, seed=seed, tokenizer=tokenizer)

    def weights_of(self, source: str, **options: Any) -> "Weights":
        """Return the initial weights from a local folder or hub name; options: as `weights` has them."""
        from tlm_ray.training.encoders.weights import TrainedWeights

        return TrainedWeights(source, **options)

    def resized(self, config: "PretrainedConfig") -> "PretrainedConfig":
        """Return its configuration before a tokenizer is known, from the encoder's, which it changes."""
        return config


@dataclass(frozen=True)
class Trimmed(Pretrained):
    """Starts from some layers of an encoder and its frequent pieces, with a new task head: a smaller encoder.

    The layers are evenly spaced from the first one, of 6 layers 0 and 3, or 0, 2 and 4 (RECORDS.md has other choices).
    The pieces are those most frequent in the task's training texts (Abdaoui et al. 2020), the same for each general
    text. Other words fall apart into them.
    """

    layers: int
    vocabulary: int = 5_000
    """pieces to keep, more if the texts have more characters; two layers of a MiniLM then have 5.8 of its 22.7 million
    weights, beside a head for marks"""

    def __post_init__(self) -> None:
        for name in ("layers", "vocabulary"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"start Trimmed: {name} {value}: must be 1 or more")

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"spaced_layers": self.layers, "vocabulary": self.vocabulary}

    @property
    def pieces(self) -> dict[str, int]:
        return {"kept": self.vocabulary}

    def fitted(self, tokenizer: "PreTrainedTokenizerBase", texts: Iterable[str]) -> "PreTrainedTokenizerBase":
        from tlm_ray.training.tokens.trimming import trim_tokenizer

        return trim_tokenizer(tokenizer, texts, vocabulary=self.vocabulary)

    def resized(self, config: "PretrainedConfig") -> "PretrainedConfig":
        kept = with_kept_layers(config, kept_layers(config.num_hidden_layers, self.layers, with_last=False))
        return with_vocabulary_size(kept, min(self.vocabulary, config.vocab_size))

    def weights_of(self, source: str, **options: Any) -> "Weights":
        from tlm_ray.training.encoders.trimmed import TrimmedWeights

        return TrimmedWeights(source, layers=self.layers, vocabulary=self.vocabulary, **options)


@dataclass(frozen=True)
class Extended(Pretrained):
    """Starts from an encoder with further words, each begun as the mean of its pieces, and a new task head.

    The words are the frequent ones that its tokenizer splits, see `tlm_ray.training.tokens.extending`. Those of a
    recipe's general text are counted, too.
    """

    fits_general: ClassVar[bool] = True
    words: int

    def __post_init__(self) -> None:
        if self.words < 1:
            raise ValueError(f"start Extended: words {self.words}: must be 1 or more")

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | self.pieces

    @property
    def pieces(self) -> dict[str, int]:
        return {"new_words": self.words}

    def fitted(self, tokenizer: "PreTrainedTokenizerBase", texts: Iterable[str]) -> "PreTrainedTokenizerBase":
        from tlm_ray.training.tokens.extending import extend_tokenizer

        return extend_tokenizer(tokenizer, texts, words=self.words)

    def resized(self, config: "PretrainedConfig") -> "PretrainedConfig":
        return with_vocabulary_size(config, config.vocab_size + self.words)

    def weights_of(self, source: str, **options: Any) -> "Weights":
        from tlm_ray.training.encoders.extended import ExtendedWeights

        return ExtendedWeights(source, words=self.words, **options)


def scratch_config(geometry: Geometry, *, vocabulary: int, pad_id: int, labels: tuple[str, ...]) -> "PretrainedConfig":
    """Return the transformers configuration of a geometry, with class names."""
    from tlm_ray.training.encoders.weights import label_names

    common = geometry.common | {"vocab_size": vocabulary, "pad_token_id": pad_id} | label_names(labels)
    return geometry.of_family.config(geometry, **common)


def config_of(source: str | Path, tokenizer: "PreTrainedTokenizerBase", labels: tuple[str, ...]) -> "PretrainedConfig":
    """Return the configuration of any encoder, by hub name or local folder, with another vocabulary and labels."""
    from transformers import AutoConfig

    from tlm_ray.training.encoders.weights import label_names

    return with_vocabulary(open_settings(AutoConfig, source, **label_names(labels)), tokenizer)


@contextmanager
def opened(source: str) -> Iterator[str]:
    """Yield a local folder with the files of a location; a location that does not exist is a hub name."""
    if not storage.exists(source):
        yield source
        return
    with storage.folder_for_reading(source) as folder:
        yield str(folder)
