"""Measure where attention heads attend: to a neighbour or to special tokens (Yao et al. 2022, 4.4, appendix C)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers

from tlm_ray import storage
from tlm_ray.process import quiet_transformers
from tlm_ray.storage.opening import open_pretrained
from tlm_ray.training.encoders.configs import reads_types
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.preparation import TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer

EXAMPLE = "example.arrow"
LOOKS = ("previous", "next", "marks")


@dataclass(frozen=True, eq=False)
class Looks:
    """Positions of the largest attention weight, as shares of all queries, each (layers, heads)."""

    previous: np.ndarray
    """share on the previous token"""
    next: np.ndarray
    """share on the next token"""
    marks: np.ndarray
    """share on [CLS], [SEP] or the full stop"""


def looks(attentions: Iterable[tuple[np.ndarray, np.ndarray]], marks: Collection[int]) -> Looks:
    """Return the shares of queries by the position of their largest weight.

    attentions: per text, its token ids, (length,), and weights, (layers, heads, length, length), queries before keys.
    marks: ids of the tokens that vertical heads attend to.
    """
    counts: Any = dict.fromkeys(LOOKS, 0)
    queries = 0
    for tokens, weights in attentions:
        best, places = weights.argmax(axis=-1), np.arange(len(tokens))
        counts["previous"] += (best == places - 1).sum(axis=-1)
        counts["next"] += (best == places + 1).sum(axis=-1)
        counts["marks"] += np.isin(tokens[best], list(marks)).sum(axis=-1)
        queries += len(tokens)
    return Looks(**{name: found / queries for name, found in counts.items()})


def write_looks(folder: str, blocks: str, model: str, *, rows: int, device: str, threads: int) -> dict[str, Any]:
    """Measure a trained classifier's attention on the first rows of the dev set; return shares by layer and head.

    model: a folder that opens as AutoModelForSequenceClassification. Writes the first text's weights to EXAMPLE,
    float16 (heads, length, length) per layer. Also returns that text's tokens as words.
    """
    quiet_transformers()
    torch.set_num_threads(threads)
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        tokenizer = load_tokenizer(path)
    ids = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.get_vocab().get(".")]
    marks = [number for number in ids if number is not None]
    dev = read_blocks(storage.join(blocks, "dev.arrow"))
    spans = [slice(*span) for span in zip(dev.offsets[:-1][:rows], dev.offsets[1:][:rows], strict=True)]
    texts = [dev.tokens[span] for span in spans]
    types = None if dev.types is None else [dev.types[span] for span in spans]
    with storage.folder_for_reading(model) as path:
        found = looks(attention_of(path, texts, types, device=device), marks)
        (_, first), *_ = attention_of(path, texts[:1], types, device=device)
    weights = pa.FixedShapeTensorArray.from_numpy_ndarray(first.astype(np.float16))
    storage.write_table(storage.join(folder, EXAMPLE), pa.table({"weights": weights}))
    shares = {name: getattr(found, name).tolist() for name in LOOKS}
    return {"rows": len(texts), "tokens": tokenizer.convert_ids_to_tokens(texts[0].tolist())} | shares


@torch.no_grad()
def attention_of(
    model: Any, texts: Sequence[np.ndarray], types: Sequence[np.ndarray] | None = None, *, device: str = "cpu"
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Yield the token ids and attention weights, (layers, heads, length, length), of each text, in fp32.

    model: a local folder that transformers can open. types: token types per text, None if all are 0; some models
    do not read them.
    """
    opened = open_pretrained(transformers.AutoModel, model, attn_implementation="eager")
    opened = opened.to(device).eval()
    types = types if reads_types(opened.config) else None
    for number, text in enumerate(texts):
        rows = {"input_ids": text} | ({} if types is None else {"token_type_ids": types[number]})
        inputs = {name: torch.from_numpy(row.astype(np.int64))[None].to(device) for name, row in rows.items()}
        attentions = opened(**inputs, output_attentions=True).attentions
        yield text, torch.cat(attentions).float().cpu().numpy()
