"""Ranks that work unequally long, in turns."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from dsprof.analysis.uneven import uneven
from tests.analysis.test_ranks import table


def in_turns(**more: float) -> pd.DataFrame:
    """Three ranks, each 0.3 s late in one of three steps: by `more` of that in these phases."""
    return table(
        *(
            row
            for step in range(3)
            for rank in range(3)
            for late in [rank == step]
            for row in (
                (step, rank, "data", "data", 2.0),
                *((step, rank, name, "compute", 1.0 + late * own) for name, own in more.items()),
                (step, rank, "allreduce", "communication", 0.1 if late else 0.4),
            )
        )
    )


MEETS = re.compile("all")


def test_ranks_that_take_turns_in_being_late_hold_up_the_others() -> None:
    found = uneven(in_turns(forward=0.3), MEETS)
    assert found is not None
    assert found.seconds == pytest.approx(0.2)  # two of three ranks wait 0.3 s
    assert found.phase == "forward"


def test_ranks_that_are_late_at_different_meetings_of_a_step_hold_up_the_others_at_each() -> None:
    rows = table(
        *(
            (step, rank, name, "communication", 0.1 if rank == late else 0.4)
            for step in range(3)
            for rank in range(3)
            for late, name in enumerate(["all_reduce", "all_gather"])
        )
    )
    found = uneven(rows, MEETS)
    assert found is not None
    assert found.seconds == pytest.approx(0.4)  # at each of two, two of three ranks wait 0.3 s


@pytest.mark.parametrize(("own", "phase"), [(0.17, "forward"), (0.12, "")])
def test_a_phase_is_named_that_explains_more_than_half_of_what_others_wait(
    own: float, phase: str
) -> None:
    found = uneven(in_turns(load=0.0, forward=own), MEETS)
    assert found is not None
    assert found.phase == phase


def test_ranks_that_are_alike_hold_up_nobody() -> None:
    found = uneven(in_turns(forward=0.3).assign(self_seconds=1.0), MEETS)
    assert found is not None
    assert (found.seconds, found.phase) == (0.0, "")
    assert uneven(table((0, 0, "allreduce", "communication", 1.0)), MEETS) is None


def test_where_nothing_but_collectives_is_timed_no_work_is_named() -> None:
    rows = in_turns(forward=0.3)
    found = uneven(rows[rows["name"] == "allreduce"], MEETS)
    assert found is not None
    assert found.seconds == pytest.approx(0.2)
    assert found.phase == ""
