"""Readers of raw text: every format gives the rows that the standard library and pyarrow wrote."""

import bz2
import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.corpus.general import documents
from tlm_ray.corpus.general.documents import BATCH_ROWS, as_strings, file_format, read_columns

ROWS = [
    {"text": "plain", "label": "a"},
    {"text": 'a "quoted", comma', "label": "b"},
    {"text": "two\nlines\n\nand a gap", "label": "a"},
    {"text": "tab\tinside", "label": "c"},
    {"text": "Ünï 三つ 😀 e\u0301", "label": "ä"},
    {"text": "NA", "label": "null"},
    {"text": "", "label": "#N/A"},
    {"text": "  spaces  ", "label": "007"},
]


def as_parquet(rows, schema=None, **options):
    return as_parquet_table(pa.Table.from_pylist(rows, schema), **options)


def as_parquet_table(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def as_jsonl(rows, **options):
    return "".join(json.dumps(row, **options) + "\n" for row in rows).encode()


def as_csv(rows, **options):
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, list(rows[0]), **options)
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode()


TWICE = as_parquet_table(pa.table([["a"], ["1"], ["b"]], ["text", "label", "text"]))
NO_ROWS = as_parquet([], pa.schema({"text": pa.string()}))
FILES = {
    "rows.parquet": as_parquet(ROWS),
    "groups.PARQUET": as_parquet(ROWS, row_group_size=3, compression="zstd"),
    "categories.parquet": as_parquet(ROWS, use_dictionary=True),
    "rows.jsonl": as_jsonl(ROWS),
    "real.ndjson": as_jsonl(ROWS, ensure_ascii=False).replace(b"\n", b"\r\n"),
    "gaps.json": as_jsonl(ROWS).replace(b"\n", b"\n\n").rstrip(),
    "marked.jsonl": "\ufeff".encode() + as_jsonl(ROWS),
    "rows.jsonl.gz": gzip.compress(as_jsonl(ROWS)),
    "rows.jsonl.bz2": bz2.compress(as_jsonl(ROWS)),
    "rows.jsonl.zst": pa.Codec("zstd").compress(as_jsonl(ROWS), asbytes=True),
    "rows.csv": as_csv(ROWS),
    "unix.csv": as_csv(ROWS, lineterminator="\n"),
    "all.csv": as_csv(ROWS, quoting=csv.QUOTE_ALL),
    "marked.csv": "\ufeff".encode() + as_csv(ROWS),
    "rows.csv.gz": gzip.compress(as_csv(ROWS)),
    "rows.tsv": as_csv(ROWS, delimiter="\t"),
    "rows.tsv.gz": gzip.compress(as_csv(ROWS, delimiter="\t")),
}


def write(folder, name, data):
    (folder / name).write_bytes(data)
    return str(folder / name)


def read(uri, columns=None):
    return [row for batch in read_columns(uri, columns) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(tmp_path, name):
    uri = write(tmp_path, name, FILES[name])
    assert read(uri) == ROWS
    assert read(uri, ["label"]) == [{"label": row["label"]} for row in ROWS]
    assert [list(row) for row in read(uri, ["label", "text"])] == [["label", "text"]] * len(ROWS)


@pytest.mark.parametrize("write_rows", [as_parquet, as_jsonl, as_csv])
def test_more_rows_than_a_batch_keep_their_order(tmp_path, write_rows):
    rows = [{"text": f"row {i}"} for i in range(2 * BATCH_ROWS + 3)]
    name = f"rows.{write_rows.__name__.removeprefix('as_')}"
    assert read(write(tmp_path, name, write_rows(rows)), ["text"]) == rows


@pytest.mark.parametrize(("most", "sizes"), [(1, [3, 1, 1]), (100, [5, 2, 4]), (10**9, [40])])
def test_long_lines_make_small_batches_of_the_same_rows(tmp_path, monkeypatch, most, sizes):
    monkeypatch.setattr(documents, "BATCH_CHARACTERS", most)
    rows = [{"text": f"book {i} " * (i % 9)} if i not in (0, 1, 7) else {"label": i} for i in range(40)]
    uri = write(tmp_path, "books.jsonl.gz", gzip.compress(as_jsonl(rows)))
    batches = list(read_columns(uri, ["text"]))
    assert [row["text"] for batch in batches for row in batch.to_pylist()] == [row.get("text") for row in rows]
    assert [len(batch) for batch in batches][:3] == sizes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8))
