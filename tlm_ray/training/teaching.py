"""Make soft labels: trained models' predictions for texts, for distillation (Hinton et al. 2015).

The texts are the task's training texts, rows spliced from them or with replaced words, and passages of the selection.
A teacher with the student's tokenizer reads its tokens; any other reads the texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import transformers
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.corpus.tasks import load_task
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain.linear_model import is_linear
from tlm_ray.training.blocks import Blocks, read_blocks, write_blocks
from tlm_ray.training.evaluation import open_classifier
from tlm_ray.training.masking import Vocabulary
from tlm_ray.training.model import JointModel
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.prediction import predict
from tlm_ray.training.predictor import NUMBER, Models, check_models
from tlm_ray.training.preparation import FACTS, TOKENIZER
from tlm_ray.training.replacing import replaced
from tlm_ray.training.settings import BLOCKS, GENERAL, TASK
from tlm_ray.training.splicing import spliced
from tlm_ray.training.starts import Pretrained
from tlm_ray.training.tokenizer import load_tokenizer
from tlm_ray.training.worker import Worker


def write_soft_labels(
    folder: str,
    blocks: str,
    teachers: Sequence[str],
    *,
    task: str = "",
    splices: int,
    passages: int = 0,
    replacements: int = 0,
    mlm: str = "",
    precision: str,
    device: str,
    threads: int,
) -> dict[str, Any]:
    """Write rows to learn, labelled with the teachers' mean probabilities or numbers.

    teachers: folders of trained encoders, or of linear models. task: folder of a task stage, whose texts teachers of
    another tokenizer read. splices, passages, replacements: spliced rows, blocks of passages and rows with replaced
    words per training row. The passages are those of the lowest ranks; mlm: folder of the masked language model that
    replaces words. Returns the number of teachers, and their accuracy on the training rows.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    labels = tuple(storage.read_record(storage.join(blocks, FACTS))["labels"])
    rows = read_blocks(storage.join(blocks, BLOCKS[TASK]))
    parts = [rows, spliced(rows, splices)]
    if passages:
        first = first_rows(read_blocks(storage.join(blocks, BLOCKS[GENERAL])), passages * len(rows))
        parts.append(first if rows.types is None else replace(first, types=_types(first)))
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        tokenizer = load_tokenizer(path)
    if replacements:
        with storage.folder_for_reading(mlm) as path:
            model = JointModel.of(Pretrained(str(path)), (Mlm(),), tokenizer=tokenizer, labels=labels, seed=0).on(
                device
            )
        parts.append(replaced(rows, replacements, model, Vocabulary.of(tokenizer), device=device))
    own = [each for each in teachers if _reads_tokens(each, tokenizer)]
    others = [each for each in teachers if each not in own]
    said, worker = [], Worker(device=device, precision=precision)
    for each in own:
        classifier = open_classifier(each, labels=labels, device=device)
        logits = [predict(classifier, part, pad_id=tokenizer.pad_token_id, worker=worker) for part in parts]
        said.append(shares(np.concatenate(logits)))
    if others:
        known = load_task(task).splits["train"].select(["text", "text_pair"]).to_pydict().values()
        texts = [[*some, *more] for some, more in zip(known, _texts(parts[1:], tokenizer), strict=True)]
        read = texts if any(texts[1]) else texts[:1]
        said += [_in_order(Models(others, device), labels, read)] * len(others)
    soft = np.array(said).mean(axis=0)
    write_blocks(storage.join(folder, BLOCKS[TASK]), parts, soft if labels else soft[:, 0])
    agree = {"agree": float((soft[: len(rows)].argmax(axis=1) == rows.labels).mean())} if labels else {}
    return {"teachers": len(teachers)} | agree


def first_rows(rows: Blocks, count: int) -> Blocks:
    """Return the first rows, without ranks; ValueError if there are too few."""
    if len(rows) < count:
        raise ValueError(
            f"passages: {count:,} blocks are asked for and {len(rows):,} selected; raise --k, or ask fewer"
        )
    offsets = rows.offsets[: count + 1]
    return Blocks(rows.tokens[: offsets[-1]], offsets)


def _reads_tokens(teacher: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a teacher has the student's tokenizer."""
    if is_linear(teacher):
        return False
    with storage.folder_for_reading(teacher) as path:
        return load_tokenizer(path).get_vocab() == tokenizer.get_vocab()


def _texts(parts: Sequence[Blocks], tokenizer: PreTrainedTokenizerBase) -> Iterator[list[str]]:
    """Yield the first texts of all rows, then the second ones, "" for rows of one text."""
    for kind in (0, 1):
        rows = [
            tokens[types == kind].tolist()
            for part in parts
            for tokens, types in zip(
                *(_rows(array, part.offsets) for array in (part.tokens, _types(part))), strict=True
            )
        ]
        yield tokenizer.batch_decode(rows, skip_special_tokens=True)


def _types(rows: Blocks) -> np.ndarray:
    return np.zeros(rows.offsets[-1], np.uint8) if rows.types is None else rows.types


def _rows(values: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    return np.split(values[: offsets[-1]], offsets[1:-1])


def check_teachers(models: Sequence[str], labels: Sequence[str]) -> None:
    """Raise ValueError unless all models are trained and predict a task's labels, none for a regression."""
    check_models(models, "fp32")
    _check_labels(Models(models).labels, labels)


def _check_labels(own: Sequence[str], labels: Sequence[str]) -> None:
    if set(own) != set(labels or [NUMBER]):
        raise ValueError(
            f"teachers: have the labels {', '.join(own)}, the task {', '.join(labels)}; give models of this task"
        )


def _in_order(models: Models, labels: tuple[str, ...], texts: list[list[str]]) -> np.ndarray:
    """Return probabilities in the order of the task's labels, or numbers; ValueError if the models have others."""
    _check_labels(models.labels, labels)
    said = models.said(texts)
    return said[:, [models.labels.index(label) for label in labels]] if labels else said
