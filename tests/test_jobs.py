"""The scripts as users start them: on a laptop, as a submitted job, on a cluster of two nodes."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tracked import empty_store
from waiting import wait_for

from tlm_ray.evaluation.pooling import pooled
from tlm_ray.evaluation.predictions import shares
from tlm_ray.plain.linear_model import LinearModel

REPOSITORY = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.slow
STEPS = ["--steps", "8", "--steps-two", "4", "--k", "5", "--seeds", "1", "--precision", "fp32"]


def arguments(data: Path, root: Path) -> list[str]:
    return [
        *("--tasks", "topics", "--task-root", str(data / "tasks"), "--corpus", str(data / "corpus")),
        *("--root", str(root / "tlm"), "--out", str(root / "out"), "--tracking-uri", empty_store(root)),
        *("--depth", "5"),  # the table of K then has the main table's tokenizer at K = 5
        *STEPS,
    ]


def environment(**more: str) -> dict[str, str]:
    lasting = ("RAY_TMPDIR", "RAY_USAGE_STATS_ENABLED", *(name for name in os.environ if "prestart" in name))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") or k in lasting}
    return kept | {"RAY_AUTH_MODE": "disabled", "PATH": f"{BIN}:{os.environ['PATH']}"} | more


def script(name: str, *options: str, folder: str = "experiments") -> subprocess.CompletedProcess:
    """Run an experiment as on a laptop: in an environment that says nothing of Ray."""
    command = [sys.executable, f"{folder}/{name}.py", *options]
    plain = {k: v for k, v in environment().items() if k != "RAY_AUTH_MODE"}
    return subprocess.run(command, cwd=REPOSITORY, env=plain, capture_output=True, text=True, timeout=1200)


def rows(root: Path) -> set[str]:
    return {cell["row"] for cell in json.loads((root / "out" / "main_table.json").read_text())["cells"]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


TABLE_ROWS = {
    "retrieval": ["random, 1 of the corpus", "bm25, 1 of the corpus"],
    "k": ["task data only", "K = 5"],
    "rho2": ["rho2 = 20"],
    "stage_two": ["both stages", "stage one alone"],
    "flops": ["TLM mini"],
}


def of_stage_one(record: Path) -> bool:
    """Whether a record is of the scores of stage one's own head."""
    return "stage_one" in json.loads(record.read_text())["recipe"]["inputs"]


PLAIN_NAMES = ["TF-IDF + linear model", "BM25 neighbours"]
SIX_ROWS = {"task data only", "TLM, random text", "TLM, BM25 text", "TLM, BM25 text with linear model", *PLAIN_NAMES}


