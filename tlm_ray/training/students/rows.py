"""Make the rows that a student learns: its training rows, and rows made from them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.process import quiet_transformers
from tlm_ray.training.encoders.marked_head import ids_of
from tlm_ray.training.encoders.starts import Pretrained
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.settings import BLOCKS, TASK
from tlm_ray.training.students.replacing import replaced
from tlm_ray.training.students.splicing import spliced
from tlm_ray.training.tokens.blocks import Blocks, read_blocks, write_blocks
from tlm_ray.training.tokens.masking import Vocabulary
from tlm_ray.training.tokens.preparation import TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer


def write_rows(
    folder: str,
    blocks: str,
    *,
    splices: int,
    replacements: int = 0,
    mlm: str = "",
    marks: Sequence[str] = (),
    device: str,
    threads: int,
) -> dict[str, Any]:
    """Write the training rows, then rows made from them, without labels; return their number.

    splices, replacements: spliced rows and rows with replaced words per training row. mlm: folder of the masked
    language model that replaces words. marks: signs that are never replaced.
    """
    quiet_transformers()
    torch.set_num_threads(threads)
    rows = read_blocks(storage.join(blocks, BLOCKS[TASK]))
    parts = [rows] + ([spliced(rows, splices)] if splices else [])
    if replacements:
        with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
            tokenizer = load_tokenizer(path)
        parts.append(_replaced(rows, replacements, mlm, tokenizer, marks, device))
    write_blocks(storage.join(folder, BLOCKS[TASK]), parts)
    return {"rows": sum(map(len, parts))}


def _replaced(
    rows: Blocks, times: int, mlm: str, tokenizer: PreTrainedTokenizerBase, marks: Sequence[str], device: str
) -> Blocks:
    """Return `times` as many rows as there are training rows; the model at `mlm` replaces words, and no marks."""
    how: dict[str, Any] = {"tokenizer": tokenizer, "labels": (), "seed": 0}
    model = JointModel.of(Pretrained(mlm), (Mlm(),), **how).on(device)
    vocabulary = Vocabulary.of(tokenizer)
    kept = {token for mark in marks for token in ids_of(tokenizer, mark)}
    vocabulary = replace(vocabulary, special_ids=(*vocabulary.special_ids, *sorted(kept)))
    return replaced(rows, times, model, vocabulary, device=device)
