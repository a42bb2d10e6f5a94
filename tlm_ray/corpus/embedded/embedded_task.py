"""Build the embedded corpus and task: which library is a paragraph from, with names masked?"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from tlm_ray.corpus.embedded.packages import LIBRARIES
from tlm_ray.corpus.embedded.prose import letters

SPLIT_ROWS = {"train": 84, "dev": 50, "test": 200}  # per library; in all 504, 300 and 1,200 rows
TASK_WORDS = (18, 80)  # fewest and most words of a task text
SEED = 0  # of the task: another chooses other rows
RUN_WORDS = 8  # a run of so many words occurs in only one task text, which excludes boilerplate
MASK = "the library"
NAME = re.compile(
    r"[\w.-]*(?:numpy|scipy|sympy|networkx|matplotlib|pylab|pyplot|pandas|sklearn|scikit|torch|"
    r"transformers|hugging[ _-]?face|rllib|anyscale|mlflow|sqlalchemy)(?:[./-]?\w)*"
    r"|(?<![A-Za-z])(?:np|pd|plt|mpl|nx|ray|sa(?=\.))(?:[._-]\w+)*(?![A-Za-z])"
    r"|(?-i:\w*Ray[A-Z]\w*)",
    re.IGNORECASE,
)


def docstring_corpus_and_task(tables: dict[str, pa.Table]) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Return the corpus (text, source) and the task's train, dev and test tables (text, label).

    `tables` are `read_package`'s by name. The task has 84 / 50 / 200 rows per library of `LIBRARIES`, chosen by sha256
    of text. Rows have 18 to 80 words, with names masked; no run of 8 words occurs in two rows. The corpus
    keeps each other passage that shares no such run with them (97 % of 180,000), near copies once. ValueError if a
    library is too small.
    """
    texts = {name: table["text"].to_pylist() for name, table in sorted(tables.items())}
    chosen = _choose_task(texts)
    used = {run for rows in chosen.values() for text, _ in rows for run in _runs(text)}
    corpus: dict[bytes, tuple[str, str]] = {}
    for text, name in ((text, name) for name, own in texts.items() for text in own):
        if used.isdisjoint(_runs(text)):
            corpus.setdefault(letters(text), (text, name))
    task = {
        split: _table([(NAME.sub(MASK, text), name) for text, name in rows], "label") for split, rows in chosen.items()
    }
    return _table(corpus.values(), "source"), task


def _choose_task(texts: dict[str, list[str]]) -> dict[str, list[tuple[str, str]]]:
    """Choose each split's rows (unmasked text, library) from paragraphs that no other package has."""
    owners = Counter(key for own in texts.values() for key in set(map(letters, own)))
    candidates = {
        (hashlib.sha256(f"{SEED}\n{text}".encode()).digest(), text, name)
        for name in LIBRARIES
        for text in texts.get(name, ())
        if owners[letters(text)] == 1
    }
    places = [split for split, rows in SPLIT_ROWS.items() for _ in range(rows)]
    slots = {name: places.copy() for name in LIBRARIES}
    chosen: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLIT_ROWS}
    seen: set[tuple[str, ...]] = set()
    for _, text, name in sorted(candidates):
        masked = NAME.sub(MASK, text) if slots[name] else ""
        fits = TASK_WORDS[0] <= len(masked.split()) <= TASK_WORDS[1]
        if fits and seen.isdisjoint(runs := _runs(masked)):
            seen |= runs
            chosen[slots[name].pop()].append((text, name))
    if small := [f"{name} ({len(left)} short)" for name, left in slots.items() if left]:
        raise ValueError(
            f"tables: the task needs {len(places)} paragraphs of each library; "
            f"{', '.join(small)}. Pass `read_package` tables of complete installs"
        )
    return chosen


def _runs(text: str) -> set[tuple[str, ...]]:
    """Return a text's runs of words, at least one, to compare texts by."""
    words = re.findall(r"[a-z]+", text.lower())
    return {tuple(words[i : i + RUN_WORDS]) for i in range(max(1, len(words) - RUN_WORDS + 1))}


def _table(rows: Iterable[tuple[str, str]], second: str) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
    return pa.table([pa.array(column, pa.string()) for column in columns], ["text", second])
