"""The embedded data: prose from the docstrings of installed packages, and a task made of it.

No network is needed. The corpus is the prose of `PACKAGES`, which the project's own dependencies
bring; the task asks which of `LIBRARIES` a paragraph comes from, with library names masked. Files
are parsed, never imported: 300 MB of source take 30 s of one core, half of that in `ast`.
"""

import ast
import hashlib
import importlib.metadata
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa

from tlm_ray import storage

# A narrow task in a broad corpus: 23 % of it is of these libraries, but 72 % of what BM25 finds at K = 5, 62 % at 20.
LIBRARIES = (
    "matplotlib",
    "networkx",
    "numpy",
    "pandas",
    "scikit-learn",
    "sqlalchemy",
)
PACKAGES = (
    *LIBRARIES,  # fixed, so that an unrelated package beside them changes nothing
    "aiohttp",
    "alembic",
    "anyio",
    "click",
    "databricks-sdk",
    "docker",
    "fastapi",
    "filelock",
    "flask",
    "fonttools",
    "fsspec",
    "gitpython",
    "google-api-core",
    "google-auth",
    "graphql-core",
    "grpcio",
    "gunicorn",
    "huggingface-hub",
    "jinja2",
    "joblib",
    "mlflow",
    "mpmath",
    "narwhals",
    "numba",
    "packaging",
    "pillow",
    "protobuf",
    "pyarrow",
    "pydantic",
    "pygments",
    "pyparsing",
    "ray",
    "requests",
    "rich",
    "scipy",
    "sympy",
    "torch",
    "transformers",
    "tyro",
    "urllib3",
    "werkzeug",
)
LARGE = ("transformers", "torch", "ray", "sympy", "mlflow", "scipy")  # two thirds of the source
SPLIT_ROWS = {"train": 84, "dev": 50, "test": 200}  # of each library: 504, 300 and 1,200 rows
PASSAGE_WORDS, TASK_WORDS = (8, 250), (18, 80)  # least and most
RUN_WORDS = 8  # a run of this many words is in one task text only: boilerplate is not knowledge
MASK = "the library"
NAME = re.compile(
    r"[\w.-]*(?:numpy|scipy|sympy|networkx|matplotlib|pylab|pyplot|pandas|sklearn|scikit|torch|"
    r"transformers|hugging[ _-]?face|rllib|anyscale|mlflow|sqlalchemy)(?:[./-]?\w)*"
    r"|(?<![A-Za-z])(?:np|pd|plt|mpl|nx|ray|sa(?=\.))(?:[._-]\w+)*(?![A-Za-z])"
    r"|(?-i:\w*Ray[A-Z]\w*)",
    re.IGNORECASE,
)

NOT_PROSE = re.compile(r"(^|/)(tests?|testing|_?vendor(ed)?|externals?|third_?party\w*)/|^\.\.")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DIRECTIVE = re.compile(
    r"\s*\.\. (?:(admonition|attention|caution|danger|deprecated|hint|important"
    r"|note|seealso|tip|version\w+|warning)|[\w-]+)::\s*[\d.]*(.*)"
)
RULE = re.compile(r"\s*[-=+| :~^\"'*#.]{3,}")
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)]|\.\. \[\w+\])\s+")
SECTION = re.compile(r"\s*[A-Z]\w*(?: \w+)?:")
SPHINX_ITEM = re.compile(r"\s*:(\w+)(?:\s[^:]*?([\w*]+))?:(?:\s+(.*))?")
NUMPY_ITEM = re.compile(r"\s*(\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*)\s+:(?:\s.*)?")
GOOGLE_ITEM = re.compile(r"\s*[-*]?\s?[`*]*(\w[\w.]*)[`*]*(\s+\(.*?\))?:(?:\s+(.*))?")
INLINE = (
    (re.compile(r":[\w:-]+:`(?:~[\w.]*\.|_\w+\.|\.)?([^`<]*?)(?:\s*<[^>`]*>)?`"), r"\1"),  # roles
    (re.compile(r"\[([^\[\]]+)\]\([^)\s]*\)"), r"\1"),  # links
    (re.compile(r"<?\bhttps?://[^\s>]*>?| ?\[#?\w+\]_"), ""),  # citations
    (re.compile(r"\[`+[~.]*([^`]+)`+\]|`+[~.]*([^`]*)`+_?"), r"\1\2"),
    (re.compile(r"\*\*([^*]+)\*\*|(?<!\w)\*(\w[^*]*)\*(?!\w)"), r"\1\2"),
)
FUNCTION_WORDS = {
    "a",
    "an",
    "and",
    "are",
    "as",
    "at",
    "be",
    "by",
    "can",
    "for",
    "from",
    "has",
    "if",
    "in",
    "is",
    "it",
    "not",
    "of",
    "on",
    "or",
    "that",
    "the",
    "this",
    "to",
}
NOT_LETTERS = bytes(byte for byte in range(256) if not bytes([byte]).isalpha())  # ASCII