def test_any_text_survives_csv_and_jsonl(tmp_path_factory, texts):
    rows = [{"text": text, "label": "x"} for text in texts]
    folder = tmp_path_factory.mktemp("texts")
    assert read(write(folder, "a.csv", as_csv(rows))) == rows
    assert read(write(folder, "a.jsonl", as_jsonl(rows))) == rows


@pytest.mark.parametrize("name", ["plain.txt", "page.md", "plain.txt.gz"])
def test_plain_text_is_cut_at_blank_lines(tmp_path, name):
    data = "\ufeff\n\none\ntwo\n \t\n\nthree ü\n\n\nfour".encode()
    uri = write(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)
    assert [row["text"].strip() for row in read(uri, ["text"])] == ["one\ntwo", "three ü", "four"]


def test_plain_text_longer_than_a_batch_is_whole(tmp_path):
    texts = [f"document {i}" for i in range(BATCH_ROWS * 2 + 1)]
    uri = write(tmp_path, "many.txt", "\n\n".join(texts).encode())
    assert [row["text"].strip() for row in read(uri)] == texts


@pytest.mark.parametrize("write_rows", [as_parquet, as_jsonl, as_csv])
def test_a_text_of_four_megabytes_is_read_whole(tmp_path, write_rows):
    rows = [{"text": "short", "label": "a"}, {"text": 'a "word", and\n' * 300_000, "label": "b"}] * 2
    name = f"long.{write_rows.__name__.removeprefix('as_')}"
    assert read(write(tmp_path, name, write_rows(rows))) == rows


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.txt", "blank.txt", "header.csv", "rows.parquet"])
def test_a_file_without_rows_yields_none(tmp_path, name):
    data = {"blank.txt": b"\n \n\n", "header.csv": b"text,label\n", "rows.parquet": NO_ROWS}
    assert read(write(tmp_path, name, data.get(name, b""))) == []


def test_a_missing_column_of_a_parquet_file_without_rows_is_found(tmp_path):
    with pytest.raises(ValueError, match="has no column 'body'; its columns are text"):
        read(write(tmp_path, "none.parquet", NO_ROWS), ["body"])


@pytest.mark.parametrize("name", FILES)
def test_a_missing_column_is_named_with_those_that_are_there(tmp_path, name):
    uri = write(tmp_path, name, FILES[name])
    with pytest.raises(
        ValueError, match="has no column 'body'; its columns are text, label; choose one of them"
    ) as caught:
        read(uri, ["text", "body"])
    assert uri in str(caught.value)


def record(kind: str, body: bytes, content: str = "text/plain", url: str = "http://sea.example/tide") -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:0>\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body + b"\r\n\r\n"


