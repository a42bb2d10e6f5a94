"""Counts of operations as the paper prints them."""

import math


def human(flops: float) -> str:
    """Return a count of operations as the paper prints it, such as "2.74E18"."""
    if not math.isfinite(flops) or flops < 0:
        raise ValueError(f"flops is {flops}; a finite count of 0 or more is allowed")
    mantissa, exponent = f"{flops:.2E}".split("E")
    return f"{mantissa}E{int(exponent)}"
