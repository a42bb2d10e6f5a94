"""Make soft labels: trained models' predictions for texts, for distillation (Hinton et al. 2015).

Each teacher labels the rows of `rows.py` by itself; a student learns their mean. A teacher with the student's tokenizer
reads its tokens; any other reads the texts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain.linear_model import is_linear
from tlm_ray.training.encoders.marked_head import ids_of
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.scoring.evaluation import open_classifier
from tlm_ray.training.scoring.prediction import predict
from tlm_ray.training.scoring.predictor import NUMBER, Models, check_models, names_of
from tlm_ray.training.settings import BLOCKS, TASK
from tlm_ray.training.students.rows import types_of
from tlm_ray.training.tokens.blocks import Blocks, read_blocks, write_blocks
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer

LABELS = "labels.arrow"


def write_teacher_labels(
    folder: str,
    blocks: str,
    rows: str,
    teacher: str,
    *,
    task: str = "",
    marks: Sequence[str] = (),
    precision: str,
    device: str,
    threads: int,
) -> dict[str, Any]:
    """Write one teacher's probabilities or numbers for all rows; return its accuracy on the training rows.

    rows: folder of rows by `write_rows`. teacher: folder of a trained encoder, or of a linear model. task: folder of a
    task stage, whose texts a teacher of another tokenizer reads. marks: signs that texts have in one piece.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    labels = _labels(blocks)
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        tokenizer = load_tokenizer(path)
    made, names = read_blocks(storage.join(rows, BLOCKS[TASK])), names_of(teacher)
    if _reads_tokens(teacher, tokenizer):
        classifier = open_classifier(teacher, labels=tuple(names) if labels else (), device=device)
        _check_length(teacher, classifier, made.longest)
        worker = Worker(device=device, precision=precision)
        found = shares(predict(classifier, made, pad_id=tokenizer.pad_token_id, worker=worker))
    else:
        found = Models([teacher], device).said(_all_texts(task, made, tokenizer, marks))
    found = np.asarray(found[:, in_order(teacher, names, labels)], np.float32)
    column = pa.FixedSizeListArray.from_arrays(found.ravel(), found.shape[1])
    storage.write_table(storage.join(folder, LABELS), pa.table({"labels": column}))
    return _agree(blocks, found)


def write_soft_labels(folder: str, blocks: str, rows: str, taught: Sequence[str]) -> dict[str, Any]:
    """Write rows to learn, labelled with the mean of their teachers.

    taught: folders by `write_teacher_labels`, one per teacher. Returns the number of teachers, and the accuracy of
    their mean on the training rows.
    """
    soft = np.mean([_read_labels(each) for each in taught], axis=0)
    made = read_blocks(storage.join(rows, BLOCKS[TASK]))
    write_blocks(storage.join(folder, BLOCKS[TASK]), [made], soft if _labels(blocks) else soft[:, 0])
    return {"teachers": len(taught)} | _agree(blocks, soft)


def _labels(blocks: str) -> tuple[str, ...]:
    """Return the names of the task's classes; none for a regression."""
    return tuple(storage.read_record(storage.join(blocks, FACTS))["labels"])


def _read_labels(folder: str) -> np.ndarray:
    column = storage.read_table(storage.join(folder, LABELS))["labels"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def _agree(blocks: str, found: np.ndarray) -> dict[str, float]:
    """Return the accuracy on the training rows, which come first; nothing for a regression."""
    if not _labels(blocks):
        return {}
    gold = read_blocks(storage.join(blocks, BLOCKS[TASK])).labels
    assert gold is not None, "training rows have labels"
    return {"agree": float((found[: len(gold)].argmax(axis=1) == gold).mean())}


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


def _all_texts(task: str, rows: Blocks, tokenizer: PreTrainedTokenizerBase, marks: Sequence[str]) -> list[list[str]]:
    """Return the columns of texts of all rows: the task's own for its training rows, decoded ones for others.

    ValueError for made rows of pairs whose tokens do not tell the texts apart.
    """
    known = list(load_task(task).splits["train"].select(["text", "text_pair"]).to_pydict().values())
    if any(known[1]) and len(rows) > len(known[0]) and rows.types is None:
        raise ValueError(
            "teachers: the student's tokenizer has no token types, so made rows cannot be cut into pairs for one of "
            "another tokenizer; give Teaching(splices=0), or teachers of the student's tokenizer"
        )
    texts = [[*own, *read[len(own) :]] for own, read in zip(known, _texts(rows, tokenizer, marks), strict=True)]
    return texts if any(known[1]) else texts[:1]


def _texts(rows: Blocks, tokenizer: PreTrainedTokenizerBase, marks: Sequence[str]) -> Iterator[list[str]]:
    """Yield the first texts of all rows, then the second ones, "" for rows of one text.

    Marks are written as in the task's texts, because a teacher of bytes reads "[ [" as other tokens than "[[".
    """
    apart = {mark: tokenizer.batch_decode([ids_of(tokenizer, mark)])[0].strip() for mark in marks}
    tokens, types = (np.split(array[: rows.offsets[-1]], rows.offsets[1:-1]) for array in (rows.tokens, types_of(rows)))
    for kind in (0, 1):
        chosen = [row[its == kind].tolist() for row, its in zip(tokens, types, strict=True)]
        texts = tokenizer.batch_decode(chosen, skip_special_tokens=True)
        for mark, pieces in apart.items():
            texts = [text.replace(pieces, mark) for text in texts]
        yield texts


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
