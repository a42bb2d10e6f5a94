"""A corpus that grows while jobs are stopped and others run in between: `growth_histories.py` has the histories."""

from collections import Counter

from growth_histories import differing

HISTORIES = 8


def test_a_job_that_was_stopped_gives_what_an_empty_root_gives(data):
    counts: Counter = Counter()
    wrong = {seed: found for seed in range(HISTORIES) if (found := differing(seed, data / "tasks", counts))}
    assert not wrong
    assert counts["compared"] >= HISTORIES
    assert all(counts[what] for what in ("stopped", "forgotten", "grown", "searched again")), counts
