"""How often intervals hold the difference that there is: a small version of benchmarks/bench_intervals.py."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tlm_ray.report import compare

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from bench_intervals import EQUAL, SETTINGS, any_shown, coverage, differences, rows_of

CITATION, APART, SCIIE = SETTINGS


@pytest.mark.parametrize(("setting", "seeds"), [(CITATION, 3), (CITATION, 5), (SCIIE, 3)])
def test_95_of_100_intervals_hold_that_rows_are_equal(setting, seeds):
    found = differences(setting, np.random.default_rng(0), EQUAL, seeds, tables=150)
    assert set(found) == {"accuracy", "macro_f1"}
    for metric, each in found.items():
        assert 0.93 <= coverage(each, 0.0) <= 0.98, metric


@pytest.mark.parametrize("seeds", [2, 3])
def test_intervals_of_rows_of_the_same_trainings_are_wide_enough(seeds):
    found = differences(SCIIE, np.random.default_rng(3), EQUAL, seeds, tables=150, are_kin=True)
    for metric, each in found.items():
        assert all(one.are_kin for one in each) and coverage(each, 0.0) >= 0.93, metric


def test_rows_of_one_text_that_are_taken_apart_make_intervals_too_narrow():
    draw, held = np.random.default_rng(1), []
    setting = replace(SCIIE, groups=120, noise=0.1, seed_strength=0.0, seed_lean=0.0)
    for _ in range(300):
        rows = rows_of(setting, draw, EQUAL, 3)["accuracy"]
        apart = [replace(row, groups=None) for row in rows]
        held.append([low <= 0 <= high for low, high in (compare(own)[0].interval for own in (rows, apart))])
    together, apart = np.mean(held, axis=0)
    assert 0.92 <= together <= 0.97 and apart < 0.87


def test_a_table_of_equal_rows_seldom_shows_a_difference():
    for corrected, uncorrected in any_shown(CITATION, np.random.default_rng(2), 50, tasks=3).values():
        assert corrected <= 0.06 and uncorrected > 0.3
