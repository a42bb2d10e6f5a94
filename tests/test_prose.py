"""Prose of docstrings: what Python shows of them, without code, markup and types."""

import ast
import inspect
import json.decoder
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm_ray.corpus.embedded.prose import find_docstrings, split_docstring

S = "This is one sentence of plain English that the filter has to let through."


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
