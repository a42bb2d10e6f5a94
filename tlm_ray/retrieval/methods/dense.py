"""Dense retrieval: the passages with the highest cosine similarity to a training text, by an encoder's embeddings.

Cost: one pass of the encoder over the corpus, and one dot product per passage and distinct query.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.retrieval.engine.queries import distinct_texts
from tlm_ray.retrieval.methods.method import Method, Search
from tlm_ray.storage.digests import identity_of


@dataclass(frozen=True, kw_only=True)
class Dense(Method):
    """The nearest passages by an encoder's embeddings."""

    name: ClassVar[str] = "dense"
    version: ClassVar[int] = 4  # 4: character pairs as terms in scripts without spaces
    encoder: str = "sentence-transformers/all-MiniLM-L6-v2"
    """hub name or local folder with safetensors weights"""

    def identity(self, depth: int) -> Mapping[str, Any]:
        """Return name, depth and encoder; a local folder is identified by the digests of its files."""
        return {**super().identity(depth), "encoder": identity_of(self.encoder)}

    def find(self, folder: str, inputs: Mapping[str, str], run: Search) -> dict[str, Any]:
        """Search with every distinct text, on `run.gpus` per worker; ValueError names an encoder that fails to open."""
        from tlm_ray import parallel
        from tlm_ray.retrieval.methods.embedding import DenseSearcher, check_encoder
        from tlm_ray.retrieval.search_job import search_corpus

        parallel.on_worker(check_encoder, self.encoder)
        task = load_task(inputs["task"])
        queries, rows = distinct_texts(self.queries(task.query_texts))
        options: dict[str, Any] = {"searcher": DenseSearcher, "arguments": (self.encoder,), "gpus": run.gpus}
        return search_corpus(folder, inputs["passages"], task, run, queries=queries, rows=rows, **options)
