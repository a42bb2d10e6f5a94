"""Crawled pages: the records of WARC files, and of Common Crawl's WET files, which hold the text of pages alone."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.dialects import is_utf8

KINDS = ("response", "conversion")  # of records that hold a page, or its text


def read_pages(uri: str) -> Iterator[dict[str, str]]:
    """Yield text and url of each page of a WARC or WET file, packed or not, in order.

    Of a page in HTML its main content, as resiliparse finds it (Bevendorff et al. 2018); other kinds than HTML and
    plain text are left out. ValueError names a file that is none, or a record that is cut.
    """
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    filesystem, path = storage.open_filesystem(uri)
    number = 0
    with filesystem.open_input_stream(path, compression=None) as stream:
        try:
            for record in ArchiveIterator(stream):
                number += 1
                if record.rec_type in KINDS and (text := _text_of(record)) is not None:
                    yield {"text": text, "url": record.rec_headers.get_header("WARC-Target-URI") or ""}
        except (ArchiveLoadFailed, EOFError) as error:
            why = str(error).encode("ascii", "replace").decode()[:200]
            number += not isinstance(error, EOFError)  # the next one has no head, or this one is cut
            raise ValueError(
                f"file {uri!r}, record {number}: is none of a WARC file ({why}); fetch it anew, or take it away"
            ) from error


def reader_version() -> dict[str, str]:
    """Return what decides which text a page in HTML has."""
    return {"resiliparse": version("resiliparse")}


def _text_of(record: Any) -> str | None:
    """Return a page's text, None if it is neither HTML nor plain text."""
    body = record.content_stream().read()
    headers = record.http_headers or record.rec_headers
    kind, _, options = (headers.get_header("Content-Type") or "").lower().partition(";")
    if record.rec_type == "conversion" and len(body) != int(headers.get_header("Content-Length") or -1):
        raise EOFError(f"it has {len(body):,} bytes instead of {headers.get_header('Content-Length')}")
    if kind.strip() == "text/plain":
        return body.decode("utf-8", errors="replace")
    return _main_content(body, options) if kind.strip() in ("text/html", "application/xhtml+xml") else None


def _main_content(page: bytes, options: str) -> str:
    """Return the text of a page in HTML without its menus and the like; options: of its content type."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding
    from resiliparse.parse.html import HTMLTree

    said = options.partition("charset=")[2].strip("\"' ")
    encoding = said or ("utf-8" if is_utf8(page) else detect_encoding(page) or "cp1252")
    return extract_plain_text(HTMLTree.parse_from_bytes(page, encoding), main_content=True)
