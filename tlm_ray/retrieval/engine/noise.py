"""Noise per passage, keyed by a seed and the passage's id, so that sharding has no effect."""

import numpy as np


def uniform(passages: np.ndarray, *, seed: int) -> np.ndarray:
    """Return a number above 0 and below 1 for each passage id, float64, by the finaliser of splitmix64."""
    x = passages.astype(np.uint64) + np.uint64(seed * 0xD1B54A32D192ED03 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0x9E3779B97F4A7C15)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor) + np.uint64(0x9E3779B97F4A7C15)
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def gumbel(passages: np.ndarray, *, seed: int) -> np.ndarray:
    """Return standard Gumbel noise for each passage id, float64."""
    return -np.log(-np.log(uniform(passages, seed=seed)))
