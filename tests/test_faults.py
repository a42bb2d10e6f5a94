"""A sample of what fault_plan.py draws: five faults of five kinds while one table is made."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_jobs import environment

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_table_made_under_faults_is_the_undisturbed_one(tmp_path):
    log = tmp_path / "faults.jsonl"
    command = [sys.executable, str(Path(__file__).with_name("fault_plan.py")), "--kinds", "one of each", "--log", log]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (outcome,) = map(json.loads, log.read_text().splitlines())
    assert outcome["faults"] == 5 and outcome["identical"] and not outcome["differing"]
    assert outcome["drivers"] >= 3, "one was killed, one came as another"
    assert re.search(r"^ *one of each +1 +5 +5 ", done.stdout, re.M)