def page(body: bytes, content: str, status: str = "200 OK", **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    http = f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\n{more}\r\n".encode() + body
    return record("response", http, "application/http; msgtype=response")


BODY = "<nav><a href='/'>Menu</a></nav><p>The tide höher.</p>"
HTML = f"<html><head><title>T</title><script>var a</script></head><body>{BODY}</body>"
RECORDS = [
    record("warcinfo", b"software: a crawler", "application/warc-fields"),
    record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"),
    record("conversion", "Tide höher\nby noon".encode()),
    page(HTML.encode("latin-1"), "text/html; charset=iso-8859-1"),
    page(HTML.encode(), "text/html"),
    page(b"\x89PNG", "image/png"),
    page(b"plain words", "text/plain"),
    page(HTML.encode(), "text/html", "404 Not Found"),
    page(HTML.encode(), "text/html", "301 Moved Permanently"),
    record("response", b"tide.example. 300 IN A 10.0.0.1", "text/plain", "dns:tide.example"),
]
PAGES = ["Tide höher\nby noon", "The tide höher.", "The tide höher.", "plain words"]


DEEP = b"[" * 200_000 + b"]" * 200_000
BAD = {
    "half.jsonl": (b'{"text": "a"}\n\n{"text":\n', "line 3: not JSON"),
    "list.jsonl": (b'{"text": "a"}\n["b"]\n', "line 2: .* is not an object"),
    "latin.jsonl": ('{"text": "é"}\n'.encode("latin-1"), "cannot be read"),
    "surrogate.jsonl": (b'{"text": "\\ud800"}\n', "column 'text'"),
    "mixed.jsonl": (b'{"text": "a"}\n{"text": 1}\n', "column 'text'"),
    "wide.csv": (b"text,label\na,1\nb,2,3\n", "row 2: Expected 2 columns, got 3.*quote values"),
    "undefined.csv": (b"text\na\n\xe9 \x81\n", "cannot be read"),
    "empty.csv": (b"", "Empty CSV"),
    "no.csv.gz": (b"text\na\n", "cannot be read"),
    "cut.jsonl.gz": (FILES["rows.jsonl.gz"][:-20], "cannot be read"),
    "cut.parquet": (FILES["rows.parquet"][:-20], "cannot be read"),
    "torn.parquet": (FILES["rows.parquet"][:4] + b"\x00" * 60 + FILES["rows.parquet"][64:], "cannot be read"),
    "rows.docx": (b"PK", "its extension is none of .parquet, .jsonl"),
    "README": (b"text", "its extension is none of"),
    "deep.jsonl": (b'{"text": "a"}\n{"text": ' + DEEP + b"}\n", "line 2: not JSON .*recursion"),
    "unasked.jsonl": (b'{"text": "a", "meta": ' + DEEP + b"}\n", "line 1: not JSON .*recursion"),
    "digits.jsonl": (b'{"text": ' + b"9" * 6000 + b"}\n", "line 1: not JSON .*digits"),
    "wide.jsonl": (b'{"text": ' + b"9" * 30 + b"}\n", "column 'text'"),
    "twice.csv": (b"text,label,text\na,1,b\n", "has 2 columns named 'text'; rename one"),
    "twice.parquet": (TWICE, "has 2 columns named 'text'; rename one"),
    "none.warc.gz": (gzip.compress(b"no crawl at all\n"), "record 1: is not a WARC record"),
    "cut.wet": (RECORDS[2][:-12], "record 1: is not a WARC record .it has 11 bytes instead of 19"),
    "flipped.warc.gz": (gzip.compress(RECORDS[2]) + b"\x1f\x8bx" + gzip.compress(RECORDS[3])[3:], "record 2"),
}


@pytest.mark.parametrize("name", ["twice.csv", "twice.parquet"])
def test_of_two_columns_of_a_name_the_others_can_be_read(tmp_path, name):
    uri = write(tmp_path, name, BAD[name][0])
    assert read(uri, ["label"]) == [{"label": "1"}]
    with pytest.raises(ValueError, match="has 2 columns named 'text'; rename one"):
        read(uri)


def test_bytes_of_a_parquet_text_that_are_no_utf8_are_named(tmp_path):
    lies = pa.array([b"fine", None, b"bad \xff byte"]).view(pa.string())
    pq.write_table(pa.table({"text": lies, "label": ["x", "y", "z"]}), tmp_path / "a.parquet")
    (batch,) = read_columns(str(tmp_path / "a.parquet"), ["text"])
    for values in (batch.column(0), pa.chunked_array([batch.column(0)] * 2), batch.column(0).dictionary_encode()):
        with pytest.raises(
            ValueError, match=r"file 'a\.parquet', column 'text': b'bad \\xff byte' is not UTF-8"
        ) as raised:
            as_strings(values, "text", "a.parquet")
        assert not isinstance(raised.value, UnicodeError)


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_named(tmp_path, name):
    data, message = BAD[name]
    uri = write(tmp_path, name, data)
    with pytest.raises(ValueError, match=message) as caught:
        read(uri, ["text"])
    assert repr(uri) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.jsonl.*cannot be read"):
        read(str(tmp_path / "nothing.jsonl"))


@pytest.mark.parametrize("write_rows", [as_parquet, as_jsonl])
def test_columns_that_nobody_asked_for_do_not_matter(tmp_path, write_rows):
    rows = [{"meta": {"id": 1}, "text": "a"}, {"meta": None, "text": "b"}]
    if write_rows is as_jsonl:
        rows += [{"text": "c", "meta": "of another type"}]
    uri = write(tmp_path, f"meta.{write_rows.__name__.removeprefix('as_')}", write_rows(rows))
    assert read(uri, ["text"]) == [{"text": row["text"]} for row in rows]


def test_a_row_without_the_column_is_null(tmp_path):
    uri = write(tmp_path, "gaps.jsonl", as_jsonl([{"text": "a"}, {"label": 1}, {"text": None}]))
    assert read(uri, ["text"]) == [{"text": "a"}, {"text": None}, {"text": None}]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([3, None]), ["3", None]),
        (pa.array([0.0, 1.0]), ["0", "1"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array(["ü"], pa.large_string()), ["ü"]),
        (pa.array(["ü".encode()]), ["ü"]),
    ],
)
def test_text_and_numbers_become_strings(values, expected):
    assert as_strings(values, "text", "file").to_pylist() == expected
    assert as_strings(pa.chunked_array([values]), "text", "file").to_pylist() == expected


