"""The page of retrieved passages: what it counts, what it marks, and that no text can break it."""

import importlib
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from tracked_trainings import stage

from tlm_ray import storage
from tlm_ray.report.cases import Retrieved, cases_page
from tlm_ray.report.marking import mark
from tlm_ray.retrieval import Analyzer
from tlm_ray.runs.stages.records import Records

QUERIES = ["the <b>cat</b> sat", "dogs & birds", "nobody found me"]
BM25 = [
    {
        "passage": 3,
        "text": "The cat, a CAT <script>alert(1)</script>",
        "rank": 0,
        "score": 2.5,
        "query": 0,
        "source": "a&b",
    },
    {"passage": 9, "text": "birds of a feather", "rank": 0, "score": 1.5, "query": 1, "source": "c"},
    *({"passage": 20 + i, "text": f"cat {i}", "rank": i, "score": 1.0, "query": 0, "source": "c"} for i in range(1, 9)),
]
RANDOM = [{"passage": 9, "text": "birds of a feather", "rank": 0, "score": 0.0, "query": -1, "source": "c"}]


@pytest.fixture(scope="module")
def page():
    methods = {"bm25": BM25, "random": RANDOM}
    retrieved = [
        Retrieved(method=name, selection=pa.Table.from_pylist(rows), searched=QUERIES, dropped=7)
        for name, rows in methods.items()
    ]
    return cases_page("my <task>", QUERIES, retrieved, analyzer=Analyzer(), cases=12)


def text_of(page):
    """The page's text, row by row of its tables, as a browser reads it; every tag must be closed."""
    pieces, open_tags = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert tag != "script"
            if tag not in ("meta", "br"):
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag
            pieces.append("\n" if tag in ("tr", "p", "li", "h1", "h2") else " ")

        def handle_data(self, data):
            pieces.append(data)

    Reader().feed(page)
    assert not open_tags
    return [" ".join(line.split()) for line in "".join(pieces).splitlines() if line.strip()]


def test_amounts_depths_overlap_and_sources_are_counted(page):
    lines = text_of(page)
    assert "bm25 10 0.00 2 (2 to 5) 7" in lines
    assert "method K 1 K 2 K 5 K 9" in lines
    assert "bm25 2 3 6 10" in lines and "random 1 1 1 1" in lines
    assert "bm25 – 10.0 %" in lines and "random 100.0 % –" in lines
    assert "c 90.0 % 100.0 %" in lines and "a&b 10.0 % 0.0 %" in lines


def test_cases_show_the_query_and_its_best_passages(page):
    lines = text_of(page)
    assert "the <b>cat</b> sat bm25 9 passages, 4 more" in " ".join(lines)
    assert any("rank 1, score 2.50, a&b" in line for line in lines)
    assert "nobody found me" not in page
    assert "cat</mark> 4" in page and "cat</mark> 5" not in page  # five of nine


@pytest.mark.parametrize("cases", [1, 2, 3])
def test_as_many_cases_as_asked_for(cases):
    retrieved = [Retrieved(method="bm25", selection=pa.Table.from_pylist(BM25), searched=QUERIES, dropped=0)]
    page = cases_page("t", QUERIES, retrieved, analyzer=Analyzer(), cases=cases)
    assert page.count("<article>") == min(cases, 2)


@pytest.mark.parametrize(
    ("analyzer", "expected"),
    [
        (Analyzer(), "The cats&#x27; <mark>Cat</mark> &amp; &lt;running&gt;"),
        (
            Analyzer("english", "english"),
            "The <mark>cats</mark>&#x27; <mark>Cat</mark> &amp; &lt;<mark>running</mark>&gt;",
        ),
    ],
)
def test_words_are_marked_as_the_analyzer_matches_them(analyzer, expected):
    assert mark("The cats' Cat & <running>", set(analyzer.terms("cat run")), analyzer) == expected


def test_passages_left_out_are_counted_in_records_of_an_earlier_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    left_out = importlib.import_module("retrieved_cases")._left_out
    first = stage("neighbours")
    drawn = stage("neighbours", inputs={"first": first}, method="random")
    for each, facts in ((first, {"contaminated": 7}), (drawn, {})):
        storage.write_record(f"{each.folder(str(tmp_path))}/record.json", {"recipe": each.recipe, "facts": facts})
    assert left_out(drawn, Records(str(tmp_path))) == 7
