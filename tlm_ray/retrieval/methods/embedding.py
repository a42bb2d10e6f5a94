"""Embed texts by mean pooling of any Hugging Face encoder, and search exactly by cosine similarity.

The last bits of an embedding depend on its batch. So batches always consist of the same 64 passages, and a selection
does not depend on shards or workers. It may depend on the hardware.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from tlm_ray.retrieval.engine.topk import TopK
from tlm_ray.storage.opening import open_pretrained, open_settings

BATCH = 64
PASSAGES_RANKED = 16 * BATCH  # passages ranked at once, together with the best so far
MOST_TOKENS = 512
LOW = np.uint64(0xFFFFFFFF)


class Encoder:
    """Embeds texts as the mean of the last layer, normalised to length 1 (Reimers and Gurevych 2019).

    source: hub name or local folder with safetensors weights; its own code is never run. ValueError if transformers
    cannot open it.
    """

    def __init__(self, source: str):
        self.source, self.device = source, "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.tokenizer = open_settings(AutoTokenizer, source)
            model = open_pretrained(AutoModel, source)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"encoder {source!r}: transformers cannot open it ({str(error).strip().splitlines()[0]}); give the hub "
                "name or the local folder of an encoder with its tokenizer and safetensors weights"
            ) from error
        self.model = model.to(self.device).eval()
        positions = getattr(self.model.config, "max_position_embeddings", MOST_TOKENS)
        self.tokens = min(MOST_TOKENS, positions, self.tokenizer.model_max_length)

    @torch.inference_mode()
    def embed(self, texts: Sequence[str | None]) -> Iterator[torch.Tensor]:
        """Yield the embeddings of each batch, float32 (up to 64, width); a null is an empty text."""
        for start in range(0, len(texts), BATCH):
            some = [text or "" for text in texts[start : start + BATCH]]
            options = {"truncation": True, "max_length": self.tokens, "padding": True, "return_tensors": "pt"}
            tokens = self.tokenizer(some, **options).to(self.device)
            states = self.model(**tokens).last_hidden_state.float()
            mask = tokens["attention_mask"][..., None]
            embedded = normalize((states * mask).sum(1) / mask.sum(1).clamp(min=1))
            if not torch.isfinite(embedded).all():
                raise ValueError(f"encoder {self.source!r}: gives a text no finite embedding; its weights are damaged")
            yield embedded


def check_encoder(source: str) -> None:
    """Open an encoder once, before workers do; ValueError if transformers cannot open it."""
    Encoder(source)


class DenseSearcher:
    """Searches shards, one after another, with the same queries; a score is 1 + cosine, from 0 to 2."""

    aligned = BATCH

    def __init__(self, queries: Sequence[str], encoder: str):
        self.encoder = Encoder(encoder)
        self.queries = torch.cat(list(self.encoder.embed(queries)))

    def search(self, texts: pa.Array, *, k: int, allowed: np.ndarray, floor: np.ndarray) -> TopK:
        """Return the k best passages of a shard per query; floor is ignored."""
        best = np.zeros((len(self.queries), 0), np.uint64)
        passages = texts.to_pylist()
        for start in range(0, len(passages), PASSAGES_RANKED):
            keys = self._keys(passages[start : start + PASSAGES_RANKED], start)
            best = np.concatenate([best, keys[:, allowed[start : start + PASSAGES_RANKED]]], axis=1)
            if best.shape[1] > k:
                best = np.partition(best, best.shape[1] - k, axis=1)[:, -k:]
        best = np.sort(best, axis=1)[:, ::-1]
        top = TopK(np.full((len(best), k), -1, np.int64), np.zeros((len(best), k), np.float32))
        top.ids[:, : best.shape[1]] = LOW - (best & LOW)
        top.scores[:, : best.shape[1]] = (best >> np.uint64(32)).astype(np.uint32).view(np.float32)
        return top

    def _keys(self, passages: Sequence[str | None], first: int) -> np.ndarray:
        """Return keys, uint64 (queries, passages): score in the high half, inverted passage id in the low half."""
        products = [(self.queries @ vectors.T).cpu().numpy() for vectors in self.encoder.embed(passages)]
        scores = np.maximum(1 + np.concatenate(products, axis=1), np.finfo(np.float32).tiny)
        ids = LOW - np.arange(first, first + len(passages), dtype=np.uint64)
        return scores.view(np.uint32).astype(np.uint64) << np.uint64(32) | ids
