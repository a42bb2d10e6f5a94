"""Soft labels: what trained classifiers say of the training texts, for a student to learn (Hinton et al. 2015)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers

from tlm_ray import storage
from tlm_ray.corpus.predictions import shares
from tlm_ray.training.blocks import read_blocks
from tlm_ray.training.evaluation import open_classifier
from tlm_ray.training.prediction import predict
from tlm_ray.training.preparation import FACTS, TOKENIZER
from tlm_ray.training.settings import BLOCKS, TASK
from tlm_ray.training.tokenizer import load_tokenizer
from tlm_ray.training.worker import Worker


def write_soft_labels(
    folder: str, blocks: str, teachers: Sequence[str], *, precision: str, device: str, threads: int
) -> dict[str, Any]:
    """Write the task's training rows with the teachers' mean probabilities, or numbers, in the place of labels.

    teachers: folders that open as AutoModelForSequenceClassification. Returns how many there are, and the share of the
    rows whose likeliest class is their label.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    labels = tuple(storage.read_json(storage.join(blocks, FACTS))["labels"])
    uri = storage.join(blocks, BLOCKS[TASK])
    rows, worker = read_blocks(uri), Worker(device=device, precision=precision)
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        pad_id = load_tokenizer(path).pad_token_id
    said = [
        predict(open_classifier(each, labels=labels, device=device), rows, pad_id=pad_id, worker=worker)
        for each in teachers
    ]
    soft = shares(np.array(said)).mean(axis=0)
    column = pa.FixedSizeListArray.from_arrays(soft.ravel(), soft.shape[1]) if labels else pa.array(soft[:, 0])
    table = storage.read_table(uri)
    table = table.set_column(table.column_names.index("label"), "label", column)
    storage.write_table(storage.join(folder, BLOCKS[TASK]), table)
    agree = {"agree": float((soft.argmax(axis=1) == rows.labels).mean())} if labels else {}
    return {"teachers": len(teachers)} | agree
