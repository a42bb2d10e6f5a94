"""What the pages of experiments and of sweeps tell beside the scores, ready for the template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlm_ray.report.page.learning import learning_charts
from tlm_ray.report.page.settings import compared
from tlm_ray.report.story import Made, Selected, Story

SOURCES = 4  # of a selection, named
LONGEST = 32  # characters of a source's name, which may be a location


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What all stages of one kind cost."""

    name: str
    stages: int
    seconds: float
    flops: float
    flops_counted: float
    """0 where a stage's are not known"""
    estimated_s: float | None
    """None where a stage has no estimate"""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """General text, and all rows that learn from it."""

    of: Selected
    rows: Sequence[str]
    sources: str
    """in words, "" where they are not known"""


def told(story: Story | None) -> dict[str, Any]:
    """Return the template's values of a story; what is empty is left out there."""
    story = story or Story()
    return {
        "learning": learning_charts(story.learned),
        "recipes": compared(story.settings),
        "selections": selections(story.selected),
        "tasks": story.tasks,
        "costs": costs(story.made),
        "made": story.made,
        "hours": story.hours,
        "provenance": story.provenance,
    }


def costs(made: Sequence[Made]) -> list[Cost]:
    """Return what stages cost by kind, in the order in which the last of each is made, and what all cost together."""
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
    """Name the sources of most passages, with their shares."""
    named = list(selected.sources.items())[:SOURCES]
    rest = 1 - sum(share for _, share in named)
    words = [f"{_end(name)} {100 * share:.0f} %" for name, share in named]
    return ", ".join(words + ([f"others {100 * rest:.0f} %"] if named and rest > 0.005 else []))


def _end(name: str) -> str:
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"
