"""A corpus that grows while jobs are stopped and others run in between: `growth_histories.py` has the histories."""

from collections import Counter

import pytest
from growth_histories import differing


@pytest.mark.parametrize("seed", range(30))
def test_a_job_that_was_stopped_gives_what_an_empty_root_gives(data, seed):
    counts = Counter()
    assert not differing(seed, data / "tasks", counts)
    assert counts["compared"]
