"""Read crawled pages from WARC files and Common Crawl's WET files, which hold extracted text."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from tlm_ray import storage
from tlm_ray.corpus.general.dialects import is_utf8

KINDS = ("response", "conversion")  # types of records that hold a page or its text


def read_pages(uri: str) -> Iterator[dict[str, str]]:
    """Yield text and url of each page of a WARC or WET file, compressed or not, in order.

    For HTML this is the main content, extracted by resiliparse (Bevendorff et al. 2018). Types other than HTML and
    plain text are skipped. ValueError names an invalid file or a truncated record.
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
            number += not isinstance(error, EOFError)  # the next record has no header, or this one is truncated
            raise ValueError(
                f"file {uri!r}, record {number}: is not a WARC record ({why}); download the file again, or remove it"
            ) from error


def reader_version() -> dict[str, str]:
    """Return the version of the library that extracts text from HTML."""
    return {"resiliparse": version("resiliparse")}


def _text_of(record: Any) -> str | None:
    """Return a page's text; None if it is neither HTML nor plain text."""
    body = record.content_stream().read()
    headers = record.http_headers or record.rec_headers
    kind, _, options = (headers.get_header("Content-Type") or "").lower().partition(";")
    if record.rec_type == "conversion" and len(body) != int(headers.get_header("Content-Length") or -1):
        raise EOFError(f"it has {len(body):,} bytes instead of {headers.get_header('Content-Length')}")
    if kind.strip() == "text/plain":
        return body.decode("utf-8", errors="replace")
    return _main_content(body, options) if kind.strip() in ("text/html", "application/xhtml+xml") else None


def _main_content(page: bytes, options: str) -> str:
    """Return the text of an HTML page without menus and other boilerplate; options: those of its content type."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding
    from resiliparse.parse.html import HTMLTree

    said = options.partition("charset=")[2].strip("\"' ")
    encoding = said or ("utf-8" if is_utf8(page) else detect_encoding(page) or "cp1252")
    return extract_plain_text(HTMLTree.parse_from_bytes(page, encoding), main_content=True)
