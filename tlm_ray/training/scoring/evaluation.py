"""Score models on dev during training, and on dev and test at its end; the test set is read only here."""

import time
from collections.abc import Callable
from typing import Any

import torch

from tlm_ray import storage
from tlm_ray.evaluation.predictions import check_finite, decide, write_predictions
from tlm_ray.evaluation.scores import Metric, score
from tlm_ray.process import quiet_transformers
from tlm_ray.training.encoders.weights import TrainedWeights
from tlm_ray.training.loop.worker import Worker
from tlm_ray.training.model.joint import JointModel
from tlm_ray.training.objectives import Labels, TextLabels, classifier_of
from tlm_ray.training.scoring.prediction import predict, write
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER
from tlm_ray.training.tokens.tokenizer import load_tokenizer


def dev_scores(
    blocks: str, metric: str | Metric, *, pad_id: int, worker: Worker, objective: str = Labels.name
) -> Callable[[JointModel], dict[str, float]]:
    """Return a function that scores a model on a dev set, in percent, divided among the workers.

    blocks: a folder of the blocks stage. metric: "" for the one that its facts name. objective: the one whose head to
    use.
    """
    facts = storage.read_record(storage.join(blocks, FACTS))
    dev = read_blocks(storage.join(blocks, "dev.arrow"))
    gold = dev.labels
    assert gold is not None, "task blocks carry labels"

    def evaluate(model: JointModel) -> dict[str, float]:
        predicted = decide(predict(model, dev, pad_id=pad_id, worker=worker, objective=objective))
        return {"dev": score(metric or facts["metric"], gold, predicted)}

    return evaluate


def open_classifier(model: str, *, labels: tuple[str, ...], device: str) -> JointModel:
    """Open a trained classifier; model: a folder or URI. labels: the task's classes, none for a regression.

    ValueError if the model has no trained classification head.
    """
    with storage.folder_for_reading(model) as path:
        weights = TrainedWeights(path, labels=labels, seed=0, keep_head=True, name=model)
        return JointModel(weights, (classifier_of(weights.config),)).on(device)


def evaluate(
    folder: str, blocks: str, model: str, *, metric: str | Metric, precision: str, device: str, threads: int
) -> dict[str, Any]:
    """Score a trained classifier on dev and test, and write its predictions with the gold labels.

    model: a folder that opens as its task objective says. metric: a metric, or "" for the one in the blocks'
    facts. Returns dev and test scores in percent, and the speed on the test set, in texts per second. Of an
    encoder-decoder also the shares of test texts for which it writes the right label, and no label, as T5 is scored.
    """
    quiet_transformers()
    torch.set_num_threads(threads)
    facts = storage.read_record(storage.join(blocks, FACTS))
    if not storage.exists(storage.join(model, "config.json")):
        raise ValueError(
            f"folder {model!r}: holds no model; a stage one made before it kept its task head has none: "
            f"delete the folder {model.rpartition('/')[0]!r} to make it again"
        )
    classifier = open_classifier(model, labels=tuple(facts["labels"]), device=device)
    with storage.folder_for_reading(storage.join(blocks, TOKENIZER)) as path:
        pad_id = load_tokenizer(path).pad_token_id
    scores: dict[str, Any] = {"metric": facts["metric"]}
    for split in ("dev", "test"):
        rows = read_blocks(storage.join(blocks, f"{split}.arrow"))
        started = time.perf_counter()
        logits = predict(classifier, rows, pad_id=pad_id, worker=Worker(device=device, precision=precision))
        scores["texts_per_s"] = len(rows) / (time.perf_counter() - started)  # in the end the test set's: dev warms up
        assert rows.labels is not None, "task blocks carry labels"
        check_finite(logits, model)
        predicted = write_predictions(folder, split, rows.labels, logits)
        scores[split] = score(metric or facts["metric"], rows.labels, predicted)
    if isinstance(classifier.objectives[Labels.name], TextLabels):
        written = write(classifier, rows, pad_id=pad_id, worker=Worker(device=device, precision=precision))
        scores |= {"written_right": float((written == rows.labels).mean()), "written_else": float((written < 0).mean())}
    return scores
