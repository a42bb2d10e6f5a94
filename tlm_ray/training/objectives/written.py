"""What objectives share whose targets are written by a decoder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tlm_ray.training.objectives.objective import Objective

if TYPE_CHECKING:
    from tlm_ray.training.encoders.decoders import Decoder
    from tlm_ray.training.encoders.weights import Weights


class Written(Objective):
    """Trains an encoder-decoder; all such objectives of a model share one decoder."""

    opens_as: ClassVar[str] = "AutoModelForSeq2SeqLM"

    def head(self, weights: "Weights") -> "Decoder":
        return weights.decoder

    def export(self, model: Any, folder: Path) -> None:
        """Write encoder and decoder."""
        model.heads[self.name].export(model.encoder, folder)
