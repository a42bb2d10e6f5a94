"""A corpus that grows: what is made from what was there before is what is made anew, to the bit."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from growth_histories import Stopped, stoppable
from small import SELECTED, laid_out, small_flow

from tlm_ray import storage
from tlm_ray.corpus.general import portions
from tlm_ray.corpus.general.growth import Growth, largest_within
from tlm_ray.corpus.general.passages import PARTS, RANGES
from tlm_ray.retrieval.growing import OpenPart, Part
from tlm_ray.retrieval.selection import DROPPED
from tlm_ray.retrieval.statistics_job import STATISTICS
from tlm_ray.runs.stages.making import make

pytestmark = pytest.mark.usefixtures("alone")
WORDS = np.array([f"word{i}" for i in range(300)])
FILES = ["part-1", "part-4", "part-0", "part-2-between"]  # in the order in which they come


@pytest.fixture(autouse=True, params=[1, 8_000_000])
def portion(request, monkeypatch):
    """Portions of one file, so that a corpus of a few has several, and of all."""
    monkeypatch.setattr(portions, "TOGETHER_BYTES", request.param)
    return request.param


@pytest.fixture
def place(data, tmp_path):
    """A folder with the tasks of the small data, and an empty corpus."""
    shutil.copytree(data / "tasks", tmp_path / "tasks")
    (tmp_path / "corpus").mkdir()
    return tmp_path


def add(place: Path, name: str, data: Path, generator: np.random.Generator, *, rare: float = 0.0) -> None:
    """Add a file of texts of the small data's corpus, with some words of its own; two are the task's dev texts."""
    number = generator.integers(4)
    texts = pq.read_table(data / "corpus" / f"part-{number}.parquet")["text"].to_pylist()
    more = (["sun"] * int(generator.random() < rare) for _ in texts)
    drawn = [" ".join([text, *generator.choice(WORDS, 3), *words]) for text, words in zip(texts, more, strict=True)]
    leaked = pq.read_table(data / "tasks" / "topics" / "dev.parquet")["text"].to_pylist()[:2]
    pq.write_table(pa.table({"text": drawn + leaked}), place / "corpus" / f"{name}.parquet")


def made(place: Path, root: str, method: str, *, shards: int) -> tuple[dict[str, bytes], dict[str, dict]]:
    """Make passages, statistics and selection; return what identifies their content, and their facts."""
    flow = small_flow(place, place / root, shards=shards)
    stages = {stage.name: stage for stage in laid_out(flow, method=method).neighbours.upstream()}
    records = make(list(stages.values()), flow.execution.root)
    facts = {name: records[stage.fingerprint]["facts"] for name, stage in stages.items()}
    files = [("neighbours", SELECTED), ("neighbours", DROPPED), ("passages", PARTS), ("statistics", STATISTICS)]
    found = {file: Path(stages[name].folder(flow.execution.root)) / file for name, file in files if name in stages}
    return {file: path.read_bytes() for file, path in found.items() if path.exists()}, facts


@pytest.mark.parametrize("stage", ["passages", "statistics", "neighbours", "task"])
def test_a_corpus_grows_after_a_folder_of_an_earlier_result_was_deleted(place, data, stage):
    generator = np.random.default_rng(0)
    add(place, FILES[0], data, generator)
    made(place, "root", "bm25", shards=2)
    shutil.rmtree(place / "root" / stage)
    add(place, FILES[1], data, generator)
    assert made(place, "root", "bm25", shards=2)[0] == made(place, "anew", "bm25", shards=2)[0]


@pytest.mark.parametrize("method", ["bm25", "rake"])
@pytest.mark.parametrize("seed", range(4))
def test_a_corpus_that_grew_three_times_has_the_bytes_of_one_made_anew(place, data, portion, seed, method):
    generator = np.random.default_rng(seed)
    add(place, FILES[0], data, generator)
    made(place, "root", method, shards=2)
    again = []
    for name in FILES[1:]:
        add(place, name, data, generator, rare=generator.choice([0.0, 0.9]))
        grown, facts = made(place, "root", method, shards=int(generator.integers(1, 6)))
        anew, _ = made(place, f"anew-{name}", method, shards=3)
        assert grown == anew
        if portion == 1:
            assert facts["passages"]["parts_taken_over"] == len(list((place / "corpus").iterdir())) - 1
        assert facts["neighbours"]["grown_from"] < facts["passages"]["passages"]
        again.append(facts["neighbours"]["searched_again"] / facts["neighbours"]["distinct_queries"])
    assert min(again) < 1


def test_methods_that_look_at_every_passage_are_made_anew(place, data):
    generator = np.random.default_rng(0)
    for name in FILES[:2]:
        add(place, name, data, generator)
        grown = [made(place, "root", method, shards=2) for method in ("random", "dsir")]
    assert [found for found, _ in grown] == [made(place, "anew", m, shards=3)[0] for m in ("random", "dsir")]


def test_a_corpus_with_a_changed_file_takes_over_the_others_and_is_searched_whole(place, data, portion):
    generator = np.random.default_rng(0)
    for name in FILES:
        add(place, name, data, generator)
    made(place, "root", "bm25", shards=2)
    add(place, FILES[1], data, generator)
    changed, facts = made(place, "root", "bm25", shards=2)
    assert changed == made(place, "anew", "bm25", shards=3)[0]
    assert facts["passages"].get("parts_taken_over", 0) == (3 if portion == 1 else 0)
    assert "grown_from" not in facts["neighbours"]


def test_a_damaged_part_is_not_taken_over(place, data):
    generator = np.random.default_rng(0)
    add(place, FILES[0], data, generator)
    made(place, "root", "bm25", shards=2)
    (part,) = (place / "root" / "passages").glob("*/part-00000.parquet")
    part.write_bytes(part.read_bytes()[:-9] + b"something")
    add(place, FILES[1], data, generator)
    grown, facts = made(place, "root", "bm25", shards=2)
    assert grown == made(place, "anew", "bm25", shards=3)[0]
    assert "parts_taken_over" not in facts["passages"]


def test_a_search_that_an_older_version_left_half_done_is_not_believed(place, data):
    generator = np.random.default_rng(0)
    add(place, FILES[0], data, generator)
    made(place, "root", "bm25", shards=2)
    add(place, FILES[1], data, generator)
    with stoppable() as stop, pytest.raises(Stopped):
        stop.title = "search"
        made(place, "root", "bm25", shards=2)
    (work,) = (place / "root" / "neighbours").glob("*/*/shards-*")
    for name in ("new", "old"):  # which told nothing of the earlier result that they were made from
        (work / name).mkdir(exist_ok=True)
        (work / name / "shard-00000.pieces").write_bytes(b"of another search")
    assert made(place, "root", "bm25", shards=2)[0] == made(place, "anew", "bm25", shards=3)[0]
    assert not work.parent.exists()


def ranges(**sizes: int) -> pa.Table:
    """Return a corpus' list of ranges."""
    return pa.table({"key": pa.array([key.encode() * 16 for key in sizes], pa.binary(16)), "passages": sizes.values()})


