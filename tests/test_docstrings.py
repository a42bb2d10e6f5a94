"""The embedded corpus and task: prose only, the same bytes always, and no give-away in the task."""

import ast
import importlib.metadata
import inspect
import json.decoder
import random
import re
import textwrap

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tlm_ray.corpus import docstrings
from tlm_ray.corpus.docstrings import (
    LIBRARIES,
    MASK,
    NAME,
    docstring_corpus_and_task,
    find_docstrings,
    installed_packages,
    read_package,
    split_docstring,
)

REAL = ("networkx", "sqlalchemy")  # 14,000 passages in 2 s
S = "This is one sentence of plain English that the filter has to let through."


def as_bytes(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def letters(text):
    return re.sub("[^a-z]", "", text.lower())


def runs(text, length):
    words = re.findall("[a-z]+", text.lower())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def synthetic(name, rows=420):
    """A library of random words, each paragraph with one of the ways to name a library."""
    rng = random.Random(name)
    ways = ("{n}", "{n}.core.thing", "Py{n}", "np.array", "pd.DataFrame", "RayTask", "NumPy's")
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(400)]
    texts = [" ".join([*rng.choices(words, k=20), rng.choice(ways).format(n=name)]) for _ in range(rows)]
    return pa.table({"text": texts, "source": [name] * rows})


@pytest.fixture(scope="module")
def tables():
    made = {name: synthetic(name) for name in LIBRARIES if name not in REAL}
    copies = pa.table({"text": ["The same text, twice over, in a package."] * 2, "source": ["extra"] * 2})
    return made | {name: read_package(name) for name in REAL} | {"extra": copies}


