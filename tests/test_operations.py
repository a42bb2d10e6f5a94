"""What those see who are paged: the metrics that a node exports, a dashboard and alerts of them, a line per event."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from waiting import wait_for
from watched import scraped

from tlm_ray import metrics
from tlm_ray.runs.stages.stage import rooms

ROOT = Path(__file__).parents[1]
SERIES = {"Counter": ["_total"], "Gauge": [""], "Histogram": ["_bucket", "_count", "_sum"]}
EXPORTED = {f"ray_{metric.name}{ending}": metric for metric in metrics.ALL for ending in SERIES[metric.kind]}


def queries() -> list[str]:
    """The PromQL of the dashboard's panels."""
    dashboard = json.loads((ROOT / "cluster" / "grafana.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def alerts() -> dict[str, str]:
    """The PromQL of the alerts, by their names."""
    groups = yaml.safe_load((ROOT / "cluster" / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def named(queries: list[str]) -> set[str]:
    return {name for query in queries for name in re.findall(r"\bray_tlm_\w+", query)}


def test_the_dashboard_shows_every_metric_and_only_metrics_that_there_are():
    assert named(queries()) <= EXPORTED.keys()
    assert {EXPORTED[name] for name in named(queries())} == set(metrics.ALL)


def test_alerts_ask_for_metrics_that_there_are_and_the_page_tells_what_to_do_about_each():
    assert named(list(alerts().values())) <= EXPORTED.keys()
    page = (ROOT / "docs" / "operations.md").read_text()
    told = dict(re.findall(r"^### (\w+)\n\n((?:    .+\n)+)\n\w", page, re.M))
    assert {name: " ".join(expression.split()) for name, expression in told.items()} == alerts()


def test_the_operators_rules_are_those_of_the_file():
    rule = yaml.safe_load((ROOT / "cluster" / "prometheusrule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load((ROOT / "cluster" / "alerts.yaml").read_text())


def test_queries_ask_for_tags_that_the_metric_has():
    every = " ".join([*queries(), *alerts().values()])
    asked = re.findall(r"(ray_tlm_\w+)\{(.*?)\}", every)
    assert asked
    for name, selector in asked:
        assert set(re.findall(r"(\w+)=", selector)) <= set(EXPORTED[name].tags), name


def fires(alert: str, minute: int, series: dict[str, str], tmp_path: Path) -> bool:
    """Whether Prometheus has an alert active in a minute; series: values a minute apart, as promtool writes them."""
    groups = yaml.safe_load((ROOT / "cluster" / "alerts.yaml").read_text())["groups"]
    (rule,) = (rule for group in groups for rule in group["rules"] if rule["alert"] == alert)
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    asked = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []}
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": [asked]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": [test]}))
    told = subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0 or "exp:[" in told.stdout + told.stderr, told.stdout + told.stderr
    return told.returncode != 0


prometheus = pytest.mark.skipif(not shutil.which("promtool"), reason="needs Prometheus's promtool on the PATH")


@prometheus
@pytest.mark.parametrize(
    ("alert", "counter", "most", "minutes"),
    [
        ("TlmStageFailed", 'ray_tlm_stages_total{outcome="failed",WorkerId="%d"}', 0, 15),
        ("TlmItemsLost", 'ray_tlm_items_lost_total{work="search",WorkerId="%d"}', 3, 15),
        ("TlmTrainingsLost", 'ray_tlm_trainings_resumed_total{stage="stage_one",WorkerId="%d"}', 10, 60),
    ],
)
def test_events_count_for_a_while_whether_their_nodes_stay_or_not(alert, counter, most, minutes, tmp_path):
    old = {counter % 0: "20x200"}  # of long ago, on a node that stays
    short = {counter % number: f"_x99 1x{number % 3} stale" for number in range(1, most + 2)}
    stays = {counter % 0: f"20x99 {21 + most}x100"}
    times = (95, 105, 106 + minutes)
    for series in (old | short, stays):
        assert [fires(alert, minute, series, tmp_path) for minute in times] == [False, True, False]
    enough = dict(list(short.items())[:most])
    assert not fires(alert, 105, old | enough, tmp_path)


@prometheus
@pytest.mark.parametrize(
    ("stage", "tokens", "expected"),
    [("stage_one", "0x80", True), ("stage_two", "0+9x80", False), ("teacher_labels", "0x80", False)],
)
def test_trainings_without_tokens_stand_still_and_no_others_of_their_lane(stage, tokens, expected, tmp_path):
    series = {
        f'ray_tlm_stages_running{{lane="train",stage="{stage}",process="driver"}}': "1x80",
        'ray_tlm_training_tokens_total{stage="stage_one"}': tokens,
    }
    assert fires("TlmTrainingsStandStill", 60, series, tmp_path) is expected


@prometheus
@pytest.mark.parametrize(("rise", "expected"), [("0.2x80", False), ("0x20 1.2x60", True)])
def test_a_loss_that_rises_is_told_and_not_that_another_trainings_is_higher(rise, expected, tmp_path):
    series = {
        'ray_tlm_training_loss{stage="stage_one",loss="general_mlm"}': "2x20 9x60",
        'ray_tlm_training_loss_rise{stage="stage_one",loss="general_mlm"}': rise,
    }
    assert fires("TlmLossRises", 60, series, tmp_path) is expected


def test_a_metric_needs_no_ray_and_loads_none():
    code = "import sys; from tlm_ray import metrics; metrics.TOKENS.add(1, stage='x'); print('ray' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout == "False\n" and not told.stderr


@pytest.fixture(scope="module")
def watched(data, tmp_path_factory):
    """What a node exported while a training was made, found, and an item's worker died."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # no other Ray of the tests, which may have a dashboard
    more = {
        "RAY_TMPDIR": folder,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]),
        "RAY_metrics_report_interval_ms": "2000",
    }
    command = [sys.executable, "tests/watched.py", str(data), str(tmp_path_factory.mktemp("watched"))]
    told = subprocess.run(command, cwd=ROOT, env=os.environ | more, capture_output=True, text=True, timeout=600)
    shutil.rmtree(folder, ignore_errors=True)
    assert told.returncode == 0, told.stdout + told.stderr
    return json.loads(told.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.long
def test_a_node_exports_what_was_made_and_found_searched_and_trained(watched):
    made, done, seen = watched["made"], watched["done"], watched["seen"]
    stages = {name: value for name, value in done.items() if name.startswith("ray_tlm_stages_total")}
    assert stages == {f"ray_tlm_stages_total outcome=made stage={name}": 1.0 for name in made} | {
        "ray_tlm_stages_total outcome=found stage=metrics": 1.0
    }
    for name, record in made.items():
        within = {
            float(series.partition("le=")[2].split()[0]): value
            for series, value in done.items()
            if series.startswith("ray_tlm_stage_seconds_bucket") and series.endswith(f" stage={name}")
        }
        assert len(within) == 12
        assert within == {bound: float(record["seconds"] <= bound) for bound in within}
    passages = made["passages"]["facts"]["passages"]
    assert done["ray_tlm_passages_total work=count terms"] == done["ray_tlm_passages_total work=search"] == passages
    assert done["ray_tlm_items_total work=search"] == 4
    for name in ("stage_one", "stage_two"):
        assert done[f"ray_tlm_training_tokens_total stage={name}"] == made[name]["facts"]["tokens"]
        *_, last = made[name]["facts"]["history"]
        assert seen[f"ray_tlm_training_loss loss=task stage={name}"] == last["task"]
        assert 0 < seen[f"ray_tlm_training_utilisation stage={name}"] < 1
    assert not any(series.startswith(("ray_tlm_training_loss", "ray_tlm_training_util")) for series in done), "it ended"


@pytest.mark.slow
@pytest.mark.long
def test_a_node_exports_what_waits_for_as_long_as_it_waits_and_what_began_anew(watched):
    queue, done = watched["queue"], watched["done"]
    assert queue["ray_tlm_items_waiting work=wait"] == 2 and queue["ray_tlm_items_running work=wait"] == 1
    assert done["ray_tlm_items_waiting work=wait"] == done["ray_tlm_items_running work=wait"] == 0
    assert done["ray_tlm_items_lost_total work=wait"] == 1 and done["ray_tlm_items_total work=wait"] == 3
    assert [done[f"ray_tlm_stages_waiting lane={lane}"] for lane in rooms(1)] == [0] * 3
    running = {series: value for series, value in done.items() if series.startswith("ray_tlm_stages_running")}
    assert "ray_tlm_stages_running lane=train process=driver stage=stage_one" in running
    assert not any(running.values())


@pytest.mark.slow
@pytest.mark.long
def test_a_node_exports_that_a_training_was_killed_and_went_on(watched):
    assert watched["killed"]["ray_tlm_trainings_resumed_total stage=stage_one"] == 1
    assert watched["killed"]["ray_tasks IsRetry=1 Name=train_alone"] == 1, "which the page and the dashboard ask for"


WITH_DASHBOARD = """
import ray, sys
from tlm_ray import ray_options
context = ray.init(address="local", num_cpus=1, **(ray_options() | {"include_dashboard": True, "dashboard_port": 0}))
(node,) = ray.nodes()
print(f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}", flush=True)
input()
"""


@pytest.mark.slow
@pytest.mark.long
def test_prometheus_finds_nodes_in_a_file_that_ray_writes_where_it_has_a_dashboard(watched):
    assert watched["discovery"] == [], "the project's own Ray has none"
    (job,) = yaml.safe_load((ROOT / "cluster" / "prometheus.yaml").read_text())["scrape_configs"]
    (asked,) = (Path(file) for discovery in job["file_sd_configs"] for file in discovery["files"])
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_DASHBOARD],
        cwd=ROOT, env=os.environ | {"RAY_TMPDIR": folder}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = iter(process.stdout.readline, "")
        node = next(line.strip() for line in lines if re.fullmatch(r"[\d.]+:\d+\n", line))
        written = Path(folder) / asked.relative_to("/tmp")  # below RAY_TMPDIR, which is /tmp where nobody sets it
        wait_for(lambda: written.exists() and node in written.read_text())
        (group,) = json.loads(written.read_text())
        assert node in group["targets"]
        assert not any("tlm" in series for series in scraped(node)), "it answers, and no run was there"
    finally:
        process.communicate("\n")
        shutil.rmtree(folder, ignore_errors=True)
