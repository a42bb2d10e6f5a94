"""Prepare the page sections besides the scores, for the template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray.report.page.evidence import evidence_of, marked
from tlm_ray.report.page.learning import learning_charts
from tlm_ray.report.page.settings import compared
from tlm_ray.report.story import Made, Selected, Story

SOURCES = 4  # number of sources of a selection to name
LONGEST = 32  # maximum characters of a source's name, which may be a location


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The total cost of all stages of one kind."""

    name: str
    stages: int
    seconds: float
    flops: float
    flops_counted: float
    """0 if unknown for a stage"""
    estimated_s: float | None
    """None if a stage has no estimate"""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A selection of general text, and the rows that train on it."""

    of: Selected
    rows: Sequence[str]
    sources: str
    """in words; "" if unknown"""


def told(story: Story | None) -> dict[str, Any]:
    """Return the template's values for a story; the template omits empty ones."""
    story = story or Story()
    return {
        "learning": learning_charts(story.learned),
        "evidence": evidence_of(story.examined),
        "cases": marked(story.cases),
        "recipes": compared(story.settings),
        "selections": selections(story.selected),
        "tasks": story.tasks,
        "costs": costs(story.made),
        "made": story.made,
        "hours": story.hours,
        "provenance": story.provenance,
    }


def costs(made: Sequence[Made]) -> list[Cost]:
    """Return the cost per kind of stage, in order of execution, and the total."""
    names = list(dict.fromkeys(each.name for each in reversed(made)))[::-1]
    kinds = {name: [each for each in made if each.name == name] for name in names}
    return [_cost(name, own) for name, own in kinds.items()] + ([_cost("all", made)] if made else [])


def _cost(name: str, made: Sequence[Made]) -> Cost:
    trained = [each for each in made if each.flops]
    estimates = [each.estimated_s for each in made]
    return Cost(
        name=name,
        stages=len(made),
        seconds=sum(each.seconds for each in made),
        flops=sum(each.flops for each in trained),
        flops_counted=sum(each.flops_counted for each in trained) if all(t.flops_counted for t in trained) else 0.0,
        estimated_s=None if None in estimates else sum(value or 0.0 for value in estimates),
    )


def selections(selected: Sequence[Selected]) -> list[Selection]:
    """Return each task's selections once."""
    rows: dict[tuple[Any, ...], list[Selected]] = {}
    for each in selected:
        rows.setdefault((each.task, each.method, each.k, each.passages, each.text_bytes), []).append(each)
    return [Selection(of=own[0], rows=[each.row for each in own], sources=_sources(own[0])) for own in rows.values()]


def _sources(selected: Selected) -> str:
    """Name the sources with most passages, with their shares."""
    named = list(selected.sources.items())[:SOURCES]
    rest = 1 - sum(share for _, share in named)
    words = [f"{_end(name)} {100 * share:.0f} %" for name, share in named]
    return ", ".join(words + ([f"others {100 * rest:.0f} %"] if named and rest > 0.005 else []))


def _end(name: str) -> str:
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"