def test_ids_move_with_their_files():
    small, large = ranges(b=3, c=0, d=2), ranges(a=5, b=3, c=0, x=1, d=2, e=4)
    growth = Growth.between(small, large)
    assert growth.moved(np.arange(5)).tolist() == [5, 6, 7, 9, 10]
    assert growth.new.tolist() == [[0, 5], [8, 9], [11, 15]]
    assert np.concatenate([np.arange(*both) for both in growth.old]).tolist() == [5, 6, 7, 9, 10]
    assert Growth.between(large, small) is None
    assert Growth.between(ranges(b=1, a=1), ranges(a=1, b=1)) is None, "another order"


def test_of_several_corpora_the_largest_that_is_within_counts(tmp_path):
    corpora = {"small": ranges(a=1), "larger": ranges(a=1, b=2), "other": ranges(a=1, b=2, z=9)}
    for name, table in (corpora | {"now": ranges(a=1, b=2, c=3)}).items():
        storage.write_table(str(tmp_path / name / RANGES), table)
    earlier = [{"passages": str(tmp_path / name)} for name in corpora]
    found, growth = largest_within(str(tmp_path / "now"), earlier)
    assert found is earlier[1] and growth.new.tolist() == [[3, 6]]
    assert largest_within(str(tmp_path / "now"), earlier[2:]) is None


def test_a_part_of_a_corpus_is_its_ranges_and_candidates():
    ranges, left_out = np.array([[0, 4], [8, 10], [12, 12]]), np.array([1, 9])
    new = OpenPart(Part(ranges, np.zeros(0, np.int64), ""), np.array([5, 7]))
    assert new.within(0, 20).tolist() == [0, 1, 2, 3, 5, 7, 8, 9]
    assert new.within(3, 8).tolist() == [3, 5, 7] and new.within(10, 20).tolist() == []
    old = OpenPart(Part(ranges, left_out, "", without=True), np.array([2, 8]))
    assert old.within(0, 20).tolist() == [0, 3]
