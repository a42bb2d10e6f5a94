"""A corpus in portions: small files together, large ones cut where rows begin, the same rows whatever the cut."""

import gzip
import json

import pytest

from tlm_ray.corpus.general import documents, portions
from tlm_ray.corpus.general.documents import read_columns
from tlm_ray.corpus.general.manifest import CorpusFile, open_corpus
from tlm_ray.corpus.general.passages import PARTS, RANGES, PassageStore, cut_passages
from tlm_ray.corpus.general.portions import portions_of
from tlm_ray.storage import files, read_record, read_table


def file(name, size):
    return CorpusFile(name=name, uri=f"/corpus/{name}", size=size, modified_ns=0, digest="")


def shown(found):
    return [[(one.file.name, one.bounds) for one in portion] for portion in found]


def test_small_files_lie_together_and_large_ones_are_cut(monkeypatch):
    monkeypatch.setattr(portions, "TOGETHER_BYTES", 100)
    monkeypatch.setattr(portions, "CUT_BYTES", 100)
    files = [file("a.jsonl", 40), file("b.txt", 60), file("c.csv", 1), file("d.jsonl", 205), file("e.jsonl.gz", 300)]
    assert shown(portions_of([*files, file("f.txt", 99), file("g.txt", 1), file("h.txt", 1)])) == [
        [("a.jsonl", None), ("b.txt", None)],
        [("c.csv", None)],
        [("d.jsonl", (0, 68))],
        [("d.jsonl", (68, 136))],
        [("d.jsonl", (136, 205))],
        [("e.jsonl.gz", None)],
        [("f.txt", None), ("g.txt", None)],
        [("h.txt", None)],
    ]


ROWS = [{"text": f"row {i} " + "é" * (i % 7)} for i in range(40)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_cut_of_a_file_gives_each_row_once(tmp_path, end, mark):
    data = mark + end.join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
    (tmp_path / "a.jsonl").write_bytes(data)

    def read(*bounds):
        batches = read_columns(str(tmp_path / "a.jsonl"), ["text"], bounds)
        return [row for batch in batches for row in batch.to_pylist()]

    assert read(0, len(data)) == ROWS
    for cut in range(1, len(data)):
        assert read(0, cut) + read(cut, len(data)) == ROWS, cut


def test_a_row_that_is_none_is_named_by_its_line_from_the_byte_where_its_range_begins(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 5 + "no json\n" + '{"text": "a"}\n' * 5)
    with pytest.raises(ValueError, match=r"a\.jsonl', line 4 from byte 15 on: not JSON"):
        list(read_columns(str(tmp_path / "a.jsonl"), ["text"], (15, 100)))


@pytest.mark.usefixtures("ray_cluster")
def test_passages_are_the_same_however_the_corpus_is_cut(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for i in range(12):
        (corpus / f"b{i:02d}.txt").write_text(f"text {i} is here\n\nand another\n")
    made = {}
    for size in (50, 300, 32_000_000):
        monkeypatch.setattr(portions, "TOGETHER_BYTES", size)
        monkeypatch.setattr(portions, "CUT_BYTES", size)
        folder = str(tmp_path / str(size))
        facts = cut_passages(folder, open_corpus(str(corpus), column="text"), passage_tokens=4, workers=2)
        store = PassageStore.open(folder)
        made[size] = facts, store.read(0, len(store), ("text", "source"))
        parts = len(read_record(f"{folder}/{PARTS}")["parts"])
        assert {50: parts > 30, 300: 4 < parts < 15, 32_000_000: parts == 1}[size]
    (facts, table), *others = made.values()
    assert facts["documents"] == 40 + 24 and all(other[0] == facts and other[1].equals(table) for other in others)


@pytest.mark.usefixtures("alone")
def test_passages_are_the_same_however_many_rows_are_read_at_once(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode()))
    corpus, made = open_corpus(str(tmp_path / "a.jsonl.gz"), column="text"), []
    for size in (1, 90, 64_000_000):
        monkeypatch.setattr(documents, "BATCH_CHARACTERS", size)
        facts = cut_passages(str(tmp_path / str(size)), corpus, passage_tokens=4, workers=1)
        store = PassageStore.open(str(tmp_path / str(size)))
        ranges = read_table(str(tmp_path / str(size) / RANGES))
        made.append((facts, ranges.to_pylist(), store.read(0, len(store), ("text", "source")).to_pylist()))
    assert made[0] == made[1] == made[2] and made[0][0]["documents"] == 40


@pytest.mark.usefixtures("ray_cluster")
def test_parts_that_were_cut_before_an_interruption_are_not_cut_again(tmp_path, monkeypatch):
    monkeypatch.setattr(portions, "TOGETHER_BYTES", 5)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("one\n\ntwo\n")
    (corpus / "b.jsonl").write_text('{"text": "cut')
    opened = open_corpus(str(corpus), column="text")
    folder = tmp_path / "passages"
    with pytest.raises(ValueError, match=r"b\.jsonl"):
        cut_passages(str(folder), opened, passage_tokens=4, workers=1)
    before = (folder / "part-00000.parquet").stat().st_ctime_ns
    (corpus / "b.jsonl").write_text('{"text": "whole"}')
    facts = cut_passages(str(folder), open_corpus(str(corpus), column="text"), passage_tokens=4, workers=1)
    assert facts["passages"] == 3 and (folder / "part-00000.parquet").stat().st_ctime_ns == before


def test_a_range_whose_rows_lack_the_column_has_nulls(tmp_path):
    data = '{"text": "a"}\n' * 20 + '{"meta": 1}\n'
    (tmp_path / "a.jsonl").write_text(data)
    batches = read_columns(str(tmp_path / "a.jsonl"), ["text"], (20 * 14 - 3, len(data)))
    assert [row for batch in batches for row in batch.to_pylist()] == [{"text": None}]


def test_a_cut_file_without_the_column_is_named(tmp_path):
    data = '{"body": "a"}\n' * 20
    (tmp_path / "a.jsonl").write_text(data)
    with pytest.raises(ValueError, match=r"a\.jsonl' has no column 'text'; its columns are body; choose one of them"):
        list(read_columns(str(tmp_path / "a.jsonl"), ["text"], (0, len(data) // 2)))


def test_a_line_without_an_end_is_refused_by_its_range_and_skipped_by_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1_000)
    monkeypatch.setattr(files, "LONGEST_BYTES", 4_000)
    (tmp_path / "a.jsonl").write_text('{"text": "' + "a" * 100_000)
    uri = str(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=r"a\.jsonl', byte 0: a line has more than 1,000 characters"):
        list(read_columns(uri, ["text"], (0, 50_000)))
    assert list(read_columns(uri, ["text"], (50_000, 100_010))) == []
