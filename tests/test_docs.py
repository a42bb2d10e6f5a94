"""The site of `make docs`: built without a warning, whole, without a broken link, and able to do without a network."""

import os
import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from test_pages import PAGES, ROOT, name

import tlm_ray

pytestmark = pytest.mark.slow
SOURCES = {"src", "srcset", "poster", "data", "action", "style"}
# an address of another host, as an attribute or in a style sheet; names of XML namespaces are never fetched
ELSEWHERE = re.compile(r"(?:^|url\(|@import)\s*[\"']?(?:\w+:)?//")
# Material's script asks other hosts for diagrams and for the numbers of a repository, on pages that have these
ASKING = ('class="mermaid"', 'data-md-component="source"')


class Html(HTMLParser):
    """A page's anchors, the targets of its links, and the values that make a browser load something."""

    def __init__(self, text: str):
        super().__init__()
        self.text, self.anchors, self.links = text, {""}, set()
        self.loads = set(re.findall(r"<style[^>]*>(.*?)</style>", text, re.S))
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id":
                self.anchors.add(value)
            if key in SOURCES or (tag, key) == ("link", "href"):
                self.loads.add(value)
            if key in ("href", "src"):
                self.links.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, and its pages by their paths in it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, {path.relative_to(folder).as_posix(): Html(path.read_text()) for path in folder.rglob("*.html")}


def test_each_name_of_the_door_has_a_signature_and_a_docstring(site):
    _, *parts = re.split(r'<h2 id="tlm_ray\.(\w+)"', site[1]["reference/names.html"].text)
    entries = {key: entry.partition("<h3")[0] for key, entry in zip(parts[::2], parts[1::2], strict=True)}
    assert set(entries) == set(tlm_ray._DOOR)
    assert [key for key, entry in entries.items() if "doc-signature" not in entry] == []
    assert [key for key, entry in entries.items() if "<p>" not in entry] == []


def test_each_room_has_a_page_with_all_its_modules(site):
    modules = [path.relative_to(ROOT) for path in ROOT.glob("tlm_ray/*/**/*.py") if path.stat().st_size]
    assert len({path.parts[1] for path in modules}) >= 9
    for path in modules:
        anchor = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        assert anchor in site[1][f"reference/{path.parts[1]}.html"].anchors


def test_each_page_of_the_repository_is_linked_from_the_first(site):
    expected = {re.sub(r"README\.md$|\.md$", "", name(page)) for page in [*PAGES, ROOT / "RECORDS.md"]}
    linked = {re.sub(r"(?:\bindex)?\.html$", "", link) for link in site[1]["index.html"].links}
    assert len(expected) > 20 and expected - linked == set()


def test_links_lead_to_files_and_anchors_that_are_there(site):
    folder, pages = site
    for key, page in pages.items():
        for link in page.links:
            path, _, anchor = unquote(link).partition("#")
            if "://" in path:
                continue
            there = posixpath.normpath(posixpath.join("/", posixpath.dirname(key), path)) if path else f"/{key}"
            file = folder / there.lstrip("/")
            assert file.exists(), (key, link)
            assert not anchor or anchor in pages[there.lstrip("/")].anchors, (key, link)


def test_nothing_is_loaded_from_another_host(site):
    folder, pages = site
    sheets = {str(path): {path.read_text()} for path in folder.rglob("*.css")}
    assert len(sheets) >= 3
    loads = {key: page.loads for key, page in pages.items()} | sheets
    assert [(key, load) for key, values in loads.items() for load in values if ELSEWHERE.search(load)] == []
    assert [key for key, page in pages.items() if any(mark in page.text for mark in ASKING)] == []
