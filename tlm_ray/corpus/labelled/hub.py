"""Named tasks of the paper and of GLUE: their names and their locations on the Hugging Face hub."""

import re
from dataclasses import dataclass

from tlm_ray import storage
from tlm_ray.corpus.labelled.task_columns import Columns

USUAL = Columns(text="text", label="label")
TABLE_ENDING = re.compile(r"\.(parquet|csv|tsv|jsonl|ndjson|json)(\.\w+)?$")  # for a task that is one file


@dataclass(frozen=True, kw_only=True)
class HubTask:
    """A task's folder, and the names of its columns and files."""

    uri: str
    """the folder; "" if unknown"""
    metric: str = "macro_f1"
    """a name of `scores.METRICS`"""
    columns: Columns = USUAL
    """column names of text, label and a pair's second text"""
    files: tuple[str, str, str] = ("train.csv", "dev.csv", "test.csv")
    """the files of train, dev and test"""


def _paper(name: str, metric: str = "macro_f1") -> HubTask:
    return HubTask(uri=f"hf://datasets/yxchar/{name}-tlm", metric=metric)


def _glue(name: str, metric: str, text: str, text_pair: str = "", dev: str = "validation", test: str = "") -> HubTask:
    train, dev, test = (f"{split}-00000-of-00001.parquet" for split in ("train", dev, test or dev))
    files = (train, dev, test)
    uri = f"hf://datasets/nyu-mll/glue/{name}"
    columns = Columns(text=text, label="label", text_pair=text_pair)
    return HubTask(uri=uri, metric=metric, columns=columns, files=files)


# The authors' published files (README of the released code) and GLUE. GLUE's test labels are secret, so its
# dev set serves as the test set, as in the paper's table 10.
HUB_TASKS = {
    "ag": _paper("ag"),
    "hyp": _paper("hyp"),
    "amazon": _paper("amazon"),
    "imdb": _paper("imdb"),
    "citation_intent": _paper("citation_intent"),
    "sciie": _paper("sciie"),
    "chemprot": _paper("chemprot", "micro_f1"),
    "rct-20k": _paper("rct-20k", "micro_f1"),
    "cola": _glue("cola", "matthews", "sentence"),
    "sst2": _glue("sst2", "accuracy", "sentence"),
    "mrpc": _glue("mrpc", "accuracy_f1", "sentence1", "sentence2"),
    "qqp": _glue("qqp", "accuracy_f1", "question1", "question2"),
    "mnli": _glue("mnli", "accuracy", "premise", "hypothesis", dev="validation_matched"),
    "mnli-mm": _glue(
        "mnli", "accuracy", "premise", "hypothesis", dev="validation_matched", test="validation_mismatched"
    ),
    "qnli": _glue("qnli", "accuracy", "question", "sentence"),
    "rte": _glue("rte", "accuracy", "sentence1", "sentence2"),
    "stsb": _glue("stsb", "pearson_spearman", "sentence1", "sentence2"),
}

OTHER_TEST_OF = {"mnli-mm": "mnli"}  # tasks that differ from another only in their test set

ALIASES = {
    "agnews": "ag",
    "ag_news": "ag",
    "hyperpartisan": "hyp",
    "hyperpartisan_news": "hyp",
    "helpfulness": "amazon",
    "acl-arc": "citation_intent",
    "acl_arc": "citation_intent",
    "scierc": "sciie",
    "rct": "rct-20k",
}


def known_name(task: str) -> str:
    """Return the key of HUB_TASKS for a task's name or alias, ignoring case; an unknown name in lower case."""
    return ALIASES.get(task.lower(), task.lower())


def short_name(task: str) -> str:
    """Return a task's name: the last part of its location, without slashes, query string or file extension."""
    name = storage.without_query(task).rstrip("/").rpartition("/")[2]
    return TABLE_ENDING.sub("", name)


def trained_as(task: str) -> str:
    """Return the task whose trainings a task shares: itself, or the one from which only its test set differs."""
    known = known_name(task)
    return OTHER_TEST_OF.get(known, known if known in OTHER_TEST_OF.values() else task)
