"""What a corpus is: its bytes and names, not where it lies; and a change is noticed."""

import gzip
import hashlib
import json
import os
from pathlib import Path

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from tlm_ray import storage
from tlm_ray.corpus.general.manifest import Corpus, CorpusFile, check_unchanged, open_corpus, united
from tlm_ray.storage.listing import File

LINES = {"a.jsonl": "one", "b c/d.jsonl": "two", "é?.jsonl": "three"}


def write_corpus(folder, **changes):
    for name, text in (LINES | changes).items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": text}) + "\n")
    return str(folder)


def rewrite_with_old_times(path, text):
    """Change a file, keep its size and set its time of modification back, as `touch -r` does."""
    before = os.stat(path)
    while os.stat(path).st_ctime_ns == before.st_ctime_ns:  # some clocks tick every 4 ms
        path.write_text(text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (os.stat(path).st_size, os.stat(path).st_mtime_ns) == (before.st_size, before.st_mtime_ns)


class Hub(DirFileSystem):
    """A folder that tells of its files what the hub's filesystem does: a hash of the content and no time."""

    def info(self, path, **options):
        found = {name: value for name, value in super().info(path, **options).items() if name != "mtime"}
        if found["type"] == "file":
            found["blob_id"] = hashlib.sha1(self.cat_file(path)).hexdigest()
        return found

    def find(self, path, **options):
        return {name: self.info(name) for name in super().find(path, **options | {"detail": False})}


def digest(location, column="text"):
    return open_corpus(str(location), column=column).digest


@pytest.fixture
def counted(monkeypatch):
    hashed, take = [], storage.digest

    def count(uri):
        hashed.append(Path(uri).name)
        return take(uri)

    monkeypatch.setattr(storage, "digest", count)
    return hashed


def test_a_corpus_is_the_same_wherever_it_lies(tmp_path, monkeypatch):
    here, there = write_corpus(tmp_path / "here"), write_corpus(tmp_path / "deep" / "un der")
    monkeypatch.chdir(tmp_path)
    locations = [here, f"{here}/", there, "here", Path(here).as_uri(), Path(there).as_uri(), f"{here}/*", f"{there}/?*"]
    assert len({digest(location) for location in locations}) == 1
    assert [file.name for file in open_corpus(there, column="text").files] == list(LINES)


def test_one_file_is_a_corpus_wherever_it_lies(tmp_path):
    here, there = write_corpus(tmp_path / "here"), write_corpus(tmp_path / "there")
    assert digest(f"{here}/a.jsonl") == digest(f"{there}/a.jsonl") == digest(f"{here}/a*.jsonl")
    assert digest(f"{here}/a.jsonl") != digest(here)


@pytest.mark.parametrize("changes", [{"a.jsonl": "One"}, {"b c/d.jsonl": "two "}, {"z.jsonl": "more"}])
def test_a_change_of_content_is_another_corpus(tmp_path, changes):
    assert digest(write_corpus(tmp_path / "here")) != digest(write_corpus(tmp_path / "there", **changes))


def test_a_change_of_names_is_another_corpus(tmp_path):
    folder = Path(write_corpus(tmp_path))
    before = digest(folder)
    (folder / "a.jsonl").rename(folder / "0.jsonl")
    assert digest(folder) != before


def test_empty_and_hidden_files_are_no_part_of_a_corpus(tmp_path):
    folder = Path(write_corpus(tmp_path / "here"))
    for name in ("empty.jsonl", ".hidden.jsonl", "_SUCCESS"):
        (folder / name).write_text("" if name == "empty.jsonl" else "x")
    corpus = open_corpus(str(folder), column="text")
    assert corpus.digest == digest(write_corpus(tmp_path / "there"))
    assert corpus.size == sum(len(json.dumps({"text": text})) + 1 for text in LINES.values())


def test_digests_are_kept_and_only_new_files_are_hashed(tmp_path, counted):
    folder, kept = write_corpus(tmp_path / "corpus"), str(tmp_path / "digests.json")
    first = open_corpus(folder, column="text", digests=kept)
    assert counted == ["a.jsonl", "d.jsonl", "é?.jsonl"]
    assert open_corpus(folder, column="text", digests=kept) == first
    assert len(counted) == 3
    (Path(folder) / "new.jsonl").write_text('{"text": "four"}\n')
    rewrite_with_old_times(Path(folder) / "a.jsonl", '{"text": "ONE"}\n')
    after = open_corpus(folder, column="text", digests=kept)
    assert counted[3:] == ["a.jsonl", "new.jsonl"]
    assert after.digest == digest(folder) != first.digest


def test_digests_of_several_corpora_share_a_file(tmp_path, counted):
    kept = str(tmp_path / "digests.json")
    folders = [write_corpus(tmp_path / name) for name in ("one", "two")]
    for _ in range(2):
        for folder in folders:
            open_corpus(folder, column="text", digests=kept)
    assert len(counted) == 2 * len(LINES)


def test_setting_the_time_back_cannot_hide_a_change(tmp_path):
    folder, kept = write_corpus(tmp_path / "corpus"), str(tmp_path / "digests.json")
    before = open_corpus(folder, column="text", digests=kept)
    rewrite_with_old_times(Path(folder) / "a.jsonl", '{"text": "ONE"}\n')
    after = open_corpus(folder, column="text", digests=kept)
    assert after.digest != before.digest
    with pytest.raises(ValueError, match="changed while it was read"):
        check_unchanged(before.files[0])
    check_unchanged(before.files[1])
    check_unchanged(after.files[0])


@pytest.mark.parametrize("text", ["", '{"text": "much longer than it was"}\n'])
def test_a_change_of_size_names_the_file_and_both_sizes(tmp_path, text):
    file = open_corpus(write_corpus(tmp_path), column="text").files[0]
    Path(file.uri).write_text(text)
    with pytest.raises(ValueError, match=rf"{file.size} bytes were fingerprinted, {len(text)} are there now") as caught:
        check_unchanged(file)
    assert repr(file.uri) in str(caught.value)


def test_a_link_other_rights_and_the_same_bytes_are_no_change(tmp_path):
    file = open_corpus(write_corpus(tmp_path), column="text").files[0]
    os.link(file.uri, tmp_path / "backup")
    check_unchanged(file)
    Path(file.uri).chmod(0o600)
    check_unchanged(file)
    Path(file.uri).write_bytes((tmp_path / "backup").read_bytes())
    check_unchanged(file)


def test_a_file_that_went_away_is_named(tmp_path):
    file = open_corpus(write_corpus(tmp_path), column="text").files[0]
    Path(file.uri).unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.jsonl"):
        check_unchanged(file)


def test_a_missing_column_is_named_before_anything_is_hashed(tmp_path, counted):
    with pytest.raises(ValueError, match=r"a\.jsonl' has no column 'body'; its columns are text; .*--column") as caught:
        open_corpus(write_corpus(tmp_path), column="body")
    assert str(tmp_path) in str(caught.value)
    assert counted == []


def test_a_column_that_is_no_text_is_named_before_anything_is_hashed(tmp_path, counted):
    pq.write_table(pa.table({"body": [["a", "b"]]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet', column 'body'"):
        open_corpus(str(tmp_path), column="body")
    assert counted == []


def test_a_corpus_of_empty_files_is_refused(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match="all its files are empty; give a location with text") as caught:
        open_corpus(str(tmp_path), column="text")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("_delta_log/0.json", "is a table of Delta, .*; read it with ray.data.read_delta in Python"),
        ("metadata/version-hint.text", "is a table of Iceberg, .*; read it with ray.data.read_iceberg"),
        ("metadata/v1.metadata.json", "is a table of Iceberg, .*; read it with ray.data.read_iceberg"),
        (".hoodie/hoodie.properties", "is a table of Hudi, .*; read it with ray.data.read_hudi"),
    ],
)
def test_a_table_that_keeps_replaced_rows_is_refused(tmp_path, kept, said):
    pq.write_table(pa.table({"text": ["old"]}), tmp_path / "part-0.parquet")
    assert len(open_corpus(str(tmp_path), column="text").files) == 1
    (tmp_path / kept).parent.mkdir()
    (tmp_path / kept).write_text("{}")
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"text": ["old"]}), tmp_path / "day=1" / "part-0.parquet")
    for location in (tmp_path, tmp_path / "*.parquet", tmp_path / "part-0.parquet", tmp_path / "day=1"):
        with pytest.raises(ValueError, match=said):
            open_corpus(str(location), column="text")


