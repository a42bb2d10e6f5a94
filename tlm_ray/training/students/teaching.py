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
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain.linear_model import is_linear
from tlm_ray.training.encoders.marked_head import ids_of
from tlm_ray.training.encoders.starts import Pretrained
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.objectives import Mlm
from tlm_ray.training.scoring.evaluation import open_classifier
from tlm_ray.training.scoring.prediction import predict
from tlm_ray.training.scoring.predictor import NUMBER, Models, check_models, names_of
from tlm_ray.training.settings import BLOCKS, GENERAL, TASK
from tlm_ray.training.students.replacing import replaced
from tlm_ray.training.students.splicing import spliced
from tlm_ray.training.tokens.blocks import Blocks, read_blocks, write_blocks
from tlm_ray.training.tokens.masking import Vocabulary
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer


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
    marks: Sequence[str] = (),
    precision: str,
    device: str,
    threads: int,
) -> dict[str, Any]:
    """Write rows to learn, labelled with the teachers' mean probabilities or numbers.

    teachers: folders of trained encoders, or of linear models. task: folder of a task stage, whose texts teachers of
    another tokenizer read. splices, passages, replacements: spliced rows, blocks of passages and rows with replaced
    words per training row. The passages are those of the lowest ranks; mlm: folder of the masked language model that
    replaces words. marks: signs that are never replaced, and that texts have in one piece. Returns the number of
    teachers, and their accuracy on the training rows.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    labels = tuple(storage.read_record(storage.join(blocks, FACTS))["labels"])
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        tokenizer = load_tokenizer(path)
    rows = read_blocks(storage.join(blocks, BLOCKS[TASK]))
    parts = [rows] + ([spliced(rows, splices)] if splices else [])
    if passages:
        parts.append(_passages(blocks, rows, passages))
    if replacements:
        parts.append(_replaced(rows, replacements, mlm, tokenizer, marks, device))
    reads_tokens = [_reads_tokens(each, tokenizer) for each in teachers]
    texts = [] if all(reads_tokens) else _all_texts(task, parts, tokenizer, marks)
    worker, said = Worker(device=device, precision=precision), []
    for teacher, reads in zip(teachers, reads_tokens, strict=True):
        names = names_of(teacher)
        if reads:
            classifier = open_classifier(teacher, labels=tuple(names) if labels else (), device=device)
            _check_length(teacher, classifier, max(int(part.lengths.max()) for part in parts))
            logits = [predict(classifier, part, pad_id=tokenizer.pad_token_id, worker=worker) for part in parts]
            found = shares(np.concatenate(logits))
        else:
            found = Models([teacher], device).said(texts)
        said.append(found[:, in_order(teacher, names, labels)])
    soft = np.array(said, np.float32).mean(axis=0)
    write_blocks(storage.join(folder, BLOCKS[TASK]), parts, soft if labels else soft[:, 0])
    agree = {"agree": float((soft[: len(rows)].argmax(axis=1) == rows.labels).mean())} if labels else {}
    return {"teachers": len(teachers)} | agree


def _passages(blocks: str, rows: Blocks, times: int) -> Blocks:
    """Return `times` as many blocks of passages as there are training rows."""
    first = first_rows(read_blocks(storage.join(blocks, BLOCKS[GENERAL])), times * len(rows))
    return first if rows.types is None else replace(first, types=_types(first))


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


def first_rows(rows: Blocks, count: int) -> Blocks:
    """Return the first rows, without ranks; ValueError if there are too few."""
    if len(rows) < count:
        raise ValueError(
            f"passages: {count:,} blocks are asked for and {len(rows):,} selected; ask fewer, or raise --depth"
        )
    offsets = rows.offsets[: count + 1]
    return Blocks(rows.tokens[: offsets[-1]], offsets)


def _reads_tokens(teacher: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a teacher has the student's tokenizer."""
    if is_linear(teacher):
        return False
    with storage.folder_for_reading(teacher) as path:
        return load_tokenizer(path).get_vocab() == tokenizer.get_vocab()


def _check_length(teacher: str, classifier: JointModel, longest: int) -> None:
    """Raise ValueError if a teacher has fewer positions than the longest row has tokens."""
    positions = getattr(classifier.encoder.config, "max_position_embeddings", longest)
    most = positions - first_position(classifier.encoder)
    if longest > most:
        raise ValueError(
            f"teachers {teacher!r}: reads rows of {most} tokens at most, the student's have up to {longest}; lower "
            "task_tokens and block_tokens, or give another teacher"
        )


def _all_texts(
    task: str, parts: Sequence[Blocks], tokenizer: PreTrainedTokenizerBase, marks: Sequence[str]
) -> list[list[str]]:
    """Return the columns of texts of all rows: the task's own for its training rows, decoded ones for others.

    ValueError for made rows of pairs whose tokens do not tell the texts apart.
    """
    known = list(load_task(task).splits["train"].select(["text", "text_pair"]).to_pydict().values())
    if any(known[1]) and len(parts) > 1 and parts[0].types is None:
        raise ValueError(
            "teachers: the student's tokenizer has no token types, so made rows cannot be cut into pairs for one of "
            "another tokenizer; give Teaching(splices=0), or teachers of the student's tokenizer"
        )
    texts = [[*some, *more] for some, more in zip(known, _texts(parts[1:], tokenizer, marks), strict=True)]
    return texts if any(known[1]) else texts[:1]


def _texts(parts: Sequence[Blocks], tokenizer: PreTrainedTokenizerBase, marks: Sequence[str]) -> Iterator[list[str]]:
    """Yield the first texts of all rows, then the second ones, "" for rows of one text.

    Marks are written as in the task's texts, because a teacher of bytes reads "[ [" as other tokens than "[[".
    """
    apart = {mark: tokenizer.batch_decode([ids_of(tokenizer, mark)])[0].strip() for mark in marks}
    for kind in (0, 1):
        rows = [
            tokens[types == kind].tolist()
            for part in parts
            for tokens, types in zip(
                *(_rows(array, part.offsets) for array in (part.tokens, _types(part))), strict=True
            )
        ]
        texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
        for mark, pieces in apart.items():
            texts = [text.replace(pieces, mark) for text in texts]
        yield texts


def _types(rows: Blocks) -> np.ndarray:
    return np.zeros(rows.offsets[-1], np.uint8) if rows.types is None else rows.types


def _rows(values: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    return np.split(values[: offsets[-1]], offsets[1:-1])


def check_teachers(models: Sequence[str], labels: Sequence[str] | None) -> None:
    """Raise ValueError unless each is a trained model that predicts a task's labels, none for a regression.

    labels: None if the task is not known yet.
    """
    for model in models:
        if not storage.exists(model):
            raise ValueError(f"teachers {model!r}: there is no such folder; give the folder or URI of a trained model")
        check_models([model], "fp32")
        if labels is not None:
            in_order(model, names_of(model), labels)


def in_order(teacher: str, names: Sequence[str], labels: Sequence[str]) -> list[int]:
    """Return the places of the task's labels among a teacher's; ValueError if it has others."""
    wanted = list(labels) or [NUMBER]
    if sorted(names) != sorted(wanted):
        raise ValueError(
            f"teachers {teacher!r}: has the labels {', '.join(names)}, the task {', '.join(wanted)}; give a model of "
            "this task"
        )
    return [list(names).index(label) for label in wanted]
