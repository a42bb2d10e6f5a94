"""Write results as files, for readers and programs."""

import re
from collections.abc import Sequence

from tlm_ray import storage
from tlm_ray.report.story import Story
from tlm_ray.report.sweeps import Trial, sort_trials, sweep_csv, sweep_json, sweep_markdown
from tlm_ray.report.tables.exports import table_csv, table_json, table_markdown
from tlm_ray.report.tables.latex import table_latex
from tlm_ray.report.tables.results import ResultsData


def publish(name: str, results: ResultsData, out: str, story: Story | None = None) -> dict[str, str]:
    """Write an experiment's results as .md, .csv, .json, .tex, .png and .html; return file name to location.

    The figure shows scores over the varied number, or over FLOPs. The page shows everything, including the story if
    given. Files are named `name`, in the location `out`; existing ones are replaced.
    """
    from tlm_ray.report.figures.drawing import to_png  # imported here, because matplotlib takes 0.4 s
    from tlm_ray.report.figures.scores import score_figure
    from tlm_ray.report.page import experiment_page

    texts = {"md": table_markdown(results), "csv": table_csv(results), "json": table_json(results)}
    texts |= {"tex": table_latex(results), "html": experiment_page(name, results, story)}
    return _publish(name, out, texts, to_png(score_figure(results)))


def publish_sweep(
    name: str, trials: Sequence[Trial], out: str, *, parameters: Sequence[str], story: Story | None = None
) -> dict[str, str]:
    """Write the trials of a sweep, best first, as .md, .csv, .json, .png and .html; otherwise like `publish`.

    parameters: names of the varied parameters, each a column of the table and a panel of the figure.
    """
    from tlm_ray.report.figures.drawing import to_png
    from tlm_ray.report.figures.sweep_figures import slice_figure, study_of
    from tlm_ray.report.page import sweep_page

    ordered = sort_trials(trials, parameters)
    texts = {"md": sweep_markdown(ordered), "csv": sweep_csv(ordered), "json": sweep_json(ordered)}
    texts |= {"html": sweep_page(name, ordered, parameters, story)}
    return _publish(name, out, texts, to_png(slice_figure(study_of(ordered, parameters))))


def check_name(name: str) -> None:
    """Raise ValueError for a name that is not a valid file name everywhere."""
    if not re.fullmatch(r"\w[\w .,+=-]*", name):
        raise ValueError(f"name {name!r}: it names files; use only letters, digits, spaces and .,+=-_")


def _publish(name: str, out: str, texts: dict[str, str], figure: bytes) -> dict[str, str]:
    check_name(name)
    files = {f"{name}.{kind}": text.encode() for kind, text in texts.items()}
    files[f"{name}.png"] = figure
    uris = {file: storage.join(out, file) for file in files}
    for file, data in files.items():
        storage.write_bytes(uris[file], data)
    return uris