def test_a_location_without_files_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"location '{tmp_path}': no such file"):
        open_corpus(str(tmp_path), column="text")


def test_files_of_several_formats_are_one_corpus(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    (tmp_path / "b.csv").write_text("text\nthree\n")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "four"}\n'))
    assert len(open_corpus(str(tmp_path), column="text").files) == 3


def test_several_locations_are_one_corpus_in_their_order(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"text of {name}")
    parts = [open_corpus(str(tmp_path / name), column="text") for name in ("here", "there")]
    both = united(parts)
    assert [file.name for file in both.files] == ["0/a.txt", "1/a.txt"]
    assert both.locations == (str(tmp_path / "here"), str(tmp_path / "there"))
    assert len({both.digest, united(parts[::-1]).digest, *(part.digest for part in parts)}) == 4
    assert united(parts[:1]) is parts[0]
    with pytest.raises(ValueError, match=r"corpus file '.*here/a.txt': is in two of the corpora; name it once"):
        united([parts[0], parts[0]])


def test_files_of_the_hub_are_told_apart_by_the_hashes_it_keeps(tmp_path, monkeypatch, counted):
    there = Hub(path=str(tmp_path), fs=LocalFileSystem())
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: there)
    folder = Path(write_corpus(tmp_path / "datasets" / "someone" / "corpus"))
    location = "hf://datasets/someone/corpus"
    before = open_corpus(location, column="text")
    assert [file.name for file in before.files][:2] == ["a.jsonl", "b c/d.jsonl"]
    assert digest(location) == before.digest
    (folder / "a.jsonl").write_text('{"text": "ONE"}\n')
    assert digest(location) != before.digest
    assert counted == []
    with pytest.raises(ValueError, match="changed while it was read"):
        check_unchanged(before.files[0])