def installed_packages() -> dict[str, str]:
    """Return name -> version of the distributions that make the corpus, sorted: its identity.

    A package of `PACKAGES` that is absent is left out; ImportError if one of `LIBRARIES` is.
    """
    found = {}
    for name in sorted(PACKAGES):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    if missing := [name for name in LIBRARIES if name not in found]:
        raise ImportError(
            f"the embedded task asks for libraries that are not installed; run: pip install {' '.join(missing)}"
        )
    return found


def read_package(name: str) -> pa.Table:
    """Return the prose of one distribution's docstrings: columns text and source (the name).

    Texts have 8 to 250 words, near copies once, ordered by file and place in it. The schema's
    metadata counts files that are not Python as `skipped_files`. ImportError if the distribution
    is not installed or lists no Python file.
    """
    passages: dict[bytes, str] = {}
    skipped = 0
    for path in _python_files(name):
        try:
            docstrings = find_docstrings(storage.read_bytes(path))
        except (SyntaxError, ValueError, RecursionError):
            skipped += 1
            continue
        for passage in (p for docstring in docstrings for p in split_docstring(docstring)):
            passages.setdefault(_letters(passage), passage)
    table = _table([(passage, name) for passage in passages.values()], "source")
    return table.replace_schema_metadata({"skipped_files": str(skipped)})


def _python_files(name: str) -> list[str]:
    """List what the distribution's own record names, so that stray files never count."""
    distribution = importlib.metadata.distribution(name)
    files = {file.as_posix() for file in distribution.files or [] if file.suffix == ".py"}
    if not files:
        raise ImportError(
            f"package {name!r} lists no Python file (an editable install?); install "
            f"its wheel: pip install --force-reinstall {name}"
        )
    kept = sorted(file for file in files if not NOT_PROSE.search(file))
    return [str(distribution.locate_file(file)) for file in kept]


