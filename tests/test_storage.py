"""Locations: the same promises on a local disk, an S3 store of moto and the hub's filesystem."""

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import fill, names

from tlm_ray import storage
from tlm_ray.storage import pieces
from tlm_ray.storage.listing import list_files

TABLE = pa.table({"text": ["one", None, "三 😀"], "rank": pa.array([3, 1, 2], pa.int32())})


@pytest.mark.parametrize("data", [b"", b"\x00\xff\n\r\n", b"longer " * 1_000_000], ids=["empty", "binary", "7 MB"])
def test_bytes_come_back_and_their_digest_is_hashlibs(root, data):
    uri = storage.join(root, "deep", "er", "file.bin")
    assert not storage.exists(uri)
    storage.write_bytes(uri, data)
    assert storage.exists(uri)
    assert storage.read_bytes(uri) == data
    assert storage.digest(uri) == hashlib.sha256(data).hexdigest()
    assert list_files(uri)[0].size == len(data)


def test_compressed_bytes_are_written_and_read_as_they_are(root):
    uri = storage.join(root, "named.gz")
    storage.write_bytes(uri, b"no gzip at all")
    assert storage.read_bytes(uri) == b"no gzip at all"
    assert storage.digest(uri) == hashlib.sha256(b"no gzip at all").hexdigest()


def test_writing_again_replaces(root):
    uri = storage.join(root, "file")
    storage.write_bytes(uri, b"a longer first text")
    storage.write_bytes(uri, b"second")
    assert storage.read_bytes(uri) == b"second"


def test_json_comes_back(root):
    value = {"k": [1, 2.5, None, True], "é": {"三": "😀\n"}}
    uri = storage.join(root, "value.json")
    storage.write_json(uri, value)
    assert storage.read_json(uri) == value
    assert "三" in storage.read_bytes(uri).decode()


@pytest.mark.parametrize("data", [b"", b'{"half": ', b"\xff\xfe"])
def test_what_is_not_json_is_named(root, data):
    uri = storage.join(root, "value.json")
    storage.write_bytes(uri, data)
    with pytest.raises(ValueError, match=r"is not JSON \(.*\); delete this file$") as caught:
        storage.read_json(uri)
    assert uri in str(caught.value)


@pytest.mark.parametrize("table", [TABLE, TABLE.slice(0, 0), pa.concat_tables([TABLE, TABLE])])
def test_tables_come_back_with_their_schema(root, table):
    table = table.replace_schema_metadata({"passages": "3"})
    uri = storage.join(root, "folder", "table.arrow")
    storage.write_table(uri, table)
    found = storage.read_table(uri)
    assert found.equals(table)
    assert found.schema.equals(table.schema, check_metadata=True)


def test_parquet_is_read_by_pyarrow(root):
    uri = storage.join(root, "table.parquet")
    storage.write_parquet(uri, TABLE)
    assert pq.read_table(pa.BufferReader(storage.read_bytes(uri))).equals(TABLE)


def test_a_local_table_is_mapped_and_not_copied(tmp_path):
    uri = str(tmp_path / "table.arrow")
    storage.write_table(uri, pa.table({"id": range(1_000_000)}))
    before = pa.total_allocated_bytes()
    table = storage.read_table(uri)
    assert pa.total_allocated_bytes() - before < 100_000
    assert table["id"][-1].as_py() == 999_999


def test_lines_keep_their_ends_and_lose_the_byte_order_mark(root):
    uri = storage.join(root, "lines.txt")
    storage.write_bytes(uri, "\ufeffone\ntwo\u2028three\n\nfour".encode())
    assert list(storage.read_lines(uri)) == ["one\n", "two\u2028three\n", "\n", "four"]


def test_join_keeps_the_query_and_adds_single_slashes():
    assert storage.join("s3://bucket/a/?region=x", "b", "c.txt") == "s3://bucket/a/b/c.txt?region=x"
    assert storage.join("s3://bucket", "b") == "s3://bucket/b"
    assert storage.join("hf://datasets/a/b@main", "c") == "hf://datasets/a/b@main/c"
    assert storage.join("/a/b/", "c", "d") == "/a/b/c/d"
    assert storage.join("a", "b") == os.path.join("a", "b")


