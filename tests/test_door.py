"""The door of the package: a type checker sees each name that is imported lazily, and what its users get wrong."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tlm_ray

ROOT = Path(__file__).parents[1]
SKIPPED = (
    "huggingface_hub", "matplotlib", "mlflow", "numba", "numpy", "pandas", "pyarrow", "ray", "rich", "safetensors",
    "scipy", "sklearn", "tokenizers", "torch", "transformers",
)  # fmt: skip
# Other packages' types are of no use here and take a minute to read.
CONFIG = f"""[mypy]
ignore_missing_imports = true
follow_imports = silent
[mypy-{",".join(f"{name}.*" for name in SKIPPED)}]
follow_imports = skip
follow_imports_for_stubs = true
"""


def test_each_name_of_the_stub_is_found_where_it_says():
    assert len(tlm_ray._DOOR) > 40
    for name, module in tlm_ray._DOOR.items():
        assert getattr(tlm_ray, name) is getattr(importlib.import_module(module), name)
    assert set(tlm_ray._DOOR) <= set(dir(tlm_ray))
    with pytest.raises(AttributeError, match="has no attribute 'Trainings'"):
        tlm_ray.Trainings  # noqa: B018


MISTAKES = {
    "one.row in self.rows": ("one.row in self.rosw", '"MainTable" has no attribute "rosw"'),
    "flow, self.mixture) for row": ("flow, self.mixture, star=kind) for row", 'Unexpected keyword argument "star"'),
    "import ray\n": ("import ray\nfrom tlm_ray import runs_of\n", 'Module "tlm_ray" has no attribute "runs_of"'),
}


@pytest.mark.slow
def test_mypy_finds_mistakes_in_an_experiment(tmp_path):
    text = (ROOT / "experiments" / "main_table.py").read_text()
    (tmp_path / "right.py").write_text(text)
    for index, (right, (wrong, _)) in enumerate(MISTAKES.items()):
        assert right in text
        (tmp_path / f"wrong_{index}.py").write_text(text.replace(right, wrong))
    (tmp_path / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "."]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True
    )
    errors = sorted(line for line in done.stdout.splitlines() if ": error: " in line)
    assert len(errors) == len(MISTAKES), done.stdout + done.stderr
    for index, (_, message) in enumerate(MISTAKES.values()):
        assert errors[index].startswith(f"wrong_{index}.py:") and message in errors[index]


def test_the_door_loads_neither_ray_nor_mlflow_nor_torch():
    code = "import sys, tlm_ray\nprint(*[name for name in ('ray', 'mlflow', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []
