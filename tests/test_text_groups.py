"""Which rows of a test set belong together."""

import pyarrow as pa
import pytest

from tlm_ray import storage
from tlm_ray.corpus.labelled.text_groups import groups_of_texts, read_text_groups


def test_texts_that_mark_other_spans_are_one():
    texts = ["[[a]] uses <<b>> well", "a uses [[b]] <<well>>", "[[c]] is <<d>>", "[[a]] uses  <<b>>  well"]
    assert groups_of_texts(texts, [""] * 4).tolist() == [0, 0, 1, 0]


def test_texts_without_marks_are_compared_as_they_are():
    assert groups_of_texts(["b", "a", "b", "a ", "B"], [""] * 5).tolist() == [0, 1, 0, 2, 3]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_pair_of_texts_is_one_text(tmp_path, split):
    table = pa.table({"text": ["p", "p", "p q"], "text_pair": ["q", "r", ""], "label": [0, 1, 0]})
    storage.write_table(f"{tmp_path}/{split}.arrow", table)
    assert read_text_groups(str(tmp_path), split).tolist() == [0, 1, 2]
