"""What a process does with memory: pages that are used again, kernels that are kept, cycles that are not searched."""

import gc
import os
import platform
import subprocess
import sys

import pytest

from tlm_ray.process import tune_torch, without_cycle_search
from tlm_ray.training.sampler.batches import WIDTH_TO

FAULTS = """
import resource, sys
import numpy as np
from tlm_ray.process import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
for turn in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array = np.empty(100 << 20, np.uint8)
    array.fill(1)
    del array
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_a_large_array_takes_the_place_of_the_one_before():
    def faults(how: str) -> int:
        options = {"capture_output": True, "text": True, "check": True, "env": {"NUMPY_MADVISE_HUGEPAGE": "0"}}
        return int(subprocess.run([sys.executable, "-c", FAULTS, how], **options).stdout)

    assert faults("keep") < 100 < faults("default")


def test_a_training_process_keeps_all_kernels_once_unless_it_is_told_otherwise(monkeypatch):
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    tune_torch()
    kept = {name: os.environ.pop(name) for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")}
    assert int(kept["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 128 / WIDTH_TO * 100, "widths of batches, products of a step"
    assert kept["LRU_CACHE_CAPACITY"] == "1", "torch's own cache would keep each of them again"
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    tune_torch()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"


@pytest.mark.parametrize("was_on", [True, False])
def test_the_search_for_cycles_pauses_and_is_as_it_was_afterwards(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="stopped"), without_cycle_search():
            assert not gc.isenabled()
            raise ValueError("stopped")
        assert gc.isenabled() is was_on
    finally:
        gc.enable()
