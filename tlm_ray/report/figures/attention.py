"""Count and draw positional and vertical attention heads (Yao et al. 2022, figure 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlm_ray.report.figures import drawing
from tlm_ray.report.formats import markdown_rows, score_text

SHARE = 0.9  # share of queries with the largest weight there: at least 0.9 for positional heads, more for vertical ones
RED = "#c1121f"


@dataclass(frozen=True, kw_only=True, eq=False)
class Heads:
    """The heads of one trained model."""

    row: str
    """the table's row"""
    task: str
    """the task's short name"""
    previous: np.ndarray
    """(layers, heads), share of queries whose largest weight is on the previous token"""
    next: np.ndarray
    """the same share for the next token"""
    marks: np.ndarray
    """the same share for [CLS], [SEP] or the full stop"""

    @property
    def positional(self) -> np.ndarray:
        """Heads that attend to either neighbour, bool (layers, heads): the paper's definition."""
        return self.previous + self.next >= SHARE

    @property
    def offset(self) -> np.ndarray:
        """Heads that always attend to the same neighbour, bool (layers, heads): Voita et al. (2019)."""
        return np.maximum(self.previous, self.next) >= SHARE

    @property
    def vertical(self) -> np.ndarray:
        """Heads that attend to special tokens or full stops, bool (layers, heads)."""
        return self.marks > SHARE


KINDS = {"positional": "positional", "the same neighbour": "offset", "vertical": "vertical"}


def heads_markdown(models: Sequence[Heads]) -> str:
    """Return a Markdown table: the number of heads of each kind per row and task, mean ± deviation over seeds."""
    groups: dict[tuple[str, str], list[Heads]] = {}
    for each in models:
        groups.setdefault((each.row, each.task), []).append(each)
    lines = [
        [row, task, str(own[0].previous.size)]
        + [score_text([float(getattr(each, kind).sum()) for each in own]) for kind in KINDS.values()]
        for (row, task), own in groups.items()
    ]
    rows = markdown_rows(["", "task", "heads", *KINDS], lines, right=range(2, 6))
    note = (
        f"- A head is positional if at least {SHARE:.0%} of the queries have their largest weight on a neighbour ("
        f"either, or always the same), and vertical if more than {SHARE:.0%} have it on [CLS], [SEP] or a full stop."
    )
    return "\n".join([*rows, "", note]) + "\n"


def heads_records(models: Sequence[Heads]) -> list[dict[str, Any]]:
    """Return the shares and counts of each model as plain data."""
    return [
        {"row": each.row, "task": each.task}
        | {name: getattr(each, name).tolist() for name in ("previous", "next", "marks")}
        | {kind: int(getattr(each, kind).sum()) for kind in KINDS.values()}
        for each in models
    ]


def heads_figure(models: Sequence[Heads], examples: Mapping[int, np.ndarray]) -> bytes:
    """Return a PNG: every head's attention over one text; positional heads are red, vertical ones faint.

    examples: by a model's place in `models`, weights (layers, heads, length, length).
    """
    columns = max(models[place].previous.shape[1] for place in examples)
    lines = sum(models[place].previous.shape[0] for place in examples)
    figure, panels = drawing.make_grid(lines, columns, side_in=0.9)
    line = 0
    for place, weights in examples.items():
        model = models[place]
        for layer, heads in enumerate(weights):
            for head, own in enumerate(heads):
                panel = panels[line][head]
                panel.imshow(own.astype(np.float32), cmap="Greys", vmin=0.0, vmax=float(own.max()), aspect="equal")
                if model.vertical[layer, head]:
                    panel.images[0].set_alpha(0.35)
                if model.positional[layer, head]:
                    for spine in panel.spines.values():
                        spine.set(visible=True, color=RED, linewidth=2.0)
            panels[line][0].set_ylabel(f"{layer + 1}", fontsize=7, color=drawing.INK)
            line += 1
        panels[line - len(weights)][0].set_title(
            f"{model.row}, {model.task}", fontsize=8, color=drawing.INK, loc="left"
        )
    return drawing.to_png(figure)