def test_local_locations_are_told_from_remote_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.absolute("a/../b") == storage.absolute("~/b") == str(tmp_path / "b")
    assert storage.absolute((tmp_path / "b").as_uri()) == str(tmp_path / "b")
    assert storage.is_local("b") and storage.is_local(str(tmp_path)) and storage.is_local(tmp_path.as_uri())
    remote = "s3://key:secret@bucket/b?region=us-east-1&scheme=http&endpoint_override=127.0.0.1%3A9"
    assert not storage.is_local(remote)
    assert storage.absolute(remote) == remote


def test_a_query_string_is_part_of_uris_only():
    assert storage.without_query("s3://bucket/a?region=x") == "s3://bucket/a"
    assert storage.without_query("/data/why?.txt") == "/data/why?.txt"


def test_delete_removes_files_and_folders_and_nothing_else(root):
    fill(root, "a/1", "a/b/2", "ab/3")
    storage.delete(storage.join(root, "a", "1"))
    assert names(root, list_files(root)) == ["a/b/2", "ab/3"]
    storage.delete(storage.join(root, "a"))
    assert names(root, list_files(root)) == ["ab/3"]
    storage.delete(storage.join(root, "never there"))


def test_a_folder_filled_locally_arrives_whole(root):
    uri = storage.join(root, "model")
    with storage.folder_for_writing(uri) as folder:
        (folder / "deep").mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "deep" / "weights").write_bytes(b"\x00" * 100)
    assert not folder.exists()
    assert names(uri, list_files(uri)) == ["SHA256SUMS", "config.json", "deep/weights"]
    with storage.folder_for_reading(uri) as copy:
        assert (copy / "config.json").read_text() == "{}"
        assert (copy / "deep" / "weights").stat().st_size == 100


def test_a_folder_whose_filling_fails_does_not_arrive(root):
    uri = storage.join(root, "model")
    with pytest.raises(KeyError), storage.folder_for_writing(uri) as folder:
        (folder / "half").write_text("x")
        raise KeyError
    assert not storage.exists(uri)


def test_a_folder_copied_onto_itself_or_over_another_is_whole_at_any_time(tmp_path, monkeypatch):
    with storage.folder_for_writing(str(tmp_path / "model")) as folder:
        (folder / "weights").write_bytes(b"new " * 1000)
    before = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    storage.copy_folder(str(tmp_path / "model"), str(tmp_path / "model"))
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "weights").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        storage.copy_folder(str(tmp_path / "model"), str(tmp_path / "other"))
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "other").iterdir()] == [("weights", b"old")]


