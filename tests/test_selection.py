"""Rows of a table taken whatever its size: strings of one Arrow array end at 2 GiB."""

import numpy as np
import pyarrow as pa
import pytest

from tlm_ray.retrieval import selection
from tlm_ray.retrieval.selection import take_rows


def test_rows_are_taken_from_more_than_two_gib_of_text():
    chunk = pa.array([f"{i}" + "x" * (1 << 20) for i in range(50)])
    text = pa.chunked_array([chunk] * 50)  # of one buffer: 2.4 GiB that take 50 MiB
    assert text.nbytes > 2**31
    table = pa.table({"text": text, "passage": np.arange(2_500)})
    taken = take_rows(table, np.array([2_049, 3, 2_499, 3]))
    assert taken["passage"].to_pylist() == [2_049, 3, 2_499, 3]
    assert [value[:3] for value in taken["text"].to_pylist()] == ["49x", "3xx", "49x", "3xx"]
    assert taken.schema == table.schema


@pytest.mark.parametrize("most", [1, 40, 1 << 28])
def test_rows_taken_in_pieces_are_those_that_arrow_takes(monkeypatch, most):
    monkeypatch.setattr(selection, "PIECE_BYTES", most)
    texts = [f"{i} " * (i % 5) for i in range(40)]
    text = pa.chunked_array([texts[:7], [], texts[7:]], pa.string())
    table = pa.table({"text": text, "passage": range(40)})
    for rows in ([], [39], [*range(40)], [5, 39, 0, 7, 6, 5, 5], [*range(39, -1, -1)]):
        taken = take_rows(table, np.array(rows, np.int64))
        assert taken.to_pylist() == table.take(pa.array(rows, pa.int64())).to_pylist()
        assert taken.schema == table.schema