@pytest.fixture
def head(tmp_path):
    """A head node started as users start it, with the Jobs API; killed as a group, so that no other Ray is touched.

    It is started again if Ray gives up, as it does on a busy machine after 30 s.
    """
    # a socket's path may have 107 bytes, pytest's folders have more
    folder, log = tempfile.mkdtemp(prefix="ray-", dir="/tmp"), tmp_path / "head.log"
    # the agent's own port, 52365, lies among those that the system gives out: taken, the agent never answers
    served = ("port", "dashboard-port", "ray-client-server-port", "dashboard-agent-listen-port")
    ports = {name: free_port() for name in served}
    command = [
        f"{BIN}/ray", "start", "--head", "--block", "--num-cpus=2", "--dashboard-host=127.0.0.1",
        "--disable-usage-stats", f"--temp-dir={folder}", *(f"--{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    env = environment(PYTHONUNBUFFERED="1")
    for _ in range(3):
        with log.open("w") as sink:
            process = subprocess.Popen(command, env=env, stdout=sink, stderr=sink, start_new_session=True)
        wait_for(lambda: process.poll() is not None or "Ray runtime started" in log.read_text())  # noqa: B023
        if process.poll() is None:
            break
        end_group(process)
    yield f"http://127.0.0.1:{ports['dashboard-port']}"
    end_group(process)
    shutil.rmtree(folder, ignore_errors=True)


def end_group(process: subprocess.Popen) -> None:
    """Kill a process and all of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_the_main_table_as_a_submitted_job_and_a_second_run_on_a_laptop_that_does_nothing(data, tmp_path, head, called):
    submitted(head, "python", "experiments/main_table.py", *arguments(data, tmp_path))
    assert rows(tmp_path) == SIX_ROWS
    assert {f.suffix for f in (tmp_path / "out").glob("*.*")} == {".md", ".csv", ".json", ".png", ".tex", ".html"}

    table = (tmp_path / "out" / "main_table.json").read_bytes()
    differences = json.loads(table)["differences"]
    assert {found["other"] for found in differences} == SIX_ROWS - {"TLM, BM25 text"}
    assert all(found["low"] <= found["mean"] <= found["high"] for found in differences)
    second = called("experiments/main_table.py", *arguments(data, tmp_path))
    assert re.search(r"^make ", second, re.M) is None
    assert len(re.findall(r"^cached +metrics", second, re.M)) == 5
    assert (tmp_path / "out" / "main_table.json").read_bytes() == table

    only = ["--only", "main_table", "retrieval", "k", "rho2", "stage_two", "flops"]
    values = ["--parts", "1", "--ks", "5", "--rho2s", "20", "--shares", "1"]  # which the main table's rows have
    tables = called("experiments/paper.py", *arguments(data, tmp_path), *only, *values)
    made = re.findall(r"^make +(\w+)", tables, re.M)
    assert made == ["metrics"], "stage one alone is scored"
    found = {name: json.loads((tmp_path / "out" / f"{name}.json").read_text())["cells"] for name in TABLE_ROWS}
    assert {
        name: [cell["row"] for cell in cells if cell["row"] not in PLAIN_NAMES] for name, cells in found.items()
    } == (TABLE_ROWS)
    splits = {name: {cell["split"] for cell in cells} for name, cells in found.items()}
    assert splits == {name: {"test" if name == "flops" else "dev"} for name in TABLE_ROWS}
    by_row = {cell["row"]: cell["scores"] for cell in found["stage_two"]}
    (one,) = (
        json.loads(f.read_text()) for f in (tmp_path / "tlm" / "metrics").glob("*/record.json") if of_stage_one(f)
    )
    assert by_row["stage one alone"] == [one["facts"]["dev"]]
    summary = (tmp_path / "out" / "paper.md").read_text()
    judged = re.findall(
        r"^\| (\w+) \| .* above .* \| (?:shown|not shown|the reverse is shown|not tested) \| .* \| .* \|$",
        summary,
        re.M,
    )
    assert judged == ["main_table"] * 2 + ["retrieval", "k", "stage_two"], "one row is no pair"

    (gone,) = (tmp_path / "tlm" / "statistics").iterdir()
    for file in gone.iterdir():
        file.unlink()
    plan = called("experiments/main_table.py", *arguments(data, tmp_path), "--dry-run")
    remade = set(re.findall(r"^(\w+) +\w+ +to run", plan, re.M))
    assert remade == {"statistics", "neighbours", "tokenizer", "blocks", "counts", "stage_one", "stage_two", "metrics"}
    kept = re.findall(r"^(\w+) +\w+ +cached", plan, re.M)
    once = ["task", "passages", "tokenizer", "blocks", "counts", "stage_one", "stage_two", "metrics"]
    assert sorted(kept) == sorted([*once, "metrics", "metrics"]), "the task alone and the two plain rows stay"


def submitted(address: str, *command: str) -> None:
    """Run a command as a job, and see it succeed without a traceback."""
    from ray.job_submission import JobSubmissionClient

    wait_for(lambda: is_up(address))
    submit = [f"{BIN}/ray", "job", "submit", "--address", address, "--working-dir", ".", "--", *command]

    def done_by_an_agent() -> subprocess.CompletedProcess | None:
        """The dashboard answers before the agent that starts jobs does."""
        done = subprocess.run(submit, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=1200)
        return None if "No available agent to submit job" in done.stderr else done

    done = wait_for(done_by_an_agent, timeout_s=1500, every_s=2)
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stdout + done.stderr
    (job,) = JobSubmissionClient(address).list_jobs()
    assert job.status == "SUCCEEDED"


def is_up(address: str) -> bool:
    """Say whether the dashboard answers."""
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{address}/api/version", timeout=0.5).close()
        return True
    return False


TWO_NODES = """
import subprocess, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"training": 2}})
cluster.add_node(num_cpus=2)
import os
os.environ["RAY_ADDRESS"] = cluster.address
code = subprocess.run([sys.executable, *sys.argv[1:]]).returncode
cluster.shutdown()
sys.exit(code)
"""


def on_two_nodes(name: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", TWO_NODES, f"experiments/{name}.py", *options]
    return subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=1200)


@pytest.mark.long
def test_two_nodes_one_without_training_resources_train_a_model_that_predicts(data, tmp_path):
    model, predictions = str(tmp_path / "model"), tmp_path / "predictions"
    options = [*arguments(data, tmp_path), "--train-resources", "CPU=1", "training=1", "--model", model]
    done = on_two_nodes("train", *options, "--shared-root", "--workers", "4", "--seeds", "2", "--ensemble")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ *seed [01] \(best\) +[\d.]+ +[\d.]+", done.stdout, re.M), done.stdout

    assert re.search(r"^ *mean of 2 seeds +[\d.]+ +[\d.]+", done.stdout, re.M), done.stdout

    texts = str(data / "tasks" / "topics" / "test.parquet")
    assert re.search(r"^ *mean of 2 seeds with linear model +[\d.]+ +[\d.]+", done.stdout, re.M), done.stdout
    models = [f"{model}/seed-0", f"{model}/seed-1"]
    done = script("predict", "--model", *models, f"{model}/linear", "--texts", texts, "--out", str(predictions))
    assert done.returncode == 0 and "24 rows in" in done.stdout, done.stdout + done.stderr
    found = pq.read_table(predictions / "part-00000-00000.parquet")
    assert found.column_names == ["text", "label", "predicted", "probabilities"]
    again = script("train", *arguments(data, tmp_path), "--seeds", "2", "--model", f"{model}-best")
    assert again.returncode == 0 and not re.search(r"^make ", again.stdout, re.M), again.stdout + again.stderr
    assert (tmp_path / "model-best" / "model.safetensors").exists()
    taught = script("train", *arguments(data, tmp_path), "--seeds", "2", "--student", "--model", f"{model}-student")
    assert taught.returncode == 0, taught.stdout + taught.stderr
    made = re.findall(r"^make +(\w+)", taught.stdout, re.M)
    assert made == ["student_rows", "teacher_labels", "teacher_labels", "soft_labels", "stage_two", "metrics"]
    assert re.search(r"^ *student +[\d.]+ +[\d.]+", taught.stdout, re.M), taught.stdout
    assert alone(f"{model}-student", ["a text"]).shape == (1, 3)
    given = found["text"].to_pylist()
    encoders = np.mean([alone(each, given) for each in models], axis=0)
    linear = LinearModel.open(f"{model}/linear")
    expected = pooled(encoders, shares(linear.logits(given)), linear.encoders_share)
    np.testing.assert_allclose(found["probabilities"].to_pylist(), expected, rtol=1e-4, atol=1e-6)


ALONE = """
import json, sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
columns = json.load(sys.stdin)
found = [model(**tokenizer(*row, return_tensors="pt")).logits[0].softmax(-1).tolist() for row in zip(*columns)]
assert "tlm_ray" not in sys.modules
print(json.dumps(found))
"""


def alone(model: str, *columns: list[str]) -> np.ndarray:
    """Return probabilities by a process that has transformers alone, row by row."""
    command = [sys.executable, "-c", ALONE, model]
    done = subprocess.run(command, input=json.dumps(columns), capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout))
