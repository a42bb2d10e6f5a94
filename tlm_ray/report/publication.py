"""Results as files: the same table for people, for programs and for the eye, under one location."""

from collections.abc import Sequence

from tlm_ray import storage
from tlm_ray.report.cells import Cell
from tlm_ray.report.figures import score_against_flops
from tlm_ray.report.sweep_figures import sweep_figure
from tlm_ray.report.sweeps import Trial, sweep_csv, sweep_json, sweep_markdown
from tlm_ray.report.tables import table_csv, table_json, table_markdown


def publish_table(cells: Sequence[Cell], out: str, *, notes: Sequence[str] = ()) -> dict[str, str]:
    """Write main_table.md, .csv, .json and .png under the URI `out`; return file name to URI.

    `notes` go under the Markdown table. What is there already is replaced. Raises ValueError for
    cells that do not make one table, before anything is written.
    """
    files = {
        "main_table.md": table_markdown(cells, notes=notes).encode(),
        "main_table.csv": table_csv(cells).encode(),
        "main_table.json": table_json(cells).encode(),
        "main_table.png": score_against_flops(cells),
    }
    return _write(files, out)


def publish_sweep(trials: Sequence[Trial], out: str) -> dict[str, str]:
    """Write sweep.md, .csv, .json and .png under the URI `out`; return file name to URI.

    The trials are ordered by development score, the best first. What is there already is
    replaced. Raises ValueError for trials that lack a field, before anything is written.
    """
    files = {
        "sweep.md": sweep_markdown(trials).encode(),
        "sweep.csv": sweep_csv(trials).encode(),
        "sweep.json": sweep_json(trials).encode(),
        "sweep.png": sweep_figure(trials),
    }
    return _write(files, out)


def _write(files: dict[str, bytes], out: str) -> dict[str, str]:
    uris = {name: storage.join(out, name) for name in files}
    for name, data in files.items():
        storage.write_bytes(uris[name], data)
    return uris
