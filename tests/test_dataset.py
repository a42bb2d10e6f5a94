"""Ray Datasets in and out: a corpus that is a Dataset gives what its texts as files give, and results are Datasets."""

import itertools
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from alone import in_this_process
from small import SELECTED, laid_out, small_flow
from test_inference import make_model
from test_pages import ROOT
from waiting import wait_for

from tlm_ray.corpus.general import dataset as module
from tlm_ray.corpus.general.dataset import FOLDER, keep_dataset
from tlm_ray.corpus.general.manifest import Corpus
from tlm_ray.corpus.general.passages import PassageStore
from tlm_ray.retrieval.selection import SelectionStore
from tlm_ray.runs.flow.flow import Flow
from tlm_ray.runs.stages.making import make

pytestmark = pytest.mark.usefixtures("ray_cluster")
ROWS = 64


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(module, "FILE_ROWS", ROWS)


@pytest.fixture(scope="module")
def texts(data) -> list[str]:
    return pq.read_table(data / "corpus")["text"].to_pylist()


def pieces(texts, count) -> list[pa.Table]:
    """Cut texts into some tables of unequal sizes."""
    bounds = [len(texts) * i * i // count**2 for i in range(count + 1)]
    return [pa.table({"n": range(a, b), "body": texts[a:b]}) for a, b in itertools.pairwise(bounds) if a < b]


def of_arrow(texts, blocks, folder):
    import ray.data

    return ray.data.from_arrow(pieces(texts, blocks))


def of_pandas(texts, blocks, folder):
    import ray.data

    return ray.data.from_pandas([table.to_pandas() for table in pieces(texts, blocks)])


def of_parquet(texts, blocks, folder):
    import ray.data

    folder.mkdir()
    for number, table in enumerate(pieces(texts, blocks)):
        pq.write_table(table, folder / f"{number}.parquet")
    context = ray.data.DataContext.get_current()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "use_datasource_v2", False)
        return ray.data.read_parquet(str(folder))


def of_huggingface(texts, blocks, folder):
    import ray.data

    datasets = pytest.importorskip("datasets")
    return ray.data.from_huggingface(datasets.Dataset.from_dict({"body": texts}))


