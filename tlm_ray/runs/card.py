"""Write a model card into an exported folder: what the model is, its data, its scores, its limits, how it was made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tlm_ray import storage
from tlm_ray.console import print_once
from tlm_ray.corpus.labelled.text_groups import read_text_groups
from tlm_ray.evaluation.predictions import read_predictions
from tlm_ray.evaluation.scores import Metric
from tlm_ray.report.statistics.jackknife import interval_over_rows
from tlm_ray.runs.stages.provenance import describe_run
from tlm_ray.runs.stages.records import Records
from tlm_ray.runs.stages.stage import Stages
from tlm_ray.storage.digests import CARD, TAG, is_card
from tlm_ray.training.objectives import MarkedLabels

KIND = "text-classification"  # the hub's name of the task
USE = """```python
from transformers import pipeline

classify = pipeline("text-classification", model="FOLDER"{})
print(classify({}))
```"""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A score of one split."""

    split: str
    """dev or test"""
    metric: str
    """name of the metric"""
    value: float
    """in percent"""
    interval: tuple[float, float] | None = None
    """95 % confidence interval over test sets, of this model alone; None where predictions are not kept"""


def model_card(stages: Stages, records: Records, *, task: str, scores: Sequence[Scored], made: str = "") -> str:
    """Return the card of a trained model in Markdown.

    task: its short name. scores: those of this model. made: what made it; "" for this process' command.
    """
    task = _line(task)
    parts = [_front(task, scores), *_about(stages, records, task), *_table(scores), *_data(stages, records)]
    return "\n\n".join([*parts, *_limits(stages, records), *_made(records, made)]) + "\n"


def keep_card(folder: str, card: str) -> None:
    """Write a card as README.md into a model's folder, unless somebody else's is there."""
    uri = storage.join(folder, CARD)
    if storage.exists(uri) and not read_card(folder):
        print_once(f"{storage.shown(folder)}: has a README.md of yours, so no model card was written")
    elif card:
        storage.write_bytes(uri, card.encode())


def drop_card(folder: str) -> None:
    """Delete the card in a model's folder, for a model that gets none; somebody else's README.md stays."""
    if read_card(folder):
        storage.delete(storage.join(folder, CARD))


def read_card(folder: str) -> str:
    """Return the card that `keep_card` wrote into a folder, "" if it has none."""
    uri = storage.join(folder, CARD)
    found = storage.read_bytes(uri) if storage.exists(uri) else b""
    return found.decode(errors="replace") if is_card(found) else ""


def scores_of(stages: Stages, records: Records, metric: str | Metric) -> list[Scored]:
    """Return the scores of a training with their intervals; metric: "" for the one in its facts."""
    found, facts = [], records.facts(stages.metrics)
    for split in (split for split in ("dev", "test") if facts.get(split) is not None):
        read = read_predictions(stages.metrics.folder(records.root), split)
        groups = read_text_groups(stages.task.folder(records.root), split)
        interval = interval_over_rows(metric or facts["metric"], read.gold, read.predicted, groups)
        found.append(Scored(split=split, metric=facts["metric"], value=facts[split], interval=interval))
    return found


def _front(task: str, scores: Sequence[Scored]) -> str:
    """Return the metadata that the hub reads."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type=KIND,
            dataset_type="own",
            dataset_name=task,
            dataset_split=one.split,
            metric_type=one.metric,
            metric_name=one.metric,
            metric_value=round(one.value, 2),
        )
        for one in scores
    ]
    data = ModelCardData(
        library_name="transformers", pipeline_tag=KIND, tags=[TAG], model_name=task, eval_results=results
    )
    return f"---\n{data.to_yaml()}\n---"


def _about(stages: Stages, records: Records, task: str) -> Iterator[str]:
    kind = "A text classifier" if stages.task.parameters.get("labels") else "A regression of texts"
    yield f"# {task}"
    yield (
        f"{kind} with {records.facts(stages.last)['parameters']:,} weights, trained by task-driven language modeling "
        "(Yao et al., ICML 2022)."
    )
    reads_marks = isinstance(stages.last.parameters.get("labels"), MarkedLabels)
    yield USE.format(", trust_remote_code=True" if reads_marks else "", '"A text."')
    if reads_marks:
        yield "The model's code is `marked.py` in this folder, which runs by `trust_remote_code`: read it before."
    yield 'For a model of pairs of texts, give `{"text": "One.", "text_pair": "Other."}`.'


def _table(scores: Sequence[Scored]) -> Iterator[str]:
    yield "## Scores"
    rows = [f"| {one.split} | {one.metric} | {one.value:.2f} | {_shown(one.interval)} |" for one in scores]
    yield "\n".join(["| split | metric | score | 95 % confidence interval |", "|---|---|---:|---:|", *rows])
    yield (
        "The interval is over samples of rows, for this model alone. It is for an unlimited test set. Few rows per "
        "class bias a score. The interval is corrected for that, so it can leave the score out. The dev set chose the "
        "model."
    )


def _shown(interval: tuple[float, float] | None) -> str:
    return "{:.1f} to {:.1f}".format(*interval) if interval else "not computed"


def _data(stages: Stages, records: Records) -> Iterator[str]:
    facts, parameters = records.facts(stages.task), stages.task.parameters
    digests = dict(zip(("train", "dev", "test"), parameters.get("digests", ()), strict=False))
    if digests.get("test") == digests.get("dev"):  # dev stands in for a test set that is not there
        digests.pop("test", None)
    rows = [f"{facts[f'{split}_rows']:,} {split}" for split in digests if f"{split}_rows" in facts]
    yield "## Data"
    lines = [f"- Labelled rows: {', '.join(rows)}."] if rows else []
    if parameters.get("labels"):
        lines += [f"- Classes: {', '.join(map(_code, parameters['labels']))}."]
    lines += [
        f"- Identity of {split} (a sha256 of its rows or files): `{digest}`." for split, digest in digests.items()
    ]
    if stages.neighbours is not None and stages.passages is not None:
        method = stages.neighbours.parameters.get("method", "retrieval for several tasks")
        read = stages.passages.inputs.get("cleaned", stages.passages)
        corpus = records.facts(stages.passages)
        lines += [
            f"- Unlabelled text: chosen for the training texts among {corpus['passages']:,} passages, by {method}.",
            f"- Identity of the corpus: `{read.parameters.get('corpus') or read.fingerprint}`.",
        ]
    yield "\n".join(lines)


def _limits(stages: Stages, records: Records) -> Iterator[str]:
    yield "## Limits"
    lines = ["- It answers for any text, also for one of another kind or language. Longer texts are cut."]
    if stages.task.parameters.get("labels"):
        lines += ["- It always answers with one of its classes, and its probabilities are not calibrated."]
    if shared := records.facts(stages.task).get("test_in_train"):
        lines += [f"- The text of {shared} test rows is also in the training set."]
    lines += ["- Licence: yours to choose, within those of the texts and of a pretrained encoder."]
    yield "\n".join(lines)


def _made(records: Records, how: str) -> Iterator[str]:
    made = describe_run(records.root)
    yield "## How it was made"
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    yield f"    {how or made.command}\n\nVersions of the process that wrote this card: {versions}."
    yield "Steps that were cached may have been made by others."


def _code(name: str) -> str:
    """Return a name as code of Markdown, whatever it contains."""
    fence = "``" if "`" in name else "`"
    return f"{fence}{_line(name)}{fence}"


def _line(name: str) -> str:
    return " ".join(name.split())
