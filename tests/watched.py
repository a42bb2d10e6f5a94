"""A driver whose Ray is watched as Prometheus would: prints the series of tlm_ray that its node exported, as JSON.

    python tests/watched.py DATA ROOT

queue: while a worker has an item; done: after that; seen: the last value of each by then, since gauges come and go;
killed: after a training was killed and went on.
"""

import json
import os
import re
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_for

REPORTS = 3  # a gauge that is not set again is gone after two


def endpoint() -> str:
    """Return where the only node exports its metrics."""
    import ray

    (node,) = ray.nodes()
    return f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}"


def scraped(target: str) -> dict[str, float]:
    """Return the values of a node's series of tlm_ray, and of Ray's count of tasks, summed over processes."""
    from tlm_ray import metrics

    own = {"le", "IsRetry", "Name"} | {tag for metric in metrics.ALL for tag in metric.tags}
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    for sample in (one for family in families for one in family.samples if re.match("ray_(tlm_|tasks)", one.name)):
        words = [f"{name}={value}" for name, value in sorted(sample.labels.items()) if name in own]
        series = " ".join([sample.name, *words])
        found[series] = found.get(series, 0.0) + sample.value
    return found


class Scraper:
    """Scrapes again and again, and keeps the last value of each series."""

    def __init__(self) -> None:
        self.target, self.seen, self.done = endpoint(), dict[str, float](), threading.Event()
        threading.Thread(target=self._scrape, daemon=True).start()

    def _scrape(self) -> None:
        while not self.done.wait(0.2):
            self.seen |= scraped(self.target)


class Waits:
    """A worker that dies at its first item, the first time, and has none done before it is told to."""

    def __init__(self, folder: str):
        self.folder = Path(folder)

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        died = self.folder / "died"
        if not died.exists():
            died.touch()
            os._exit(1)
        wait_for((self.folder / "go").exists)
        return item


def watch_queue(folder: Path, scraper: Scraper) -> dict[str, float]:
    """Have one worker work on three items; return the series while it has the first, some reports after it got it."""
    from tlm_ray import metrics, parallel

    items, options = [{"number": number} for number in range(3)], {"workers": 1, "title": "wait"}
    work = threading.Thread(target=lambda: list(parallel.each(items, Waits, arguments=(str(folder),), **options)))
    work.start()
    wait_for(lambda: "ray_tlm_items_lost_total work=wait" in scraper.seen)
    told: set[float] = set()

    def reported() -> bool:
        metrics.ITEMS.add(work="beat")
        told.add(scraper.seen.get("ray_tlm_items_total work=beat", 0.0))
        return len(told) > REPORTS

    wait_for(reported)
    queue = scraped(scraper.target)
    (folder / "go").touch()
    work.join()
    return queue


def main(data: str, root: str) -> None:
    import ray
    from killing import killed_in_turn
    from small import laid_out, long_recipe, small_flow

    from tlm_ray import metrics, ray_options
    from tlm_ray.runs.stages.making import make

    ray.init(address="local", num_cpus=2, **ray_options())
    scraper = Scraper()
    metrics.LOSS.set(1.0, wrong="tag")  # which Ray refuses, and costs nothing
    flow = small_flow(Path(data), Path(root) / "tlm", workers=2, shards=4)
    last = laid_out(flow).metrics
    records = make([last], flow.execution.root)
    make([last], flow.execution.root)
    queue = watch_queue(Path(root), scraper)
    wait_for(lambda: scraper.seen.get("ray_tlm_items_total work=wait") == 3)
    done, seen = scraped(scraper.target), dict(scraper.seen)
    long = flow.stages(long_recipe(), "topics", 0).stage_one
    with killed_in_turn(Path(long.folder(flow.execution.root)), "train_alone"):
        make([long], flow.execution.root)
    wait_for(lambda: "ray_tlm_trainings_resumed_total stage=stage_one" in scraper.seen)
    scraper.done.set()
    told = {"queue": queue, "done": done, "seen": seen, "killed": scraped(scraper.target)}
    files = [path.name for path in Path(os.environ["RAY_TMPDIR"]).rglob("prom_metrics_service_discovery.json")]
    made = {record["recipe"]["stage"]: record for record in records.values()}
    print("\n" + json.dumps(told | {"made": made, "discovery": files}))
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
