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
