"""Cells and trials of made-up scores, and how to read what is made of them."""

import io
import random

import numpy as np
from PIL import Image

from tlm_ray import report

ROWS = ("task data only", "TLM, random text", "TLM, BM25 text")


def make_cells(tasks, *, rows=ROWS, seeds=3, flops=1e15):
    draw = random.Random(7)
    micro = ("chemprot", "rct-20k")
    return [
        report.Cell(
            row=row,
            task=task,
            metric="micro_f1" if task in micro else "macro_f1",
            scores=tuple(30 + 6 * level + draw.random() for _ in range(seeds)),
            dev_scores=tuple(35 + 6 * level + draw.random() for _ in range(seeds)),
            flops=flops * (level + 1),
            flops_counted=1.1 * flops * (level + 1),
            data_bytes=45_000_000,
            wall_s=600.0,
        )
        for level, row in enumerate(rows)
        for task in tasks
    ]


def of(cells, differences=(), *, notes=(), **view):
    """Return what an experiment of such cells shows."""
    return report.Results(cells=cells, differences=differences, notes=notes, view=report.View(**view))


PARAMETERS = ("k", "rho1", "rho2", "method")


def make_trials():
    draw = random.Random(7)
    return [
        {"k": k, "rho1": rho1, "rho2": 20, "method": method, "dev": draw.uniform(30, 50)}
        for method in ("bm25", "random")
        for k in (10, 100)
        for rho1 in (0, 3, 19)
    ]


def split_markdown(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines]


def pixels(png):
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        return np.asarray(image.convert("RGB"))


def has_colour(image, colour):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((image == wanted).all(axis=-1).any())


def make_predictions(tasks, *, shares, seeds=3, rows=500):
    """Predictions of rows that are right about so often, by the name of the row."""
    draw = np.random.default_rng(7)
    found = []
    for task in tasks:
        gold, hard = draw.integers(0, 3, rows), draw.random(rows)
        for row, share in shares.items():
            right = hard + 0.1 * draw.normal(size=(seeds, rows)) < share
            predicted = np.where(right, gold, (gold + 1) % 3)
            found.append(report.Predictions(row=row, task=task, metric="accuracy", gold=gold, predicted=predicted))
    return found


def make_differences(tasks, shares, *, seeds=3):
    """Return how such rows differ."""
    return report.compare(make_predictions(tasks, shares=shares, seeds=seeds))
