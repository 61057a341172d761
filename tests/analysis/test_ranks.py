"""The frontier of phase boundaries, and who stands on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dsprof.analysis.ranks import frontier, straggler, untimed


def test_the_frontier_leads_where_the_slow_rank_is_and_nowhere_after_they_meet() -> None:
    seconds = np.array([[[1.0, 2.0], [2.5, 0.5], [1.0, 2.0]]])  # 1 step, 3 ranks, work and wait
    leader, lead = frontier(seconds)
    assert leader[0, 0] == 1
    assert lead[0].tolist() == [1.5, 0.0]


def table(*rows: tuple[int, int, str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["step", "rank", "name", "class", "self_seconds"])


def two_ranks(steps: int) -> pd.DataFrame:
    return table(
        *(
            row
            for step in range(steps)
            for row in (
                (step, 0, "allreduce", "communication", 0.5),
                (step, 0, "forward", "compute", 1.0),
                (step, 1, "allreduce", "communication", 0.1),
                (step, 1, "forward", "compute", 1.4),
            )
        )
    )


def test_of_two_ranks_the_one_that_waits_is_not_blamed() -> None:
    found = straggler(two_ranks(3))
    assert found is not None
    assert (found.rank, found.phase, found.held, found.steps) == (1, "forward", 1.0, 3)
    assert found.delay == pytest.approx(0.4)
    assert found.phase_delay == pytest.approx(0.4)


def test_two_ranks_meet_where_the_other_one_waits_longer_and_not_where_both_communicate() -> None:
    sent = table(*((step, rank, "broadcast", "wait", 0.2) for step in (0, 1) for rank in (0, 1)))
    found = straggler(pd.concat([sent, two_ranks(2)], ignore_index=True))
    assert found is not None
    assert (found.rank, found.meeting) == (1, "allreduce")


def test_a_rank_that_is_late_where_nothing_is_timed_is_known_by_waiting_least() -> None:
    """It sleeps between its phases: all that shows is how long the other one waits."""
    found = straggler(
        table(
            *(
                row
                for step in range(3)
                for row in (
                    (step, 0, "forward", "compute", 1.01),
                    (step, 0, "allreduce", "communication", 0.5),
                    (step, 1, "forward", "compute", 1.0),
                    (step, 1, "allreduce", "communication", 0.1),
                )
            )
        )
    )
    assert found is not None
    assert (found.rank, found.phase, found.meeting) == (1, "", "allreduce")
    assert found.delay == pytest.approx(0.4)


def test_a_phase_that_holds_the_lesser_part_of_a_delay_is_not_where_it_is_lost() -> None:
    """Rank 1 comes 0.4 s late, 0.1 s of that in forward and the rest where nothing is timed."""
    less = two_ranks(3)
    mine = (less["name"] == "forward") & (less["rank"] == 1)
    found = straggler(less.assign(self_seconds=less["self_seconds"].mask(mine, 1.1)))
    assert found is not None
    assert (found.rank, found.phase, found.place) == (1, "", "outside of what is timed")
    assert found.delay == pytest.approx(0.4)
    assert found.phase_delay == pytest.approx(0.3)


def test_of_ranks_that_wait_alike_the_one_that_works_longer_is_late() -> None:
    found = straggler(
        table(
            (0, 0, "forward", "compute", 1.0),
            (0, 0, "allreduce", "communication", 0.2),
            (0, 1, "forward", "compute", 1.5),
            (0, 1, "allreduce", "communication", 0.2),
        )
    )
    assert found is not None
    assert (found.rank, found.phase) == (1, "forward")


def test_steps_that_a_rank_does_not_report_are_left_out() -> None:
    whole = two_ranks(3)
    found = straggler(whole[~((whole["step"] == 1) & (whole["rank"] == 0))])
    assert found is not None
    assert found.steps == 2


def test_one_rank_cannot_be_compared() -> None:
    assert straggler(table((0, 0, "forward", "compute", 1.0))) is None


def test_very_long_runs_are_sampled() -> None:
    found = straggler(two_ranks(5_000))
    assert found is not None
    assert found.steps <= 2_000
    assert (found.first, found.last) == (0, 4_998)


def test_ranks_are_compared_in_the_steps_that_most_of_them_tell() -> None:
    whole = two_ranks(5_000)
    found = straggler(whole[(whole["rank"] == 0) | (whole["step"] % 7 == 0)])
    assert found is not None
    assert (found.steps, found.first) == (715, 0)


def test_rows_in_any_order_compare_alike() -> None:
    whole = two_ranks(50)
    assert straggler(whole.sample(frac=1, random_state=1)) == straggler(whole)


def test_a_rank_that_is_as_often_early_as_late_delays_nobody() -> None:
    """Ranks wait for each other in turns: by 0.2 s for rank 1 in three steps, as long for it."""
    rows = [
        row
        for step in range(6)
        for own, other in [(0.2, 0.0) if step % 2 else (0.0, 0.2)]
        for row in (
            (step, 0, "forward", "compute", 1.0 + other),
            (step, 0, "allreduce", "communication", 0.1 + own),
            (step, 1, "forward", "compute", 1.0 + own),
            (step, 1, "allreduce", "communication", 0.1 + other),
        )
    ]
    found = straggler(table(*rows))
    assert found is not None
    assert found.held == 0.5
    assert found.delay == pytest.approx(0.0, abs=1e-9)


def test_what_no_timer_of_a_rank_holds_is_the_rest_of_its_step() -> None:
    steps = pd.DataFrame({"step": range(3), "seconds": [1.5, 1.6, 1.7]})
    late = two_ranks(3)
    work = (late["name"] == "forward") & (late["rank"] == 1)
    rest = untimed(late.assign(self_seconds=late["self_seconds"].mask(work, 1.0)), steps)
    assert rest is not None
    assert rest.to_dict() == pytest.approx({0: 0.1, 1: 0.5})


@pytest.mark.parametrize("seconds", [1.5, 1.4, np.nan])
def test_where_timers_hold_all_of_a_step_no_rank_has_a_rest(seconds: float) -> None:
    steps = pd.DataFrame({"step": range(3), "seconds": seconds})
    assert untimed(two_ranks(3), steps) is None
