"""Label the rows that a student learns by a trained model, chunk by chunk.

A teacher with the student's tokenizer reads its tokens; any other reads the texts.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from tlm_ray import storage
from tlm_ray.corpus.labelled.tasks import load_task
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain.linear_model import is_linear
from tlm_ray.process import quiet_transformers
from tlm_ray.training.encoders.marked_head import ids_of
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.model.packing import first_position
from tlm_ray.training.scoring.evaluation import open_classifier
from tlm_ray.training.scoring.prediction import predict
from tlm_ray.training.scoring.predictor import NUMBER, Models, check_models, names_of
from tlm_ray.training.settings import BLOCKS, TASK
from tlm_ray.training.students.soft_labels import Labelled
from tlm_ray.training.tokens.blocks import Blocks, read_blocks
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer


class Teacher:
    """Labels chunks of a student's rows: a worker of `parallel.each`."""

    def __init__(
        self, teacher: str, blocks: str, rows: str, task: str, marks: Sequence[str], precision: str, device: str
    ):
        """Open a teacher: the folder of a trained encoder, or of a linear model.

        blocks: folder of a blocks stage, with the student's tokenizer. rows: folder of rows by `write_rows`. task:
        folder of a task stage, whose texts a teacher of another tokenizer reads. marks: signs that texts have in one
        piece. precision: of a teacher that reads tokens; others have their own. device: cpu or cuda.

        ValueError if it has other labels than the task, reads shorter rows, or cannot tell the texts of pairs apart.
        """
        quiet_transformers()
        torch.set_num_threads(1)
        labels = storage.read_record(storage.join(blocks, FACTS))["labels"]
        with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
            self.tokenizer = load_tokenizer(path)
        self.rows, self.marks = read_blocks(storage.join(rows, BLOCKS[TASK])), marks
        self.worker = Worker(device=device, precision=precision)
        self.classifier: JointModel | None = None
        with storage.folder_for_reading(teacher) as path:
            folder = str(path)
            names = names_of(folder)
            self.order = in_order(teacher, names, labels)
            if _reads_tokens(folder, self.tokenizer):
                self.classifier = open_classifier(folder, labels=tuple(names) if labels else (), device=device)
                _check_length(teacher, self.classifier, self.rows.longest)
            else:
                self.models = Models([folder], device)
                self.known = _known_texts(task, self.rows)

    def __call__(self, chunk: dict[str, Any]) -> Labelled:
        """Return the labels of a chunk."""
        began = time.monotonic()
        start, stop = chunk["start"], chunk["start"] + chunk["rows"]
        rows = self.rows.between(start, stop)
        if self.classifier is not None:
            logits = predict(self.classifier, rows, pad_id=self.tokenizer.pad_token_id, worker=self.worker)
            found = shares(logits)
        else:
            found = self.models.said(self._texts(rows, start, stop))
        return Labelled(start, np.asarray(found[:, self.order], np.float32), time.monotonic() - began)

    def _texts(self, rows: Blocks, start: int, stop: int) -> list[list[str]]:
        """Return the columns of texts of rows: the task's own for its training rows, decoded ones for others."""
        known = [column[start:stop] for column in self.known]
        made = decoded_texts(rows.between(len(known[0]), len(rows)), self.tokenizer, self.marks)
        return [[*own, *more] for own, more in zip(known, made, strict=False)]


def _reads_tokens(teacher: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a teacher has the student's tokenizer."""
    return not is_linear(teacher) and load_tokenizer(teacher).get_vocab() == tokenizer.get_vocab()


def _check_length(teacher: str, classifier: JointModel, longest: int) -> None:
    """Raise ValueError if a teacher has fewer positions than the longest row has tokens."""
    positions = getattr(classifier.encoder.config, "max_position_embeddings", longest)
    most = positions - first_position(classifier.encoder)
    if longest > most:
        raise ValueError(
            f"teachers {teacher!r}: reads rows of {most} tokens at most, the student's have up to {longest}; lower "
            "task_tokens and block_tokens, or give another teacher"
        )


def _known_texts(task: str, rows: Blocks) -> list[list[str]]:
    """Return the columns of the task's training texts: one, or two if they are pairs.

    ValueError for made rows of pairs whose tokens do not tell the texts apart.
    """
    known = list(load_task(task).splits["train"].select(["text", "text_pair"]).to_pydict().values())
    if not any(known[1]):
        return known[:1]
    if len(rows) > len(known[0]) and rows.types is None:
        raise ValueError(
            "teachers: the student's tokenizer has no token types, so made rows cannot be cut into pairs for one of "
            "another tokenizer; give Teaching(splices=0), or teachers of the student's tokenizer"
        )
    return known


def decoded_texts(rows: Blocks, tokenizer: PreTrainedTokenizerBase, marks: Sequence[str]) -> Iterator[list[str]]:
    """Yield the first texts of all rows, then the second ones, "" for rows of one text.

    Marks are written as in the task's texts, because a teacher of bytes reads "[ [" as other tokens than "[[".
    """
    apart = {mark: tokenizer.batch_decode([ids_of(tokenizer, mark)])[0].strip() for mark in marks}
    types = np.zeros(rows.offsets[-1], np.uint8) if rows.types is None else rows.types
    bounds = [slice(*pair) for pair in pairwise(rows.offsets)]
    for kind in (0, 1):
        chosen = [rows.tokens[row][types[row] == kind].tolist() for row in bounds]
        texts = tokenizer.batch_decode(chosen, skip_special_tokens=True) if chosen else []  # of [] it is [""]
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
