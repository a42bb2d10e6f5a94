"""The benchmarks without the libraries that only some of them compare with."""

import importlib
import sys
from pathlib import Path

import pytest

EXTRA = ("tantivy", "sp_matmul_rs", "sparse_dot_topn")
MODULES = ("rivals", "bench_retrieval", "bench_training", "bench_growth", "bench_millions")


@pytest.fixture(autouse=True)
def without_the_extra(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    for name in (*EXTRA, *MODULES):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in EXTRA:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("script", ["bench_training", "bench_growth", "bench_millions"])
def test_a_benchmark_asks_for_no_library_that_it_does_not_compare_with(script):
    assert callable(importlib.import_module(script).main)


def test_the_benchmark_that_compares_with_them_says_how_to_install_them():
    with pytest.raises(SystemExit, match=r"is not installed; it is compared with: pip install -e '\.\[bench\]'"):
        importlib.import_module("bench_retrieval")
