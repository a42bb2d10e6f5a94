"""Compiled code on disk: never older than the engine's sources, and not needed where nothing can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGINE = Path("tlm_ray", "retrieval", "engine")
# a constant of index.py in a kernel of plan.py, and a function of plan.py in a kernel of sums.py
CODE = """
import numpy as np
from tlm_ray.retrieval.engine import plan, sums
step, found = plan.step(np.uint64(1 << 30)), np.zeros(1, np.uint32)
sums._add_list(found, 0, np.array([1, 2**64 - 1], np.uint64), np.uint64(0), np.uint64(1))
hits = [sum(kernel.stats.cache_hits.values()) for kernel in (plan.step, sums._add_list)]
print(step, found[0], *hits)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package that a test may change."""
    shutil.copytree(ROOT / "tlm_ray", tmp_path / "tlm_ray", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(package: Path, **changes: str) -> subprocess.CompletedProcess:
    """Run CODE in a process of its own, with the package and nothing of numba's settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    alone = {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(package / "cache")}
    environment = own | alone | changes
    command = [sys.executable, "-c", CODE]
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=True)


def change(file: Path, old: str, new: str) -> None:
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.slow
def test_an_edit_of_another_file_of_the_engine_compiles_anew(package):
    assert run(package).stdout.split()[:2] == [str((2**30 >> 12) + 1), "1"]
    assert run(package).stdout.split() == [str((2**30 >> 12) + 1), "1", "1", "1"], "found on disk"
    change(package / ENGINE / "index.py", "STEP_BITS = 20", "STEP_BITS = 19")
    change(package / ENGINE / "plan.py", "(np.uint64(weight) * factor + LOW)", "(np.uint64(weight) * factor)")
    assert run(package).stdout.split() == [str((2**30 >> 13) + 1), "0", "0", "0"]


@pytest.mark.slow
def test_a_copy_of_the_engine_finds_what_another_compiled(package, tmp_path):
    place = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert run(package, **place).stdout.split()[2:] == ["0", "0"]
    copy = shutil.copytree(package / "tlm_ray", tmp_path / "copy" / "tlm_ray").parent
    assert run(copy, **place).stdout.split()[2:] == ["1", "1"]


@pytest.mark.slow
def test_where_nothing_can_be_written_every_process_compiles_and_one_warning_says_so(package):
    for folder in {file.parent for file in (package / "tlm_ray").rglob("*.py")}:
        (folder / "__pycache__").write_text("no folder")  # root writes to a read-only folder, but not into a file
    done = run(package, HOME="/dev/null", XDG_CACHE_HOME="/dev/null")
    assert done.stdout.split() == [str((2**30 >> 12) + 1), "1", "0", "0"]
    assert done.stderr.count("RuntimeWarning: numba finds no writable cache folder") == 1
    assert "set NUMBA_CACHE_DIR" in done.stderr
