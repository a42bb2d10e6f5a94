"""Make soft labels: trained classifiers' predictions for the training texts, for distillation (Hinton et al. 2015)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers

from tlm_ray import storage
from tlm_ray.evaluation.predictions import shares
from tlm_ray.training.blocks import read_blocks, write_blocks
from tlm_ray.training.evaluation import open_classifier
from tlm_ray.training.prediction import predict
from tlm_ray.training.preparation import FACTS, TOKENIZER
from tlm_ray.training.settings import BLOCKS, TASK
from tlm_ray.training.splicing import spliced
from tlm_ray.training.tokenizer import load_tokenizer
from tlm_ray.training.worker import Worker


def write_soft_labels(
    folder: str, blocks: str, teachers: Sequence[str], *, splices: int, precision: str, device: str, threads: int
) -> dict[str, Any]:
    """Write the task's training rows and spliced rows, labelled with the teachers' mean probabilities or numbers.

    teachers: folders that open as AutoModelForSequenceClassification. splices: spliced rows per training row. Returns
    the number of teachers, and their accuracy on the training rows.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    labels = tuple(storage.read_record(storage.join(blocks, FACTS))["labels"])
    rows, worker = read_blocks(storage.join(blocks, BLOCKS[TASK])), Worker(device=device, precision=precision)
    parts = [rows, spliced(rows, splices)]
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        pad_id = load_tokenizer(path).pad_token_id
    models = (open_classifier(each, labels=labels, device=device) for each in teachers)
    said = [np.concatenate([predict(model, part, pad_id=pad_id, worker=worker) for part in parts]) for model in models]
    soft = shares(np.array(said)).mean(axis=0)
    write_blocks(storage.join(folder, BLOCKS[TASK]), parts, soft if labels else soft[:, 0])
    agree = {"agree": float((soft[: len(rows)].argmax(axis=1) == rows.labels).mean())} if labels else {}
    return {"teachers": len(teachers)} | agree
