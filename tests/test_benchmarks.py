"""The benchmarks without the libraries that only some of them compare with."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from test_jobs import script

EXTRA = ("tantivy", "sp_matmul_rs", "sparse_dot_topn")
MODULES = ("rivals", "bench_retrieval", "bench_training", "bench_growth", "bench_millions", "bench_passages")


@pytest.fixture(autouse=True)
def without_the_extra(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    for name in (*EXTRA, *MODULES):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in EXTRA:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("script", ["bench_training", "bench_growth", "bench_millions", "bench_passages"])
def test_a_benchmark_asks_for_no_library_that_it_does_not_compare_with(script):
    assert callable(importlib.import_module(script).main)


def test_the_benchmark_that_compares_with_them_says_how_to_install_them():
    with pytest.raises(
        SystemExit, match=r"is not installed, but needed for the comparison; run: pip install -e '\.\[bench\]'"
    ):
        importlib.import_module("bench_retrieval")


def test_ways_of_attention_take_turns_over_each_shape():
    done = script("bench_attention", "--shapes", "2x8", "3x16", "--turns", "1", folder="benchmarks")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^\| (\w+) \|(?: [0-9.]+ \|){3} [0-9.]+x \|$", done.stdout, re.M) == ["2x8", "3x16"]


@pytest.mark.long
@pytest.mark.slow
def test_millions_of_passages_are_made_searched_and_measured(data, tmp_path):
    corpus = ("--corpus", str(data / "corpus"), "--task-root", str(data / "tasks"), "--task", "topics")
    size = ("--passages", "3000", "--characters", "60", "--ks", "2", "20", "--store-mb", "100")
    done = script("bench_millions", *corpus, "--folder", str(tmp_path / "millions"), *size, folder="benchmarks")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"select, K 20 +[0-9.]+ +[0-9,]+ +[0-9]+ +[0-9.]+ +[0-9.]+", done.stdout)
    selected = [int(found.replace(",", "")) for found in re.findall(r"queries, ([0-9,]+)\s+selected", done.stdout)]
    assert len(selected) == 2 and 0 < selected[0] < selected[1] <= 3000


@pytest.mark.long
def test_a_large_file_and_many_small_ones_are_cut_and_timed(data, tmp_path):
    size = ("--gb", "0.0005", "--files", "30", "--turns", "1", "--folder", str(tmp_path / "cutting"))
    done = script("bench_passages", "--corpus", str(data / "corpus"), *size, folder="benchmarks")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"(one JSONL, one worker|one JSONL, two|small files, two) +(?:[0-9.]+ +){3}[0-9.]+x", done.stdout)
    assert len(rows) == 3
