"""The brackets that mark two spans are found in the texts, and nothing else is taken for them."""

import pytest

from tlm_ray.corpus.labelled.marks import Marks, marks_of, tags_of


@pytest.mark.parametrize(
    ("first", "second"),
    [(("<<", ">>"), ("[[", "]]")), (("<e1>", "</e1>"), ("<e2>", "</e2>")), (("[", "]"), ("{", "}"))],
)
def test_two_kinds_of_brackets_are_found(first, second):
    texts = [f"the {first[0]} cat {i} {first[1]} sat on {second[0]} mat {second[1]}" for i in range(40)]
    texts[0] = "a text without marks"
    marks = marks_of(texts)
    assert marks == Marks(first, second)
    assert marks.removed(texts[1]) == "the cat 1 sat on mat"


@pytest.mark.parametrize(
    "texts",
    [
        [f"words ( Och , {year} ) and no more" for year in range(40)],  # one kind only
        [f"[[ a {i} ]] and << b >>, [[ c ]]" for i in range(40)],  # one kind stands twice
        [f"]] a {i} [[ and << b >>" for i in range(40)],  # closed before it is opened
        [f"[[ a {i} ]] << b >> {{ c }}" for i in range(40)],  # three kinds
        ["plain"] * 40,
    ],
)
def test_other_texts_have_no_marks(texts):
    assert marks_of(texts) is None


def test_a_tenth_without_marks_is_too_many():
    marked, plain = ["[[ a ]] << b >>"] * 95, ["a b"] * 5
    assert marks_of(marked + plain) is not None
    assert marks_of(marked + plain + ["c"]) is None


def test_only_tags_are_told_from_brackets_without_words():
    tagged, bracketed = "a <e1>cat</e1> on a <e2>mat</e2>", "a [[ cat ]] on a << mat >>"
    assert tags_of([tagged] * 40) == marks_of([tagged] * 40) == Marks(("<e1>", "</e1>"), ("<e2>", "</e2>"))
    assert tags_of([bracketed] * 40) is tags_of(["a </b> cat"] * 40) is tags_of([tagged] * 9 + ["plain"]) is None