def find_docstrings(source: bytes) -> list[str]:
    """Return a source's cleaned docstrings in order; SyntaxError or ValueError if not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        module = ast.parse(source)
    return [found for node in _documented(module) if (found := ast.get_docstring(node))]


def _documented(node: ast.AST) -> Iterator[DOCUMENTED]:
    """Yield what can have a docstring; expressions, most of the nodes, are not visited."""
    if isinstance(node, DOCUMENTED):
        yield node
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            if hasattr(child, "body") or hasattr(child, "cases"):
                yield from _documented(child)


def split_docstring(docstring: str) -> list[str]:
    """Return the docstring's passages of prose: paragraphs, and items such as a parameter's text.

    No code, headings, types or inline markup, nothing under 8 words; over 250 words it is cut.
    """
    passages = []
    for paragraph in _paragraphs(list(_without_code(docstring.split("\n")))):
        words = _plain(paragraph).split()
        for start in range(0, len(words), PASSAGE_WORDS[1]):
            if _is_prose(piece := words[start : start + PASSAGE_WORDS[1]]):
                passages.append(" ".join(piece))
    return passages


def _without_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines, empty where they are of a doctest, a fence or a literal block."""
    fence, doctest, block = False, False, -1  # block: the indent over which a literal block stands
    for line in lines:
        stripped = line.lstrip()
        doctest = bool(stripped) and (doctest or stripped.startswith(">>>"))
        block = -1 if stripped and _indent(line) <= block else block
        fence ^= (mark := stripped.startswith("```"))
        if fence or mark or doctest or block >= 0:
            line = ""
        elif match := DIRECTIVE.match(line):
            block = -1 if match[1] else _indent(line)
            line = match[2] if match[1] else ""
        elif line.endswith("::"):
            block = _indent(line)
            line = line[:-1]
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield runs of lines that belong together; an item of a section starts a new one."""
    current: list[str] = []
    last = 0
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        indent, item = _indent(line), _item(line, after)
        if not line.strip() or item is not None or (indent < last and not BULLET.match(line)):
            yield " ".join(current)
            current = []
        current.append(BULLET.sub("", line).strip() if item is None else item)
        if RULE.fullmatch(line):
            current = []  # and the heading or the table's row over it
        last = indent
    yield " ".join(current)


def _item(line: str, after: str) -> str | None:
    """Return how a passage opens at this line ("name: description", no type), None if not here."""
    if ":" not in line or SECTION.fullmatch(line):
        return "" if ":" in line else None
    if match := SPHINX_ITEM.fullmatch(line):
        kind, name, text = match.groups(default="")
        return "" if "type" in kind else f"{name}: {text}" if name else text
    hangs = _indent(after) > _indent(line)
    if hangs and (match := NUMPY_ITEM.fullmatch(line)):
        return f"{match[1]}:"
    if (match := GOOGLE_ITEM.fullmatch(line)) and (_indent(line) or (hangs and match[2])):
        return f"{match[1]}: {match[3] or ''}"
    return None


def _plain(text: str) -> str:
    if any(mark in text for mark in ("`", "*", "[", "http")):
        for pattern, plain in INLINE:
            text = pattern.sub(plain, text)
    return text.encode(errors="replace").decode()  # a lone surrogate is legal in a string literal


def _is_prose(words: list[str]) -> bool:
    """Say if the words are English: enough of them, two function words, 70 % letters."""
    if len(words) < PASSAGE_WORDS[0] or len(FUNCTION_WORDS.intersection(words)) < 2:
        return False
    return len(_letters("".join(words))) >= 0.7 * len("".join(words))


def _letters(text: str) -> bytes:
    """Return the lower-cased ASCII letters: texts that are equal in them are near copies."""
    return text.lower().encode().translate(None, NOT_LETTERS)


def _table(rows: Iterable[tuple[str, str]], second: str) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
    return pa.table([pa.array(column, pa.string()) for column in columns], ["text", second])


def docstring_corpus_and_task(tables: dict[str, pa.Table], *, seed: int = 0) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Return the corpus (text, source) and the task's train, dev and test tables (text, label).

    `tables` are `read_package`'s by name. The task has 84 / 50 / 200 rows of each of `LIBRARIES`,
    of 18 to 80 words, names masked, no run of 8 words twice, chosen by sha256 of seed and text.
    The corpus keeps each other passage that shares no such run with them (97 % of 180,000), near
    copies once. ValueError if a library is too small.
    """
    texts = {name: table["text"].to_pylist() for name, table in sorted(tables.items())}
    chosen = _choose_task(texts, seed)
    used = {run for rows in chosen.values() for text, _ in rows for run in _runs(text)}
    corpus: dict[bytes, tuple[str, str]] = {}
    for text, name in ((text, name) for name, own in texts.items() for text in own):
        if used.isdisjoint(_runs(text)):
            corpus.setdefault(_letters(text), (text, name))
    task = {
        split: _table([(NAME.sub(MASK, text), name) for text, name in rows], "label") for split, rows in chosen.items()
    }
    return _table(corpus.values(), "source"), task


def _choose_task(texts: dict[str, list[str]], seed: int) -> dict[str, list[tuple[str, str]]]:
    """Choose each split's (text still unmasked, library) from what no other package has too."""
    owners = Counter(key for own in texts.values() for key in set(map(_letters, own)))
    candidates = {
        (hashlib.sha256(f"{seed}\n{text}".encode()).digest(), text, name)
        for name in LIBRARIES
        for text in texts.get(name, ())
        if owners[_letters(text)] == 1
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
            f"{', '.join(small)}. Pass read_package's of complete installs"
        )
    return chosen


def _runs(text: str) -> set[tuple[str, ...]]:
    """Return the runs of words by which texts are compared, at least one."""
    words = re.findall(r"[a-z]+", text.lower())
    return {tuple(words[i : i + RUN_WORDS]) for i in range(max(1, len(words) - RUN_WORDS + 1))}
