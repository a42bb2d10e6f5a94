"""Bit flips: a damaged file of any stage is named by whoever reads it, and never believed."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from alone import in_this_process
from small import laid_out, small_flow

from tlm_ray import storage
from tlm_ray.corpus.general.passages import RANGES, PassageStore
from tlm_ray.corpus.labelled.tasks import SPLITS, load_task
from tlm_ray.evaluation.predictions import read_predictions
from tlm_ray.retrieval.selection import SelectionStore, read_dropped, read_rank_counts
from tlm_ray.retrieval.statistics_job import read_statistics
from tlm_ray.runs.flow import work
from tlm_ray.runs.stages.making import make
from tlm_ray.runs.stages.stage import RECORD, unique
from tlm_ray.storage.folders import SUMS
from tlm_ray.training.settings import MODEL, TASK_MODEL
from tlm_ray.training.tokens.blocks import read_blocks
from tlm_ray.training.tokens.counts import Counts
from tlm_ray.training.tokens.preparation import FACTS, TOKENIZER, read_counts

FLIPS = 60  # of each file
TEXTS = pa.table({"text": [f"text {i}" for i in range(50)]})


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """The root of a training, and its stages."""
    flow = small_flow(data, tmp_path_factory.mktemp("root"))
    stages = unique([laid_out(flow, counts=Counts(least=1)).metrics])
    documents = replace(flow.documents, make=lambda folder, _: work.write_docstrings(folder, workers=1))
    with in_this_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "installed_packages", dict)
        patch.setattr(work, "docstring_corpus_and_task", lambda _: (TEXTS, dict.fromkeys(SPLITS, TEXTS)))
        make([documents, stages[-1]], flow.execution.root)
    stages.append(documents)
    return flow.execution.root, {stage.name: stage for stage in stages}


def read_passages(folder: str) -> object:
    store = PassageStore.open(folder)
    storage.read_table(storage.join(folder, RANGES))
    return store.read(0, len(store), ("text", "source"))


def read_tokens(folder: str) -> None:
    for split in ("train", "dev", "test", "general"):
        read_blocks(storage.join(folder, f"{split}.arrow"))
    storage.read_record(storage.join(folder, FACTS))
    open_folder(folder, TOKENIZER)


def open_folder(folder: str, *names: str) -> None:
    for name in names:
        with storage.folder_for_reading(storage.join(folder, name)):
            pass


def read_neighbours(folder: str) -> tuple[object, ...]:
    for kept in Path(folder, "rankings").iterdir():
        storage.read_table(str(kept))
    return SelectionStore.open(folder).read(), read_rank_counts(folder), read_dropped(folder)


def read_scores(folder: str) -> None:
    for split in ("dev", "test"):
        read_predictions(folder, split)


READERS: dict[str, Callable[[str], object]] = {
    "documents": storage.check_sums,
    "task": load_task,
    "passages": read_passages,
    "statistics": read_statistics,
    "neighbours": read_neighbours,
    "tokenizer": lambda folder: open_folder(folder, TOKENIZER),
    "blocks": read_tokens,
    "counts": read_counts,
    "stage_one": lambda folder: open_folder(folder, MODEL, TASK_MODEL),
    "stage_two": lambda folder: open_folder(folder, MODEL),
    "metrics": read_scores,
}


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_of_any_file_of_a_stage_is_named(made, name):
    """Where a flip changes nothing that is read, such as 1e-05 to 1E-05, all is as before."""
    root, stages = made
    folder, read = stages[name].folder(root), READERS[name]
    before, record, generator = read(folder), stages[name].record(root), np.random.default_rng(0)
    files = [file for file in sorted(Path(folder).rglob("*")) if file.is_file()]
    assert len(files) > 1
    for file in files:
        whole = file.read_bytes()
        for place in generator.integers(8 * len(whole), size=FLIPS).tolist():
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            file.write_bytes(flipped)
            try:
                found = read(folder), stages[name].record(root)
            except ValueError as error:
                assert file.name in str(error), f"bit {place} of {file}: named {error}"
            else:
                same = found[0].equals(before) if file.suffix == ".parquet" else _reads_alike(file, whole, place)
                assert same and found[1] == record, f"bit {place} of {file} was believed"
        file.write_bytes(whole)


def _reads_alike(file: Path, whole: bytes, place: int) -> bool:
    """Say whether a flipped bit may change nothing: E for e in a number, or the 17th digit of one in a record."""
    at = place // 8
    if file.name == RECORD and whole[at : at + 1].isdigit():
        number = re.search(rb"[\d.]*$", whole[:at])[0] + re.match(rb"[\d.]*", whole[at:])[0]
        return len(number.replace(b".", b"").lstrip(b"0")) == 17
    return whole[at : at + 1] == b"e" and place % 8 == 5 and whole[at - 1 : at].isdigit()


@pytest.mark.parametrize("change", ["cut", "empty", "missing"])
def test_a_file_that_is_cut_or_gone_is_named(made, change):
    root, stages = made
    for name in ("task", "statistics", "blocks", "counts", "metrics", "stage_two"):
        folder = stages[name].folder(root)
        for file in sorted(file for file in Path(folder).rglob("*") if file.is_file() and file.name != RECORD):
            whole = file.read_bytes()
            file.unlink() if change == "missing" else file.write_bytes(whole[: len(whole) // 2 * (change == "cut")])
            try:
                if file.name != SUMS or change != "missing":  # without it a folder is anybody's
                    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(file.name)):
                        READERS[name](folder)
            finally:
                file.write_bytes(whole)


def test_a_folder_of_others_has_no_sums_to_be_held_against(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with storage.folder_for_reading(str(tmp_path)) as folder:
        assert (folder / "config.json").read_text() == "{}"


@pytest.mark.parametrize("line", ["{sha}  ../outside", "{sha}  /etc/hostname", "{sha}", "  ", "\xff"])
def test_sums_name_files_of_their_folder_only(tmp_path, line):
    (tmp_path / "model").mkdir()
    (tmp_path / "outside").write_text("x")
    sums = line.format(sha=storage.digest(str(tmp_path / "outside")))
    (tmp_path / "model" / SUMS).write_text(f"{sums}\n", encoding="latin-1")
    with pytest.raises(ValueError, match=f"does not match {SUMS}; make or copy it again, or delete {SUMS}"):
        storage.check_sums(str(tmp_path / "model"))
