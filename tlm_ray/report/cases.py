"""Render a page of a task's retrieved passages: counts, sources, and examples with matching terms marked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from tlm_ray.report.marking import mark
from tlm_ray.report.page.template import stylesheet
from tlm_ray.retrieval.engine.analyzer import Analyzer

SHOWN = 5  # passages per example
SOURCES = 8


@dataclass(frozen=True, kw_only=True)
class Retrieved:
    """The passages that one method retrieved.

    selection: table of a neighbours stage. searched: the query of each training row. dropped: number of passages
    excluded because they would leak a dev or test text.
    """

    method: str
    selection: pa.Table
    searched: Sequence[str]
    dropped: int


def cases_page(
    task: str, queries: Sequence[str], retrieved: Sequence[Retrieved], *, analyzer: Analyzer, cases: int
) -> str:
    """Return a self-contained HTML page.

    queries: the task's training texts, by row. cases: number of examples, spread evenly over queries with a passage.
    """
    parts = [
        f"<h1>What was retrieved for {escape(task)}</h1>",
        f'<p class="dim">{len(queries):,} queries. A passage retrieved by several counts once, with its best rank.</p>',
        "<h2>Amounts</h2>" + _amounts(retrieved),
        "<h2>Passages at each K</h2>" + _depths(retrieved),
        "<h2>Shared by two methods</h2>" + _overlap(retrieved) if len(retrieved) > 1 else "",
        "<h2>Sources</h2>" + _sources(retrieved),
        "<h2>Cases</h2>" + _cases(queries, retrieved, analyzer, cases),
    ]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(task)}: retrieved</title>'
    view = '<meta name="viewport" content="width=device-width">'
    return f"{head}{view}<style>{stylesheet()}</style><body>{''.join(parts)}</body></html>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _amounts(retrieved: Sequence[Retrieved]) -> str:
    rows = []
    for one in retrieved:
        texts = one.selection["text"].to_pylist()
        words = np.array([len(text.split()) for text in texts] or [0])
        low, middle, high = np.percentile(words, [5, 50, 95])
        size = sum(len(text.encode()) for text in texts) / 1e6
        amounts = (f"{len(texts):,}", f"{size:.2f}", f"{middle:.0f} ({low:.0f} to {high:.0f})", f"{one.dropped:,}")
        rows.append((escape(one.method), *amounts))
    return _table(["method", "passages", "MB", "words, median (5 to 95 %)", "excluded: dev or test text"], rows)


def _depths(retrieved: Sequence[Retrieved]) -> str:
    depth = max((int(np.max(one.selection["rank"].to_numpy(), initial=0)) + 1 for one in retrieved), default=1)
    steps = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if k < depth] + [depth]
    rows = [
        (escape(one.method), *(f"{np.count_nonzero(one.selection['rank'].to_numpy() < k):,}" for k in steps))
        for one in retrieved
    ]
    return _table(["method", *(f"K {k:,}" for k in steps)], rows)


def _overlap(retrieved: Sequence[Retrieved]) -> str:
    chosen = {one.method: set(one.selection["text"].to_pylist()) for one in retrieved}
    rows = [
        (escape(a), *("–" if a == b else f"{100 * len(own & chosen[b]) / max(1, len(own)):.1f} %" for b in chosen))
        for a, own in chosen.items()
    ]
    return _table(["of the passages of", *(f"also in {name}" for name in chosen)], rows)


def _sources(retrieved: Sequence[Retrieved]) -> str:
    shares = {one.method: Counter(one.selection["source"].to_pylist()) for one in retrieved}
    total: Counter[str] = sum(shares.values(), Counter())
    rows = []
    for name, _ in total.most_common(SOURCES):
        cells = []
        for counts in shares.values():
            share = counts[name] / max(1, counts.total())
            cells.append(f'<span class="bar" style="width:{6 * share:.2f}rem"></span>{100 * share:.1f} %')
        rows.append((escape(str(name)), *cells))
    return _table(["source", *map(str, shares)], rows)


def _cases(queries: Sequence[str], retrieved: Sequence[Retrieved], analyzer: Analyzer, cases: int) -> str:
    by_query: list[tuple[Retrieved, dict[int, list[dict]]]] = []
    for one in retrieved:
        chosen: dict[int, list[dict]] = {}
        for row in one.selection.to_pylist():  # by rank
            chosen.setdefault(row["query"], []).append(row)
        by_query.append((one, chosen))
    rows = sorted({query for _, chosen in by_query for query in chosen if query >= 0})
    picked = [rows[len(rows) * i // cases] for i in range(cases)] if len(rows) > cases else rows
    return "".join(_case(row, queries[row], by_query, analyzer) for row in picked)


def _case(
    row: int, query: str, by_query: Sequence[tuple[Retrieved, Mapping[int, list[dict]]]], analyzer: Analyzer
) -> str:
    parts = [f'<article><p class="dim">training row {row + 1:,}</p><blockquote>{escape(query)}</blockquote>']
    for one, chosen in by_query:
        found = chosen.get(row, [])
        if not found:
            continue
        terms = set(analyzer.terms(one.searched[row]))
        items = "".join(_hit(hit, terms, analyzer) for hit in found[:SHOWN])
        more = f", {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        parts.append(
            f'<p>{escape(one.method)} <span class="dim">{len(found)} passages{more}</span></p><ol>{items}</ol>'
        )
    return "".join(parts) + "</article>"


def _hit(hit: Mapping[str, Any], terms: set[str], analyzer: Analyzer) -> str:
    facts = f"rank {hit['rank'] + 1}, score {hit['score']:.2f}, {escape(str(hit['source']))}"
    return f'<li><span class="dim">{facts}</span><br>{mark(hit["text"], terms, analyzer)}</li>'