def test_a_local_folder_is_read_where_it_lies_and_stays(tmp_path):
    fill(tmp_path, "a.txt")
    with storage.folder_for_reading(str(tmp_path)) as folder:
        assert folder == tmp_path
    assert (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_writer_that_raises_leaves_nothing(root, error):
    uri = storage.join(root, "file")
    with pytest.raises(error), storage.open_output(uri) as stream:
        stream.write(b"half")
        raise error
    assert list_files(root, missing_ok=True) == []


@pytest.mark.parametrize("size", [4, 12 << 20])  # a store takes the larger one in parts
def test_a_writer_that_raises_leaves_what_was_there(root, size):
    uri = storage.join(root, "file")
    storage.write_bytes(uri, b"old")
    with pytest.raises(KeyError), storage.open_output(uri) as stream:
        stream.write(b"n" * size)
        raise KeyError
    assert storage.read_bytes(uri) == b"old"
    storage.write_bytes(uri, b"n" * size)
    assert storage.read_bytes(uri) == b"n" * size


def test_a_store_has_one_client_whatever_is_opened_in_it(s3_query):
    first, path = storage.open_filesystem(f"s3://key:secret@one/a/b%20c/{s3_query}")
    again, other = storage.open_filesystem(f"s3://key:secret@one/d{s3_query}")
    assert first is again and (path, other) == ("one/a/b c", "one/d")
    assert storage.open_filesystem(f"s3://key:other@one/d{s3_query}")[0] is not first, "other credentials"


def test_a_local_file_is_old_or_new_but_never_between(tmp_path):
    uri = str(tmp_path / "file")
    storage.write_bytes(uri, b"old")
    with storage.open_output(uri) as stream:
        stream.write(b"new")
        stream.flush()
        assert storage.read_bytes(uri) == b"old"
    assert storage.read_bytes(uri) == b"new"
    with pytest.raises(KeyError), storage.open_output(uri) as stream:
        raise KeyError
    assert storage.read_bytes(uri) == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("uri", ["ftp://host/file", "wibble:///x", "https://host/corpus.txt"])
def test_an_unknown_scheme_says_which_are_known(uri):
    with pytest.raises(ValueError, match="use a local path, s3://, gs:// or hf://") as caught:
        storage.open_filesystem(uri)
    assert uri in str(caught.value)


def test_a_file_that_is_not_there_is_an_os_error(root):
    for read in (storage.read_bytes, storage.read_json, storage.read_table, storage.digest):
        with pytest.raises(FileNotFoundError):
            read(storage.join(root, "nothing.json"))


def test_a_folder_of_the_hub_is_copied_for_reading(hub):
    (hub / "data").mkdir()
    (hub / "data" / "config.json").write_text("{}")
    with storage.folder_for_reading("hf://datasets/data") as copy:
        assert copy != hub / "data"
        assert [path.relative_to(copy) for path in copy.rglob("*")] == [Path("config.json")]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_the_file(tmp_path, code):
    told = pytest.raises(OSError, match=r"no space left on the device; free some.*'.*made\.bin'")
    with told as raised, storage.open_output(str(tmp_path / "made.bin")):
        raise OSError(code, "what the system says")
    assert raised.value.errno == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"ARROW1 and no more", b"something else"])
def test_a_file_that_is_no_table_is_named(tmp_path, content):
    (tmp_path / "table.arrow").write_bytes(content)
    with pytest.raises(ValueError, match=r"file '.*table\.arrow' is corrupt .*; delete its folder"):
        storage.read_table(str(tmp_path / "table.arrow"))


PIECES = [pa.table({"id": [1, 2]}), pa.table({"id": pa.array([], pa.int64())}), pa.table({"id": range(3000)})]


@pytest.mark.parametrize("tail", [48, 1 << 16])
def test_each_piece_of_a_file_is_read_alone(root, monkeypatch, tail):
    monkeypatch.setattr(pieces, "TAIL_BYTES", tail)  # 48: the list of ends is longer than what is read at once
    uri = storage.join(root, "a.pieces")
    storage.write_pieces(uri, (piece for piece in PIECES))
    for number in (2, 0, 1):
        assert storage.read_piece(uri, number).equals(PIECES[number])
    with pytest.raises(IndexError):
        storage.read_piece(uri, 3)


def test_a_flipped_bit_of_a_piece_or_of_the_list_of_pieces_is_named(tmp_path):
    uri = tmp_path / "a.pieces"
    storage.write_pieces(str(uri), PIECES)
    whole = uri.read_bytes()
    anywhere, bits = np.random.default_rng(0).integers(8 * len(whole), size=200), 8 * len(whole)
    for place in (*anywhere, *range(bits - 8 * 64, bits)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        uri.write_bytes(flipped)
        named = 0
        for number, piece in enumerate(PIECES):
            try:
                assert storage.read_piece(str(uri), number).equals(piece), f"bit {place} was believed"
            except ValueError as error:
                assert "a.pieces" in str(error)
                named += 1
        assert named, f"bit {place} was not seen"
    for size in (0, 3, 8, len(whole) - 8):
        uri.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"a\.pieces' is corrupt"):
            storage.read_piece(str(uri), 0)


