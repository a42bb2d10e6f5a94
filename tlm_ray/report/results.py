"""Results as users hold them: they show themselves in a notebook, and become a data frame or LaTeX."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tlm_ray.report.frames import results_frame
from tlm_ray.report.tables.exports import table_markdown
from tlm_ray.report.tables.latex import table_latex
from tlm_ray.report.tables.results import ResultsData

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Results(ResultsData):
    """An experiment's results, which a notebook shows as a table and a figure.

    ValueError if the cells do not form one table.
    """

    def __repr__(self) -> str:
        return table_markdown(self).rstrip("\n")

    def _repr_html_(self) -> str:
        from tlm_ray.report.page import elements  # imported here, because matplotlib takes 0.4 s

        return elements.results_html(self)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row per row of the table and columns per task, see `tlm_ray.report.frames.results_frame`."""
        return results_frame(self)

    def to_latex(self) -> str:
        """Return the table as LaTeX, which needs the package booktabs."""
        return table_latex(self)
