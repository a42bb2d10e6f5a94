"""Schedules, against transformers' own."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import SCHEDULE
from transformers import get_linear_schedule_with_warmup


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(steps=st.integers(1, 200), share=st.floats(0, 1), rate=st.floats(1e-6, 1))
def test_learning_rate_is_transformers_linear_schedule_with_warmup(steps, share, rate):
    schedule = replace(SCHEDULE, steps=steps, warmup_steps=int(share * steps), learning_rate=rate)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    reference = get_linear_schedule_with_warmup(optimizer, schedule.warmup_steps, steps)
    for step in range(steps):
        assert schedule.rate(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12, abs=0)
        optimizer.step()
        reference.step()


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch_rows": 0}, {"evaluate_every": 0}, {"warmup_steps": 13}, {"warmup_steps": -1}]
)
def test_a_schedule_that_cannot_be_names_the_number(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} {next(iter(wrong.values()))}: must"):
        replace(SCHEDULE, **wrong)