def neighbours(flow) -> dict[str, bytes]:
    """Make the neighbours stage; return its selection and its passages, as they are on disk."""
    stages = laid_out(flow)
    with in_this_process():
        make([stages.neighbours], flow.execution.root)
    passages = Path(stages.passages.folder(flow.execution.root))
    files = [Path(stages.neighbours.folder(flow.execution.root)) / SELECTED, *sorted(passages.glob("*.parquet"))]
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def by_files(data, texts, tmp_path_factory) -> dict[str, bytes]:
    """What the same texts give as files of ROWS documents, with the names that a Dataset's files have."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "corpus").mkdir()
    (folder / "tasks").symlink_to(data / "tasks")
    for number, first in enumerate(range(0, len(texts), ROWS)):
        pq.write_table(
            pa.table({"text": texts[first : first + ROWS]}), folder / "corpus" / f"part-{number:05d}.parquet"
        )
    return neighbours(small_flow(folder, folder / "root"))


CASES = [(kind, blocks) for kind in (of_arrow, of_pandas, of_parquet) for blocks in (1, 7)] + [(of_huggingface, 1)]


@pytest.mark.parametrize(("kind", "blocks"), CASES)
def test_a_dataset_gives_the_selection_of_the_same_texts_as_files(data, texts, by_files, tmp_path, kind, blocks):
    dataset = kind(texts, blocks, tmp_path / "in")
    execution = small_flow(data, tmp_path / "root").execution
    flow = Flow(execution=execution, corpus=dataset, column="body", task_root=str(data / "tasks"))
    assert isinstance(flow.corpus, Corpus) and len(flow.corpus.files) == -(-len(texts) // ROWS)
    assert neighbours(flow) == by_files


def test_documents_stay_in_order_whichever_task_ends_first(texts, tmp_path):
    def first_last(batch):
        if batch["n"][0].as_py() == 0:
            wait_for(lambda: len(list(tmp_path.glob("*.done"))) == blocks - 1)
        else:
            (tmp_path / f"{batch['n'][0]}.done").touch()
        return batch

    blocks = len(pieces(texts, 9))
    dataset = of_arrow(texts, 9, None).map_batches(first_last, batch_format="pyarrow", batch_size=None)
    before = dataset.context.execution_options.preserve_order
    corpus = keep_dataset(dataset, str(tmp_path), column="body")
    assert [text for file in corpus.files for text in pq.read_table(file.uri)["text"].to_pylist()] == texts
    assert dataset.context.execution_options.preserve_order is before is False


def test_texts_that_are_there_are_not_written_again_unless_they_are_corrupt(texts, tmp_path):
    root, folder = str(tmp_path), tmp_path / FOLDER
    corpus = keep_dataset(of_arrow(texts[:200], 1, None), root, column="body")
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert len(before) == 4
    grown = keep_dataset(of_pandas(texts, 7, None), root, column="body")
    assert grown.digest != corpus.digest and grown.files[:3] == corpus.files[:3]
    assert keep_dataset(of_arrow(texts[:200], 2, None), root, column="body") == corpus
    assert {file: file.stat().st_mtime_ns for file in before} == before
    damaged = Path(corpus.files[1].uri)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:400] + bytes([content[400] ^ 1]) + content[401:])
    assert keep_dataset(of_arrow(texts[:200], 2, None), root, column="body").digest == corpus.digest
    assert damaged.read_bytes() == content


def test_null_and_empty_texts_are_other_texts_of_the_same_passages(tmp_path):
    import ray.data

    found = [
        keep_dataset(ray.data.from_arrow(pa.table({"text": pa.array(texts, pa.string())})), str(tmp_path))
        for texts in (["a", None, "b"], ["a", "", "b"], ["ab", "", ""], [None, None, None])
    ]
    assert len({corpus.digest for corpus in found}) == 4
    frame = pd.DataFrame({"text": ["a", None, "b"]})
    assert keep_dataset(ray.data.from_pandas(frame), str(tmp_path)).digest == found[0].digest


def test_what_is_wrong_with_a_dataset_is_named(data, tmp_path):
    import ray.data

    root = str(tmp_path)
    table = pa.table({"n": [1, 2], "body": ["a", "b"], "words": [["a"], ["b"]]})
    with pytest.raises(ValueError, match="has no column 'text'; its columns are n, body, words; name one"):
        keep_dataset(ray.data.from_arrow(table), root)
    with pytest.raises(ValueError, match=r"'Dataset', column 'words': is not text .*; choose or make a text column"):
        keep_dataset(ray.data.from_arrow(table), root, column="words")
    for empty in (ray.data.from_arrow(table.slice(0, 0)), ray.data.from_items([])):
        with pytest.raises(ValueError, match="the Dataset has no rows; give one with texts"):
            keep_dataset(empty, root, column="body")
    with pytest.raises(ValueError, match=r"corpus 'texts\.csv': give a ray\.data\.Dataset, or a location through open"):
        Flow(execution=small_flow(data, tmp_path).execution, corpus="texts.csv")
    assert not (tmp_path / FOLDER).exists()


def test_passages_and_selection_are_datasets(data, tmp_path, monkeypatch):
    monkeypatch.setattr("tlm_ray.retrieval.selection.PART_ROWS", 50)
    monkeypatch.setattr("tlm_ray.corpus.general.portions.TOGETHER_BYTES", 1)
    flow = small_flow(data, tmp_path)
    neighbours(flow)
    stages = laid_out(flow)
    passages = PassageStore.open(stages.passages.folder(flow.execution.root))
    selection = SelectionStore.open(stages.neighbours.folder(flow.execution.root))
    assert len(passages.parts) > 1 and len(selection.files) > 1
    found = whole(passages.dataset())
    assert found["passage"].to_pylist() == list(range(len(passages)))
    assert found.drop("passage").equals(passages.read(0, len(passages), ("text", "source")))
    assert whole(selection.dataset()).equals(selection.read())
    damaged = Path(selection.files[1])
    damaged.write_bytes(damaged.read_bytes().replace(b"tide", b"tidy"))
    with pytest.raises(ValueError, match=r"file '.*selection-00001\.arrow' is corrupt"):
        whole(selection.dataset())


@pytest.mark.long
def test_the_page_searches_a_dataset_and_predicts_another(data, texts, tmp_path):
    (tmp_path / "texts").mkdir()
    pq.write_table(pa.table({"body": texts}), tmp_path / "texts" / "part.parquet")
    (tmp_path / "data" / "tasks").mkdir(parents=True)
    (tmp_path / "data" / "tasks" / "reviews").symlink_to(data / "tasks" / "topics")
    make_model(tmp_path / "reviews-model")
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "your_data.md").read_text(), re.S)
    here: dict[str, Any] = {}
    for name in ("texts", ".tlm", "data/tasks", "reviews-model", "predicted"):  # Ray's processes have another folder
        assert f'"{name}"' in snippet
        snippet = snippet.replace(f'"{name}"', f'"{tmp_path}/{name}"')
    exec(snippet, here)
    found = here["selection"].count()
    written = pq.read_table(tmp_path / "predicted")
    assert found == len(written) > 100 and set(written["predicted"].to_pylist()) <= {"sea", "sky", "kitchen"}
    assert written.column_names[-2:] == ["predicted", "probabilities"]


def whole(dataset) -> pa.Table:
    return pa.concat_tables(dataset.iter_batches(batch_format="pyarrow", batch_size=None)).combine_chunks()
