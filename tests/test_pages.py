"""README, docs and their like as a reader meets them: short sentences, links that lead somewhere, the field's words."""

import re
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
PAGES = [README, *DOCS, *sorted((ROOT / "cluster").glob("*.md")), *OTHERS]
MOST_WORDS, MEAN_WORDS = 25, 18
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
# words of a private dialect, with what the field says instead
DIALECT = {
    r"\b(?:made|makes|make|begun|begins|begin) anew\b": "recomputed, retried, a fresh run",
    r"\b(?:stage|stages|results?|trials?) (?:is|are|was|were) found\b": "reused",
    r"\b(?:is|are|was|were|been) told\b": "reported, printed",
    r"\bword of\b|'s? word\b": "prediction of",
    r"\btakes? note\b": "records",
    r"\bvoices?\b": "models, votes",
    r"\blets? go\b": "evicts",
    r"\bstrangers?\b": "untrusted input",
    r"\bdraws? nothing\b": "is deterministic",
    r"\bhas no chance\b": "a claim that fell",
    r"\bby hand of\b|\bbefell\b|\bsaid to run\b": "plain words",
    r"\b(?:tokens|passages|queries|seconds|minutes|hours|files|texts|steps) an? "
    r"(?:second|query|training|trial|task|text|core|file|step|worker|GPU)\b": "per",
    r"\bprice of an hour of\b": "price per hour",
    r"\bword(?:s)? decides?\b": "vocabulary decides",
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: str) -> list[str]:
    """Return the paragraphs and list items of a page, without code, tables, headings and the targets of links."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    lines = ["" if re.match(r"    |\||#", line) else line for line in page.splitlines()]
    lines = [re.sub(r"^(?:[-*]|\d+\.) ", "\n\n", line) for line in lines]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return [" ".join(LINK.sub(r"\1", paragraph).split()) for paragraph in paragraphs if paragraph.strip()]


def sentences(page: str) -> list[str]:
    """Split prose where a full stop, ! or ? is followed by a capital or a code word; what ends a paragraph ends one."""
    return [one for text in prose(page) for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"(])", text)]


def words(sentence: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in sentence.split())


def test_sentences_are_split_as_a_reader_would():
    page = """# A heading. With a stop.

One sentence of [a link](far/away.md) over
two lines. `code` begins another, by Yao et al., 2022! A third?

    code is. No sentence

| a table. | is none |
- an item without a stop
- Another item. **Bold** text.
```python
print("no. Sentence")
```
Values of 0.5 stay whole - always.
"""
    assert sentences(page) == [
        "One sentence of a link over two lines.",
        "`code` begins another, by Yao et al., 2022!",
        "A third?",
        "an item without a stop",
        "Another item.",
        "**Bold** text.",
        "Values of 0.5 stay whole - always.",
    ]
    assert [words(one) for one in sentences(page)] == [8, 8, 2, 5, 2, 2, 6]


def test_the_readme_is_short_and_answers_first():
    lines = README.read_text().splitlines()
    assert len(lines) <= 115
    first = "\n".join(lines[:40])
    assert "tlm_ray trains" in first and "It is for " in first, "what it is, and for whom"
    assert "make table" in first and "experiments/train.py" in first, "what to type"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_sentences_are_short(page):
    found = sentences(page.read_text())
    assert [one for one in found if words(one) > MOST_WORDS] == []
    assert mean(map(words, found)) < MEAN_WORDS


def test_every_page_of_docs_is_linked_from_the_readme():
    linked = {target for _, target in LINK.findall(README.read_text())}
    assert len(DOCS) >= 10
    assert {f"docs/{page.name}" for page in DOCS} - linked == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "RECORDS.md"], ids=name)
def test_links_lead_to_files_and_headings_that_are_there(page):
    for _, target in LINK.findall(page.read_text()):
        file, _, heading = target.partition("#")
        if "://" in target:
            continue
        there = page.parent / file if file else page
        assert there.exists(), target
        assert not heading or heading in headings(there.read_text()), target


def headings(page: str) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"\b(?:cluster|docs|experiments|benchmarks|tests|tlm_ray)/[\w./]*\w", page.read_text())
    assert [name for name in named if not ((ROOT / name).exists() or (ROOT / f"{name}.py").exists())] == []


def test_the_readme_names_no_commit_and_no_placeholder():
    found = re.findall(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b", README.read_text())
    assert found == []
    assert re.findall(r"\{\{.*?\}\}", README.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_use_the_words_of_the_field(page):
    text = " ".join(page.read_text().split())
    for message in messages():
        text = text.replace(message, "")
    said = {match.group(): instead for phrase, instead in DIALECT.items() for match in re.finditer(phrase, text)}
    assert said == {}


def messages() -> set[str]:
    """Return the events that the package logs."""
    calls = r"events\.(?:tell|warn|fail)\(\s*\"([^\"]+)\""
    return {message for file in ROOT.glob("tlm_ray/**/*.py") for message in re.findall(calls, file.read_text())}


def test_the_page_of_operations_lists_every_event():
    table = (ROOT / "docs" / "operations.md").read_text().partition("| message |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    listed = {re.sub(r", every .*", "", cell).strip() for row in cells for cell in re.split(r", (?!every)", row)}
    assert listed == messages()
