"""Read crawled pages from WARC files and Common Crawl's WET files, which hold extracted text."""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from tlm_ray import storage
from tlm_ray.corpus.general.dialects import is_utf8

CODECS = {"br": "brotli", "zstd": "zstd"}  # Arrow's names; warcio decodes gzip and deflate alone
BLOCK_BYTES = 1 << 20  # read at once of what is no text
WET = re.compile(r"\.wet(\.\w+)?$", re.IGNORECASE)


def read_pages(uri: str) -> Iterator[dict[str, str]]:
    """Yield text and url of each page of a WARC or WET file, compressed or not, in order.

    For HTML this is the main content, extracted by resiliparse (Bevendorff et al. 2018). Types other than HTML and
    plain text are skipped, and so are pages of another status than 200 or with invalid compressed bytes. ValueError
    names an invalid file or a truncated record.
    """
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    filesystem, path = storage.open_filesystem(uri)
    number = 0
    with filesystem.open_input_stream(path, compression=None) as stream:
        try:
            records = ArchiveIterator(stream)
            unpacked, records.reader.close_decompressor = records.reader, lambda: None  # else its end is unknown
            for record in records:
                number += 1
                text = _text_of(record) if _is_page(record) else None
                _check_whole(record)
                if text is not None:
                    yield {"text": text, "url": record.rec_headers.get_header("WARC-Target-URI") or ""}
            # a header line that began no record, or the only one; a compressed record without its end
            is_cut = records.next_line or (unpacked.num_read and not number)
            if is_cut or (unpacked.decompressor and not unpacked.decompressor.eof):
                number += 1
                raise EOFError("the file ends within it")
        except (ArchiveLoadFailed, EOFError, AttributeError) as error:  # the last of a header without an address
            why = str(error).encode("ascii", "replace").decode()[:200]
            number += not isinstance(error, EOFError)  # the next record has no header, or this one is truncated
            raise ValueError(
                f"file {uri!r}, record {number}: is not a WARC record ({why}); download the file again, or remove it"
            ) from error


def reader_version(uris: Iterable[str]) -> dict[str, str]:
    """Return what decides the text of crawled pages beside their files.

    This is the version of the library that extracts text from HTML. Unless all files are WET, which are UTF-8, it is
    also which pages are read and how they are decoded. Earlier versions took error pages and Zstandard for text, and
    ignored the charset of plain text.
    """
    extracted = all(WET.search(storage.without_query(uri)) for uri in uris)
    decoded = {"plain_text": "declared charset", "compressed": "br, zstd", "status": "200"}
    return {"resiliparse": version("resiliparse")} | ({} if extracted else decoded)


def _is_page(record: Any) -> bool:
    """Return whether a record has a page that its server had, or the text of one."""
    found = record.rec_type == "response" and record.http_headers and record.http_headers.get_statuscode() == "200"
    return bool(found) or record.rec_type == "conversion"


def _check_whole(record: Any) -> None:
    """Raise EOFError if the file ends within a record, of which warcio says nothing."""
    if record.length is None:
        raise EOFError("it has no Content-Length")
    while record.raw_stream.read(BLOCK_BYTES):
        pass
    if missing := record.raw_stream.limit:
        raise EOFError(f"it has {record.length - missing:,} bytes instead of {record.length:,}")


def _text_of(record: Any) -> str | None:
    """Return a page's text; None if it is neither HTML nor plain text, or cannot be decompressed."""
    body, headers = _body_of(record), record.http_headers or record.rec_headers
    if body is None:
        return None
    kind, _, options = (headers.get_header("Content-Type") or "").lower().partition(";")
    if kind.strip() == "text/plain":
        return _decoded(body, "" if record.rec_type == "conversion" else options)
    return _main_content(body, options) if kind.strip() in ("text/html", "application/xhtml+xml") else None


def _body_of(record: Any) -> bytes | None:
    """Return the decompressed bytes of a page; None if they are invalid. A crawler may have left plain ones."""
    from warcio.bufferedreaders import ChunkedDataReader

    headers = record.http_headers
    codec = CODECS.get((headers.get_header("Content-Encoding") or "").strip().lower()) if headers else None
    if codec is None:
        return record.content_stream().read()
    is_chunked = headers.get_header("Transfer-Encoding") == "chunked"
    body = (ChunkedDataReader(record.raw_stream) if is_chunked else record.raw_stream).read()
    try:
        return pa.CompressedInputStream(pa.BufferReader(body), codec).read()
    except OSError:
        return body if is_utf8(body) else None


def _decoded(text: bytes, options: str) -> str:
    """Return plain text by its declared charset, as browsers know it; without a known one it is UTF-8."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    said = options.partition("charset=")[2].partition(";")[0].strip("\"' ")
    return text.decode(map_encoding_to_html5(said) or "utf-8", errors="replace")


def _main_content(page: bytes, options: str) -> str:
    """Return the text of an HTML page without menus and other boilerplate; options: those of its content type."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding
    from resiliparse.parse.html import HTMLTree

    said = options.partition("charset=")[2].strip("\"' ")
    encoding = said or ("utf-8" if is_utf8(page) else detect_encoding(page) or "cp1252")
    return extract_plain_text(HTMLTree.parse_from_bytes(page, encoding), main_content=True)
