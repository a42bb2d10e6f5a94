"""Results as files: the same table for people, for programs and for the eye, under one location and one name."""

import re
from collections.abc import Sequence

from tlm_ray import storage
from tlm_ray.report.cells import Cell
from tlm_ray.report.comparison import Comparison
from tlm_ray.report.figures import score_against_flops
from tlm_ray.report.score_tables import Score, scores_csv, scores_json, scores_markdown
from tlm_ray.report.sweep_figures import sweep_figure
from tlm_ray.report.sweeps import Trial, sweep_csv, sweep_json, sweep_markdown
from tlm_ray.report.tables import table_csv, table_json, table_markdown


def publish_table(
    name: str, cells: Sequence[Cell], out: str, comparison: Comparison | None = None, *, notes: Sequence[str] = ()
) -> dict[str, str]:
    """Write an experiment's table as .md, .csv, .json and .png; `notes` go under the Markdown table.

    The files are called `name` and lie under the location `out`; what is there already is replaced. Returns file name
    to location. Raises ValueError for cells that do not make one table, before anything is written.
    """
    markdown = table_markdown(cells, comparison, notes=notes)
    texts = {"md": markdown, "csv": table_csv(cells), "json": table_json(cells, comparison)}
    return _publish(name, out, texts, score_against_flops(cells))


def publish_scores(name: str, scores: Sequence[Score], out: str) -> dict[str, str]:
    """Write a table of scores alone as .md, .csv and .json; else as `publish_table`."""
    return _publish(name, out, {"md": scores_markdown(scores), "csv": scores_csv(scores), "json": scores_json(scores)})


def publish_sweep(name: str, trials: Sequence[Trial], out: str) -> dict[str, str]:
    """Write the trials of a sweep, the best first, as .md, .csv, .json and .png; else as `publish_table`."""
    texts = {"md": sweep_markdown(trials), "csv": sweep_csv(trials), "json": sweep_json(trials)}
    return _publish(name, out, texts, sweep_figure(trials))


def check_name(name: str) -> None:
    """ValueError for a name that cannot be that of files everywhere."""
    if not re.fullmatch(r"\w[\w .,+=-]*", name):
        raise ValueError(f"name {name!r}: it names files; give letters, digits, spaces and .,+=-_ alone")


def _publish(name: str, out: str, texts: dict[str, str], figure: bytes | None = None) -> dict[str, str]:
    check_name(name)
    files = {f"{name}.{kind}": text.encode() for kind, text in texts.items()}
    files |= {} if figure is None else {f"{name}.png": figure}
    uris = {file: storage.join(out, file) for file in files}
    for file, data in files.items():
        storage.write_bytes(uris[file], data)
    return uris