@pytest.mark.parametrize("values", [pa.array([["a"]]), pa.array([{"a": 1}]), pa.array([b"\xff"])])
def test_a_column_that_is_no_text_is_named(values):
    with pytest.raises(ValueError, match=r"file 'a\.parquet', column 'body'"):
        as_strings(values, "body", "a.parquet")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/a.csv?endpoint_override=x.txt", "csv"),
        ("/data/is it?/a.JSONL.GZ", "jsonl"),
        ("hf://datasets/a/b/c.parquet", "parquet"),
        ("a.b.md", "text"),
    ],
)
def test_the_format_is_the_files_ending(uri, expected):
    assert file_format(uri) == expected
    assert set(documents.FORMATS.values()) == {"parquet", "jsonl", "csv", "text", "warc"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text/plain; charset=iso-8859-1", "café “x”"),
        ('Text/Plain;Charset="ISO-8859-1"; format=flowed', "café “x”"),
        ("text/plain; charset=koi8-r", "cafИ ⌠x■"),
        ("text/plain; charset=utf-8", "caf\ufffd \ufffdx\ufffd"),
        ("text/plain; charset=nonsense", "caf\ufffd \ufffdx\ufffd"),
        ("text/plain", "caf\ufffd \ufffdx\ufffd"),
    ],
)
def test_plain_text_of_a_crawl_is_decoded_by_its_charset(tmp_path, content, expected):
    uri = write(tmp_path, "a.warc", page(b"caf\xe9 \x93x\x94", content))
    assert read(uri, ["text"]) == [{"text": expected}]


def test_extracted_text_of_a_crawl_is_utf8(tmp_path):
    uri = write(tmp_path, "a.wet", record("conversion", "höher".encode(), "text/plain; charset=iso-8859-1"))
    assert read(uri, ["text"]) == [{"text": "höher"}]


@pytest.mark.parametrize(("name", "codec"), [("br", "brotli"), ("zstd", "zstd"), ("gzip", "gzip")])
def test_a_compressed_page_is_decoded_and_an_invalid_one_stops_no_corpus(tmp_path, name, codec):
    packed = pa.compress(HTML.encode(), codec=codec, asbytes=True)
    chunked = f"{len(packed):x}\r\n".encode() + packed + b"\r\n0\r\n\r\n"
    pages = [
        page(packed, "text/html", Content_Encoding=name),
        page(chunked, "text/html", Content_Encoding=name, Transfer_Encoding="chunked"),
        page(HTML.encode(), "text/html", Content_Encoding=name),  # a crawler may decode pages and keep the header
        page(packed[:-9], "text/html", Content_Encoding=name) if name != "gzip" else b"",
        page(b"plain words", "text/plain"),
    ]
    found = [row["text"] for row in read(write(tmp_path, "a.warc", b"".join(pages)), ["text"])]
    assert found == ["The tide höher."] * 3 + ["plain words"]


@pytest.mark.parametrize("share", [0.25, 0.55, 0.77, 0.98])
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_a_truncated_crawl_is_named_with_the_record(tmp_path, name, share):
    pages = [page(f"<p>{'Tides rise and fall. ' * 40}{i}</p>".encode(), "text/html") for i in range(10)]
    data = b"".join(map(gzip.compress, pages) if name.endswith(".gz") else pages)
    uri = write(tmp_path, name, data[: int(share * len(data))])
    with pytest.raises(
        ValueError, match=rf"{name}', record {int(share * 10) + 1}: .*(instead of|the file ends within it)"
    ):
        read(uri, ["text"])
    assert len(read(write(tmp_path, name, data), ["text"])) == 10


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.wet.gz", "a.wet"])
def test_pages_of_a_crawl_are_their_text(tmp_path, name):
    data = b"".join(map(gzip.compress, RECORDS)) if name.endswith(".gz") else b"".join(RECORDS)
    uri = write(tmp_path, name, data)
    assert [row["text"] for row in read(uri, ["text"])] == PAGES
    assert {row["url"] for row in read(uri)} == {"http://sea.example/tide"}