LISTS = pa.schema({"tokens": pa.large_list(pa.int32()), "rank": pa.int32()})


def test_tables_are_joined_to_the_file_that_their_rows_make_at_once(root):
    rows = [{"tokens": list(range(i % 5)), "rank": i} for i in range(50)]
    whole = pa.Table.from_pylist(rows, LISTS)
    storage.write_table(storage.join(root, "whole.arrow"), whole)
    expected = storage.read_bytes(storage.join(root, "whole.arrow"))
    parts = [whole[:7], whole[7:7], pa.concat_tables([whole[7:20], whole[20:21]]), whole[21:]]
    storage.write_joined(storage.join(root, "joined.arrow"), LISTS, iter(parts))
    assert storage.read_bytes(storage.join(root, "joined.arrow")) == expected


def test_no_table_joined_is_an_empty_one(tmp_path):
    storage.write_joined(str(tmp_path / "a.arrow"), LISTS, [])
    assert storage.read_table(str(tmp_path / "a.arrow")).equals(LISTS.empty_table())


ROTATED = [
    ("s3://KEY:p@ss@bucket/a b/c?region=eu", "s3://NEW:other@bucket/a b/c?region=eu", "s3://bucket/a b/c?region=eu"),
    ("s3://bucket/a?secret_key=x&region=eu", "s3://bucket/a?secret_key=y&region=eu", "s3://bucket/a?region=eu"),
    ("abfs://me:pass@host/a?Sig=x", "abfs://me:more@host/a?Sig=y", "abfs://host/a"),
]


@pytest.mark.parametrize(("uri", "later", "written"), ROTATED)
def test_a_location_is_written_without_its_credentials(uri, later, written):
    assert storage.without_credentials(uri) == storage.without_credentials(later) == written
    assert storage.without_credentials(written) == written


@pytest.mark.parametrize("uri", ["/data/me@home/why?token=1", "a:b@c", "hf://datasets/a/b@main/c", "file:///a%20b/c#d"])
def test_a_location_that_has_no_credentials_is_written_as_it_is(uri):
    assert storage.without_credentials(uri) == uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--tracking-uri postgresql://u:pa/ss@h/db --seed 3", "--tracking-uri postgresql://***@h/db --seed 3"),
        ("'postgresql://u:p@s/s@h/db', me@home", "'postgresql://***@h/db', me@home"),
        ("""'s3://KEY:a'"'"'b/c@bucket/d'""", "'s3://***@bucket/d'"),
        ("http://h:5000,s3://KEY:a/b@bucket", "http://h:5000,s3://***@bucket"),
        ("http://h:5000/a b@c", "http://h:5000/a b@c"),
        ("hf://datasets/a/b:c@main", "hf://datasets/a/b:c@main"),
    ],
)
def test_a_text_is_shown_without_passwords_whatever_they_hold(text, expected):
    assert storage.shown(text) == expected


@pytest.mark.parametrize("uri", ["s3://KEY:secr/et@bucket/a", "gs://KEY:secr/et@bucket", "wibble://KEY:secr/et@host"])
def test_a_location_that_cannot_be_opened_is_named_without_its_password(uri):
    with pytest.raises(ValueError, match=r"location '\w+://\*\*\*@.* (write it as %2F|use a local path)") as caught:
        storage.open_filesystem(uri)
    assert "secr" not in str(caught.value)


def test_a_password_may_hold_the_sign_that_ends_it(s3_query):
    root = f"s3://key:p@ss@at-sign/a{s3_query}"
    assert storage.sibling(root, "at-sign/a/b") == f"s3://key:p@ss@at-sign/a/b{s3_query}"
    storage.open_filesystem(root)[0].create_dir("at-sign")
    storage.write_bytes(storage.join(root, "b", "c.txt"), b"text")
    (file,) = list_files(root)
    assert file.uri.startswith("s3://key:p@ss@at-sign/") and storage.read_bytes(file.uri) == b"text"
