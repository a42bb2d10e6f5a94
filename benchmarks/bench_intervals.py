"""How often an interval holds the difference that there is, and how often a table of equal rows shows one.

    python benchmarks/bench_intervals.py
    python benchmarks/bench_intervals.py --tables 100 --only citation_intent

Predictions are made up: some rows are hard for all systems and some for one, seeds differ in strength and lean to other
classes, and rows of one text are hard together. `compare` tells the differences. Prints lines of Markdown tables.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import tyro

from tlm_ray.evaluation.confusions import accuracy, macro_f1
from tlm_ray.evaluation.scores import Metric
from tlm_ray.report import Comparison, Difference, Predictions, compare
from tlm_ray.report.formats import markdown_rows
from tlm_ray.report.statistics.differences import LEVEL, over_tasks


def _quick(name: str, of_confusions: Callable[[np.ndarray], np.ndarray]) -> Metric:
    """Return a metric that does not ask scikit-learn, whose checks of its input are 9 tenths of the time here."""

    def compute(gold: np.ndarray, predicted: np.ndarray) -> float:
        classes = 1 + int(max(gold.max(), predicted.max()))
        counts = np.bincount(gold * classes + predicted, minlength=classes**2)
        return float(of_confusions(counts.reshape(classes, classes)))

    return Metric(name=name, compute=compute, of_confusions=of_confusions)


METRICS = {"accuracy": _quick("right", accuracy), "macro_f1": _quick("mean F1", macro_f1)}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A test set and systems that are tried on it."""

    name: str
    """how the table calls it"""
    rows: int
    """of the test set"""
    classes: tuple[float, ...]
    """how often each class is drawn, in any unit"""
    groups: int = 0
    """texts that the rows belong to, 0 where each has its own"""
    strength: float = 3.0
    """how far the right class's number lies above the others'"""
    lean: float = 1.0
    """to frequent classes, times the logarithm of their shares"""
    shared: float = 1.0
    """spread of what makes a row hard for all systems"""
    own: float = 1.0
    """spread of what makes a row hard for one system"""
    seed_strength: float = 0.05
    """spread of seeds' strengths, relative"""
    seed_lean: float = 0.1
    """spread of what seeds add to a class"""
    noise: float = 0.4
    """spread of what a seed adds to a row's class"""

    def predictions(self, draw: np.random.Generator, leads: tuple[float, ...], seeds: int) -> list[np.ndarray]:
        """Return gold labels, groups (rows,) and each system's predictions (seeds, rows); leads add to the strength."""
        share = np.array(self.classes) / sum(self.classes)
        groups, gold = self._texts(draw, share)
        common, systems = self._hard(draw, gold, groups, self.shared), []
        for lead in leads:
            hard = common + self._hard(draw, gold, groups, self.own) + self.lean * np.log(share)
            systems.append(np.array([self._run(draw, hard, gold, self.strength + lead) for _ in range(seeds)]))
        return [gold, groups, *systems]

    def _texts(self, draw: np.random.Generator, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw the rows' groups and classes; half of the rows of a text have the text's main class."""
        gold = draw.choice(len(share), self.rows, p=share)
        if not self.groups:
            return np.arange(self.rows), gold
        more = draw.integers(0, self.groups, self.rows - self.groups)
        groups, main = np.concatenate([np.arange(self.groups), more]), draw.choice(len(share), self.groups, p=share)
        return groups, np.where(draw.random(self.rows) < 0.5, main[groups], gold)

    def _hard(self, draw: np.random.Generator, gold: np.ndarray, groups: np.ndarray, spread: float) -> np.ndarray:
        """Draw what is added to each row's classes, (rows, classes); the rows of a text share a part of it."""
        hard = spread * draw.normal(size=(self.rows, len(self.classes)))
        if self.groups:
            hard[np.arange(self.rows), gold] += spread * draw.normal(size=self.groups)[groups]
        return hard

    def _run(self, draw: np.random.Generator, hard: np.ndarray, gold: np.ndarray, strength: float) -> np.ndarray:
        said = hard + self.seed_lean * draw.normal(size=hard.shape[1]) + self.noise * draw.normal(size=hard.shape)
        said[np.arange(self.rows), gold] += strength * (1 + self.seed_strength * draw.normal())
        return said.argmax(axis=1)


SCIIE = (0.55, 0.13, 0.09, 0.07, 0.065, 0.06, 0.035)
SETTINGS = (
    Setting(name="citation_intent", rows=139, classes=(71, 26, 25, 7, 5, 5)),
    Setting(name="sciie, rows apart", rows=974, classes=SCIIE),
    Setting(name="sciie", rows=974, classes=SCIIE, groups=397),
)
EQUAL, APART = (0.0, 0.0), (0.3, 0.0)
LEVELS = (0.05, 0.01, 0.002)  # the last is Holm's first for 25 differences
MIXED = 0.1  # share of predictions by which the second of two rows of the same trainings is another's


def rows_of(
    setting: Setting, draw: np.random.Generator, leads: tuple[float, ...], seeds: int, *, task: str = "t"
) -> dict[str, list[Predictions]]:
    """Return the rows of a made-up table by metric, called r0, r1 and so on."""
    gold, groups, *systems = setting.predictions(draw, leads, seeds)
    return {
        name: [
            Predictions(row=f"r{place}", task=task, metric=metric, gold=gold, predicted=runs, groups=groups)
            for place, runs in enumerate(systems)
        ]
        for name, metric in METRICS.items()
    }


def differences(
    setting: Setting,
    draw: np.random.Generator,
    leads: tuple[float, float],
    seeds: int,
    tables: int,
    *,
    are_kin: bool = False,
) -> dict[str, list[Difference]]:
    """Return the difference of two rows in so many tables, by metric; see `kin`."""
    found: dict[str, list[Difference]] = {metric: [] for metric in METRICS}
    for _ in range(tables):
        drawn = rows_of(setting, draw, leads, seeds)
        mixed = draw.random((seeds, setting.rows)) < MIXED
        for metric, rows in drawn.items():
            found[metric].append(compare(kin(rows, mixed) if are_kin else rows)[0])
    return found


def kin(rows: list[Predictions], mixed: np.ndarray) -> list[Predictions]:
    """Return the first row, and another of the same trainings that predicts where `mixed` what the second row does.

    So does an encoder beside a linear model. The two are equal in the mean if the given rows are.
    """
    one, other = rows
    return [one, replace(other, predicted=np.where(mixed, other.predicted, one.predicted), members=one.row)]


def coverage(found: list[Difference], truth: float) -> float:
    """Return how many of the intervals hold the truth, as a share."""
    return float(np.mean([each.interval[0] <= truth <= each.interval[1] for each in found]))


def any_shown(
    setting: Setting, draw: np.random.Generator, tables: int, *, tasks: int, rows: int = 8, seeds: int = 3
) -> dict[str, tuple[float, float]]:
    """Return in what share of tables of equal rows a difference from the first is bold, and would be uncorrected."""
    shown = {name: np.zeros(2) for name in METRICS}
    for _ in range(tables):
        drawn = [rows_of(setting, draw, (0.0,) * rows, seeds, task=f"t{task}") for task in range(tasks)]
        for name, counts in shown.items():
            compared = compare([row for own in drawn for row in own[name]])
            lines = Comparison(row="r0", differences=tuple(compared)).lines
            told = [each for _, line in lines for each in line if each is not None]
            counts += [any(each.is_shown for each in told), any(each.p < LEVEL for each in told)]
    return {name: (float(counts[0]) / tables, float(counts[1]) / tables) for name, counts in shown.items()}


def of_means(
    setting: Setting, draw: np.random.Generator, tables: int, *, tasks: int, seeds: int
) -> dict[str, np.ndarray]:
    """Return p of the mean difference of two equal rows over tasks in so many tables, by metric."""
    found = {name: np.zeros(tables) for name in METRICS}
    for table in range(tables):
        drawn = [rows_of(setting, draw, EQUAL, seeds, task=f"t{task}") for task in range(tasks)]
        for name, p in found.items():
            p[table] = over_tasks([compare(own[name])[0] for own in drawn]).p
    return found


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """What to simulate."""

    tables: int = 600
    """of each cell"""
    seed: int = 0
    """of what is drawn"""
    only: tuple[str, ...] = field(default=tuple(setting.name for setting in SETTINGS))
    """test sets, by name"""


def covered(options: Intervals, setting: Setting) -> Iterator[list[str]]:
    """Yield a line for each metric, number of seeds, and of equal rows, rows apart, and rows of the same trainings."""
    kinds = (("equal", EQUAL), ("apart", APART), ("same trainings", EQUAL))
    for seeds, (words, leads) in product((2, 3, 5), kinds):
        draw = np.random.default_rng([options.seed, seeds, len(words)])
        are_kin = words == "same trainings"
        for metric, found in differences(setting, draw, leads, seeds, options.tables, are_kin=are_kin).items():
            means = np.array([each.mean for each in found])
            truth = 0.0 if leads == EQUAL else float(means.mean())
            ratio = np.mean([each.error**2 for each in found]) / means.var()
            told = [f"{truth:.1f}", f"{means.std():.1f}", percent(coverage(found, truth), len(found)), f"{ratio:.2f}"]
            yield [setting.name, metric, str(seeds), words, *told]


def percent(share: float, tables: int) -> str:
    """Return a share with its standard error."""
    return f"{100 * share:.1f} ± {100 * np.sqrt(share * (1 - share) / tables):.1f} %"


def main() -> None:
    options = tyro.cli(Intervals, description=__doc__)
    chosen = [setting for setting in SETTINGS if setting.name in options.only]
    header = ["test set", "metric", "seeds", "rows", "difference", "its spread", "intervals that hold it"]
    show([*header, "error² / variance"], (line for setting in chosen for line in covered(options, setting)))
    print()
    lines = (line for setting in chosen for line in told_wrongly(options, setting))
    show(["test set", "metric", "seeds", "tasks", "tables with a bold difference", "uncorrected"], lines)
    print()
    lines = (line for setting in chosen for line in small_p(options, setting))
    show(["test set", "metric", "seeds", "tasks", *(f"p < {level:g}" for level in LEVELS)], lines)


def told_wrongly(options: Intervals, setting: Setting) -> Iterator[list[str]]:
    """Yield a line for each number of seeds and tasks, and metric."""
    for seeds, tasks in product((2, 3), (1, 3)):
        draw = np.random.default_rng([options.seed, seeds, tasks])
        for metric, shares in any_shown(setting, draw, options.tables, tasks=tasks, seeds=seeds).items():
            told = (percent(share, options.tables) for share in shares)
            yield [setting.name, metric, str(seeds), str(tasks), *told]


def small_p(options: Intervals, setting: Setting) -> Iterator[list[str]]:
    """Yield a line for each number of seeds and tasks, and metric: how often the mean of equal rows has a small p."""
    tables = 4 * options.tables
    for seeds, tasks in product((2, 3), (1, 6)):
        draw = np.random.default_rng([options.seed, seeds, tasks])
        for metric, p in of_means(setting, draw, tables, tasks=tasks, seeds=seeds).items():
            shares = (percent(float((p < level).mean()), tables) for level in LEVELS)
            yield [setting.name, metric, str(seeds), str(tasks), *shares]


def show(header: list[str], lines: Iterator[list[str]]) -> None:
    """Print a Markdown table, each line as soon as it is known."""
    print("\n".join(markdown_rows(header, [], right=())), flush=True)
    for line in lines:
        print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
