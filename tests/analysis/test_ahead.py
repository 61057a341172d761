"""Forwards that are over on the GPU as soon as the host has ended them."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.analysis.ahead import forwards
from dsprof.run.recorded.moments import COLUMNS, PHASE, UNKNOWN

MS = 1_000_000


def phase(
    path: str, begin: int, seconds: float, behind: float = float("nan"), step: int = 1
) -> dict[str, object]:
    return {"step": step, "rank": 0, "what": PHASE, "path": path, "begin": begin,
            "seconds": seconds, "behind": behind}  # fmt: skip


def told(*rows: dict[str, object]) -> list[bool]:
    return forwards(pd.DataFrame(list(rows), columns=list(COLUMNS)))["at_once"].to_list()


@pytest.mark.parametrize(
    ("seconds", "behind", "at_once"),
    [
        (0.030, 20e-6, True),
        (0.030, 500e-6, True),
        (0.030, 700e-6, False),
        (0.001, 40e-6, True),  # less than an event takes
        (0.001, 60e-6, False),
    ],
)
def test_it_is_over_at_once_within_what_an_event_takes_or_a_fiftieth(
    seconds: float, behind: float, *, at_once: bool
) -> None:
    assert told(phase("forward", MS, seconds, behind)) == [at_once]


def test_each_forward_is_told_and_no_other_phase() -> None:
    rows = [
        phase("train_batch/forward", MS, 0.010, 0.002),
        phase("train_batch/backward", 11 * MS, 0.020, 0.0),
        phase("train_batch/forward", 31 * MS, 0.010, 0.0),
    ]
    assert told(*rows) == [False, True]


def test_a_forward_is_judged_from_the_last_wait_of_the_host_on() -> None:
    """Of which the later half must be left: a forward that ends with it says nothing."""
    wait = "forward/synchronize"
    forward = phase("forward", 10 * MS, 0.040, 0.00045)
    assert told(forward) == [True]
    assert told(forward, phase(wait, 20 * MS, 0.005)) == [True]
    assert told(forward, phase(wait, 30 * MS, 0.001)) == []
    assert told(forward, phase(wait, 30 * MS, 0.001, step=2)) == [True]
    both = [phase(wait, 11 * MS, 0.001), phase(wait, 26 * MS, 0.002)]  # 22 ms are left
    assert told(phase("forward", 10 * MS, 0.040, 0.00043), *both) == [True]
    assert told(phase("forward", 10 * MS, 0.040, 0.00045), *both) == [False]


def test_what_is_not_known_is_left_out() -> None:
    assert told() == []
    assert told(phase("forward", MS, 0.010), phase("forward", UNKNOWN, 0.010, 0.0)) == []
    assert told(phase("forward", MS, float("nan"), 0.0)) == []