@pytest.fixture(scope="module")
def made(tables):
    return docstring_corpus_and_task(tables)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution of the given files, in a folder at the front of sys.path."""

    def write(name, files):
        root = tmp_path / name
        info = root / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
        for path, source in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(source)
        monkeypatch.syspath_prepend(root)

    return write


def function(docstring):
    return f'def f():\n    r"""{docstring}"""\n'.encode()


def test_docstrings_are_those_that_python_shows():
    for module in (textwrap, json.decoder):
        found = find_docstrings(inspect.getsource(module).encode())
        assert inspect.getdoc(module) == found[0]
        own = [o for o in vars(module).values() if getattr(o, "__module__", "") == module.__name__]
        own += [method for o in own if inspect.isclass(o) for method in vars(o).values()]
        shown = {inspect.cleandoc(o.__doc__) for o in own if inspect.isroutine(o) and o.__doc__}
        assert shown and shown <= set(found)


@pytest.mark.parametrize("module", ["networkx.classes.graph", "sqlalchemy.orm.session", "ast", "typing"])
def test_docstrings_are_all_that_the_whole_tree_has(module):
    source = inspect.getsource(pytest.importorskip(module)).encode()
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    everywhere = [ast.get_docstring(n) for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)]
    assert sorted(find_docstrings(source)) == sorted(filter(None, everywhere))


def test_docstrings_are_found_under_every_statement():
    nested = "if a:\n  try:\n    pass\n  except E:\n    with b:\n      match c:\n        case 1:\n" + textwrap.indent(
        "async def f():\n  '''deep'''\n", " " * 10
    )
    assert find_docstrings(nested.encode()) == ["deep"]


def test_invalid_escapes_of_other_people_do_not_warn():
    assert find_docstrings(b'"""a \\d b"""') == ["a \\d b"]


@pytest.mark.parametrize(
    ("docstring", "passages"),
    [
        (f"{S}\n\n{S[::-1]}", [S]),
        ("Too short to be of use.", []),
        (f"Parameters\n----------\nalpha : float, default=1\n    {S}", [f"alpha: {S}"]),
        (f"Args:\n    size (`int`, *optional*):\n        {S}\n    b: {S}",
         [f"size: {S}", f"b: {S}"]),
        (f"size (`tuple(int)` of (2, 3)):\n    {S}", [f"size: {S}"]),
        (f":param int size: {S}\n:type size: int or a thing that is in it, a rule", [f"size: {S}"]),
        (f":returns: {S}", [S]),
        (f"Title\n=====\n{S}", [S]),
        (f"{S}\n\n>>> this is the code of a test that is not to be read by us\n{S}", [S]),
        (f"See the example of this that is in the text::\n\n    {S}\n\n    {S}\n\n{S}",
         ["See the example of this that is in the text:", S]),
        (f"```python\n{S}\n\n{S}\n```\n{S}", [S]),
        (f".. code-block:: python\n\n    {S}\n", []),
        (f".. versionadded:: 1.2\n    {S}", [S]),
        ("A :class:`~a.b.Thing` and an :func:`f <a.f>` are **not** ``code`` in `the end` [1]_.",
         ["A Thing and an f are not code in the end."]),
        ("Read the [manual](https://a.org/b) or go to https://c.org/d?e=f to see what this is.",
         ["Read the manual or go to to see what this is."]),
        (f"- {S}\n  And so on.\n- {S}", [f"{S} And so on. {S}"]),
    ],
)  # fmt: skip
def test_passages_are_the_prose_of_a_docstring(docstring, passages):
    assert split_docstring(docstring) == passages


def test_long_paragraph_is_cut_without_losing_a_word():
    words = (S.split() * 50)[:600]
    passages = split_docstring(" ".join(words))
    assert [len(passage.split()) for passage in passages] == [250, 250, 100]
    assert " ".join(passages).split() == words


PIECES = ["a", "the", " ", "    ", "\n", "\n\n", ":", "::", "`", "*", "```", ">>> ", "---",
          ".. note::", "word", "\ud800", "é"]  # fmt: skip


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=80).map("".join)))
def test_any_docstring_gives_encodable_passages_of_allowed_length(docstring):
    for passage in split_docstring(docstring):
        assert 8 <= len(passage.encode().decode().split()) <= 250


def test_package_gives_each_passage_once_and_counts_what_is_not_python(install):
    other = S.replace("one", "another")
    install("demo", {
        "demo/b.py": function(S.upper().lower()),
        "demo/a.py": function(f"{other}\n\n{S}"),
        "demo/tests/test_a.py": function("A text that is in the tests of a package is not read."),
        "demo/broken.py": b"def f(:", "demo/null.py": b"a\0", "demo/latin.py": b'"""\xe9"""',
        "demo/data.txt": function(S),
    })  # fmt: skip
    table = read_package("demo")
    assert table.to_pydict() == {"text": [other, S], "source": ["demo", "demo"]}
    assert table.schema.metadata == {b"skipped_files": b"3"}


def test_package_without_prose_gives_an_empty_table_of_the_same_schema(install):
    install("demo", {"demo/__init__.py": b""})
    table = read_package("demo")
    assert table.num_rows == 0 and table.schema.types == [pa.string(), pa.string()]


def test_package_that_is_absent_or_has_no_files_is_an_error(install):
    install("demo", {"demo/data.txt": b""})
    with pytest.raises(ImportError, match=r"'demo' lists no Python file.*--force-reinstall demo"):
        read_package("demo")
    with pytest.raises(ImportError, match="no-such-package"):
        read_package("no-such-package")


def test_same_bytes_twice_in_any_file_order(tables, monkeypatch):
    distribution = importlib.metadata.distribution("networkx")
    files = sorted(distribution.files, key=lambda file: str(file)[::-1])
    monkeypatch.setattr(type(distribution), "files", files)
    assert as_bytes(read_package("networkx")) == as_bytes(tables["networkx"])


def test_installed_packages_are_sorted_versions_that_others_do_not_change(install):
    before = installed_packages()
    install("unrelated", {"unrelated/__init__.py": function(S)})
    assert installed_packages() == before
    assert list(before) == sorted(before) and set(LIBRARIES) <= set(before)
    assert all(importlib.metadata.version(name) == version for name, version in before.items())


def test_missing_library_is_named_with_the_fix(monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name in ("sqlalchemy", "numpy", "click"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(docstrings.importlib.metadata, "version", version)
    with pytest.raises(ImportError, match=r"pip install numpy sqlalchemy$"):
        installed_packages()


@pytest.mark.parametrize(
    "text",
    ["numpy", "NumPy's", "np.linalg.norm", "`pd.DataFrame`", "plt", "sklearn.svm.SVC",
     "scikit-learn", "PyTorch", "torch.nn", "torchvision", "RayTask", "ray.get", "RAY_ADDRESS",
     "Ray", "nx.Graph", "sa.Column", "MlflowClient", "~sqlalchemy.orm.Session", "HuggingFace",
     "Hugging Face", "mpl_toolkits", "SymPy-like"],
)  # fmt: skip
def test_names_are_masked_whole(text):
    masked = NAME.sub(MASK, f"before {text}. After")
    assert re.fullmatch(rf"before \W?{MASK}(?:'s)?\W?\. After", masked)


@pytest.mark.parametrize("text", ["array of gray input", "snap upd", "a tray, an x", "The library"])
def test_other_words_are_not_masked(text):
    assert NAME.sub(MASK, text) == text


def test_no_task_text_names_a_library(made):
    names = "numpy scipy sympy networkx matplotlib pyplot pandas sklearn scikit torch mlflow"
    names += " sqlalchemy transformers"
    for text in (text for table in made[1].values() for text in table["text"].to_pylist()):
        assert not [name for name in names.split() if name in text.lower()], text
        assert not re.search(r"(?i)\b(np|pd|plt|nx|sa)\.|\bray\b", text), text


def test_task_is_balanced_and_of_sensible_length(made):
    for split, rows in (("train", 84), ("dev", 50), ("test", 200)):
        labels = made[1][split]["label"].to_pylist()
        assert {name: labels.count(name) for name in LIBRARIES} == dict.fromkeys(LIBRARIES, rows)
        assert all(18 <= len(text.split()) <= 80 for text in made[1][split]["text"].to_pylist())


def test_no_text_nor_long_run_of_words_is_twice_in_the_task(made):
    texts = [text for table in made[1].values() for text in table["text"].to_pylist()]
    assert len({letters(text) for text in texts}) == len(texts)
    own = [runs(text, 8) for text in texts]
    assert sum(map(len, own)) == len(set().union(*own))


def test_corpus_shares_no_long_run_of_words_with_the_task(made):
    corpus = set().union(*(runs(text, 8) for text in made[0]["text"].to_pylist()))
    for table in made[1].values():
        for part in (part for text in table["text"].to_pylist() for part in text.split(MASK)):
            assert corpus.isdisjoint(runs(part, 8)), part


def test_corpus_keeps_each_other_text_once(tables, made):
    texts, sources = made[0].to_pydict().values()
    assert len({letters(text) for text in texts}) == len(texts)
    for name, table in tables.items():
        kept = [text for text, source in zip(texts, sources, strict=True) if source == name]
        assert set(kept) <= set(table["text"].to_pylist())
        most = len({letters(text) for text in table["text"].to_pylist()}) - 334 * (name in LIBRARIES)
        assert 0.9 * most < len(kept) <= most if name in REAL else len(kept) == most


def test_texts_of_two_packages_are_no_candidates(tables):
    texts = [f"{text} 1." for text in tables["networkx"]["text"].to_pylist()]
    copies = pa.table({"text": texts, "source": ["copy"] * len(texts)})
    with pytest.raises(ValueError, match=r"networkx \(334 short\)"):
        docstring_corpus_and_task(tables | {"copy": copies})


def test_task_depends_on_texts_and_seed_not_on_order(tables, made):
    rng = random.Random(0)
    mixed = {
        name: tables[name].take(rng.sample(range(tables[name].num_rows), tables[name].num_rows))
        for name in reversed(tables)
    }
    _, task = docstring_corpus_and_task(mixed)
    _, other = docstring_corpus_and_task(tables, seed=1)
    for split, table in made[1].items():
        assert as_bytes(task[split]) == as_bytes(table) != as_bytes(other[split])
    again, _ = docstring_corpus_and_task({name: tables[name] for name in reversed(tables)})
    assert as_bytes(again) == as_bytes(made[0])


def test_too_few_or_no_paragraphs_name_the_library(tables):
    few = {name: table for name, table in tables.items() if name != "pandas"}
    few["numpy"] = tables["numpy"].slice(0, 200)
    with pytest.raises(ValueError, match=r"needs 334 .*numpy \(134 short\), pandas \(334 short\)"):
        docstring_corpus_and_task(few)


def test_two_real_libraries_can_be_told_apart_without_their_names(made):
    rows = {split: [r for r in table.to_pylist() if r["label"] in REAL] for split, table in made[1].items()}
    fit = [[row[column] for row in rows["train"]] for column in ("text", "label")]
    score = [[row[column] for row in rows["test"]] for column in ("text", "label")]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(*fit)
    assert 0.8 < model.score(*score) < 1