@pytest.mark.parametrize("content", ["[]", "null", "3", '{"a": 1}', '{"a": []}', "{"])
def test_kept_digests_that_are_none_are_named_with_the_fix(tmp_path, content):
    (tmp_path / "a.txt").write_text("text")
    kept = tmp_path / "root" / "corpora.json"
    kept.parent.mkdir()
    kept.write_text(content.replace('"a"', json.dumps(str(tmp_path / "a.txt"))))
    with pytest.raises(ValueError, match=r"file '.*corpora.json' .*; delete this file: it only saves"):
        open_corpus(str(tmp_path / "a.txt"), column="text", digests=str(kept))


ABOUT = [
    "README.md",
    "LICENSE",
    "licence.txt",
    "NOTICE",
    "dataset_infos.json",
    "dataset_info.json",
    "CHANGELOG.md",
    "README",
    "LICENSE-APACHE",
    "LICENSE-2.0",
    "LICENSE-MIT.txt",
    "README-zh.md",
    "README.pt-br.md",
    "CITATION.cff",
    "state.json",
]
NOT_ABOUT = [
    "a.jsonl",
    "citation-network.jsonl",
    "license-plates.txt",
    "notice-board.jsonl",
    "readmes.md",
    "state-of-the-art.txt",
    "state.txt",
    "statements.txt",
]


def test_what_is_about_a_corpus_is_none_of_it_and_said(tmp_path):
    for name in (*ABOUT, *NOT_ABOUT):
        (tmp_path / name).write_text('{"text": "one two"}\n')
    corpus = open_corpus(str(tmp_path), column="text")
    assert [file.name for file in corpus.files] == NOT_ABOUT
    assert sorted(corpus.left_out) == sorted(ABOUT)
    assert open_corpus(str(tmp_path / "README.md"), column="text").left_out == (), "unless it is asked for"


def test_pages_as_they_were_sent_are_identified_by_how_plain_text_is_decoded():
    files = [
        CorpusFile(name=name, uri=f"/corpus/{name}", size=1, modified_ns=0, digest="")
        for name in ("a.warc.wet.gz", "b.wet", "c.warc.gz", "d.txt")
    ]

    def readers(*files):
        return Corpus(uri="", column="text", files=files, locations=()).readers.keys()

    assert readers(files[3]) == set()
    assert readers(*files[:2], files[3]) == {"resiliparse"}
    assert readers(*files) == readers(files[2]) == {"resiliparse", "plain_text", "compressed", "status"}


def test_many_files_are_opened_without_comparing_each_with_all_others(tmp_path, monkeypatch):
    for number in range(50):
        (tmp_path / f"{number}.txt").write_text("one two")
    compared = []
    monkeypatch.setattr(File, "__eq__", lambda one, other: compared.append(one) or one.uri == other.uri)
    assert len(open_corpus(str(tmp_path), column="text").files) == 50
    assert len(compared) < 50


def test_a_file_whose_name_is_no_utf8_is_named(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "w") as stream:
        stream.write("one two")
    with pytest.raises(ValueError, match=r"caf\\xe9.txt': its name is not UTF-8; rename it"):
        open_corpus(str(tmp_path), column="text")


def test_a_corpus_is_known_whatever_the_credentials_and_no_file_holds_them(tmp_path, s3_query, counted):
    there, kept = f"bucket-of-text/in{s3_query}", str(tmp_path / "corpora.json")
    storage.copy_folder(write_corpus(tmp_path / "in"), f"s3://KEY:SECRET@{there}")
    before = open_corpus(f"s3://KEY:SECRET@{there}", column="text", digests=kept)
    assert "SECRET" not in Path(kept).read_text()
    counted.clear()
    assert open_corpus(f"s3://NEW:ROTATED@{there}", column="text", digests=kept).digest == before.digest
    assert not counted
    with pytest.raises(ValueError, match="is in two of the corpora"):
        united([before, open_corpus(f"s3://NEW:ROTATED@{there}", column="text")])


def test_credentials_that_an_older_version_kept_go_when_the_digests_are_read(tmp_path, s3_query, counted):
    uri, kept = f"s3://KEY:SECRET@bucket-of-text/in{s3_query}", str(tmp_path / "corpora.json")
    storage.copy_folder(write_corpus(tmp_path / "in"), uri)
    files = open_corpus(uri, column="text").files
    storage.write_record(kept, {file.uri: [f"{file.size} {file.modified_ns}", file.digest] for file in files})
    assert "SECRET" in Path(kept).read_text()
    counted.clear()
    open_corpus(uri, column="text", digests=kept)
    assert not counted and "SECRET" not in Path(kept).read_text()
