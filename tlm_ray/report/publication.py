"""Write results as files, for readers and programs."""

import re
from collections.abc import Mapping, Sequence

from tlm_ray import storage
from tlm_ray.report.story import Story
from tlm_ray.report.sweeps import Trial, sort_trials, sweep_csv, sweep_json, sweep_markdown
from tlm_ray.report.tables.exports import table_csv, table_json, table_markdown
from tlm_ray.report.tables.latex import table_latex
from tlm_ray.report.tables.results import ResultsData

KEPT = "kept"  # folder of the files that other tables of the same name do not replace


def publish(name: str, results: ResultsData, out: str, story: Story | None = None, *, key: str = "") -> dict[str, str]:
    """Write an experiment's results as .md, .csv, .json, .tex, .png and .html; return file name to location.

    The figure shows scores over the varied number, or over FLOPs. The page shows everything, including the story if
    given. Files are named `name`, in the location `out`; existing ones are replaced. key: tells these results from
    others of this name; with it a copy stays at `kept_at`, which only the same key replaces.
    """
    from tlm_ray.report.figures.drawing import to_png  # imported here, because matplotlib takes 0.4 s
    from tlm_ray.report.figures.scores import score_figure
    from tlm_ray.report.page import experiment_page

    check_name(name)
    texts = {"md": table_markdown(results), "csv": table_csv(results), "json": table_json(results, story)}
    texts |= {"tex": table_latex(results), "html": experiment_page(name, results, story)}
    return _publish(name, out, texts, to_png(score_figure(results)), key)


def publish_sweep(
    name: str,
    trials: Sequence[Trial],
    out: str,
    *,
    parameters: Sequence[str],
    story: Story | None = None,
    key: str = "",
    ranges: Mapping[str, bool] | None = None,
) -> dict[str, str]:
    """Write the trials of a sweep, best first, as .md, .csv, .json, .png and .html; otherwise like `publish`.

    parameters: names of the varied parameters, each a column of the table and a panel of the figure. ranges:
    those that were sampled from a range, and whether it is on a logarithmic scale.
    """
    from tlm_ray.report.figures.drawing import to_png
    from tlm_ray.report.figures.sweep_figures import slice_figure, study_of
    from tlm_ray.report.page import sweep_page

    check_name(name)
    ordered = sort_trials(trials, parameters)
    texts = {"md": sweep_markdown(ordered), "csv": sweep_csv(ordered), "json": sweep_json(ordered)}
    texts |= {"html": sweep_page(name, ordered, parameters, story, ranges or {})}
    return _publish(name, out, texts, to_png(slice_figure(study_of(ordered, parameters, ranges or {}))), key)


def check_name(name: str) -> None:
    """Raise ValueError for a name that is not a valid file name everywhere."""
    if not re.fullmatch(r"\w[\w .,+=-]*", name):
        raise ValueError(f"name {name!r}: it names files; use only letters, digits, spaces and .,+=-_")


def kept_at(name: str, out: str, key: str) -> str:
    """Return the location of the page that `publish` keeps for a key."""
    return storage.join(out, KEPT, f"{name}_{key}.html")


def _publish(name: str, out: str, texts: dict[str, str], figure: bytes, key: str) -> dict[str, str]:
    files = {kind: text.encode() for kind, text in texts.items()} | {"png": figure}
    for kind, data in files.items() if key else ():
        storage.write_bytes(storage.join(out, KEPT, f"{name}_{key}.{kind}"), data)
    uris = {f"{name}.{kind}": storage.join(out, f"{name}.{kind}") for kind in files}
    for kind, data in files.items():
        storage.write_bytes(uris[f"{name}.{kind}"], data)
    return uris
