"""The frontier of phase boundaries, and who stands on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dsprof.analysis.ranks import (
    Straggler,
    frontier,
    of_median_rank,
    straggler,
)
from dsprof.analysis.rest import untimed_by_step


def test_the_frontier_leads_where_the_slow_rank_is_and_nowhere_after_they_meet() -> None:
    seconds = np.array([[[1.0, 2.0], [2.5, 0.5], [1.0, 2.0]]])  # 1 step, 3 ranks, work and wait
    leader, lead = frontier(seconds)
    assert leader[0, 0] == 1
    assert lead[0].tolist() == [1.5, 0.0]


@pytest.mark.parametrize(("reached", "lead"), [([1.0, 2.0, 10.0], 8.0), ([1, 2, 3, 10], 8.0)])
def test_of_an_even_number_of_ranks_the_earlier_of_the_middle_two_waits(
    reached: list[float], lead: float
) -> None:
    assert frontier(np.array(reached).reshape(1, -1, 1))[1].tolist() == [[lead]]


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


def test_a_rank_that_is_last_most_often_but_early_by_more_than_it_is_late_is_none() -> None:
    # One forward of rank 0 was long.
    forward = [(1.0, 1.1), (1.0, 1.1), (2.0, 1.0)]
    rows = (
        (step, rank, name, class_, seconds)
        for step, each in enumerate(forward)
        for rank in (0, 1)
        for name, class_, seconds in (
            ("forward", "compute", each[rank]),
            ("allreduce", "communication", 0.2),
        )
    )
    assert straggler(table(*rows)) is None


def test_of_two_ranks_the_one_that_waits_is_not_blamed() -> None:
    found = straggler(two_ranks(3))
    assert found is not None
    assert (found.group, found.phase, found.held, found.steps) == ((1,), "forward", 1.0, 3)
    assert found.delay == pytest.approx(0.4)
    assert found.place_delay == pytest.approx(0.4)


def test_two_ranks_meet_where_the_other_one_waits_longer_and_not_where_both_communicate() -> None:
    sent = table(*((step, rank, "broadcast", "wait", 0.7) for step in (0, 1) for rank in (0, 1)))
    found = straggler(pd.concat([sent, two_ranks(2)], ignore_index=True))
    assert found is not None
    assert (found.group, found.meeting) == ((1,), "allreduce")


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
    assert (found.group, found.phase, found.meeting) == ((1,), "", "allreduce")
    assert found.delay == pytest.approx(0.4)


def test_a_phase_that_holds_the_lesser_part_of_a_delay_is_not_where_it_is_lost() -> None:
    """Rank 1 comes 0.4 s late, 0.1 s of that in forward and the rest where nothing is timed."""
    less = two_ranks(3)
    mine = (less["name"] == "forward") & (less["rank"] == 1)
    found = straggler(less.assign(self_seconds=less["self_seconds"].mask(mine, 1.1)))
    assert found is not None
    assert (found.group, found.phase, found.place) == ((1,), "", "outside of what is timed")
    assert found.delay == pytest.approx(0.4)
    assert found.place_delay == pytest.approx(0.3)


def test_a_delay_that_no_single_phase_explains_is_lost_in_as_few_as_hold_most_of_it() -> None:
    """Rank 1 comes 0.6 s late: 0.25 s of that in forward, 0.2 in backward, 0.15 in step."""
    work = {"step": 0.15, "backward": 0.2, "forward": 0.25}
    found = straggler(
        table(
            *(
                row
                for step in range(3)
                for rank in (0, 1)
                for row in (
                    *(
                        (step, rank, name, "compute", 1.0 + more * rank)
                        for name, more in work.items()
                    ),
                    (step, rank, "allreduce", "communication", 0.7 - 0.6 * rank),
                )
            )
        )
    )
    assert found is not None
    assert (found.group, found.phases, found.phase) == ((1,), ("forward", "backward"), "forward")
    assert found.place == "in forward and backward"
    assert found.place_delay == pytest.approx(0.45)


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
    assert (found.group, found.phase) == ((1,), "forward")


def in_two_phases(*waits: float) -> pd.DataFrame:
    """Rank 0 works longer in forward, rank 1 as much longer in backward; both end together."""
    return table(
        *(
            (step, rank, *phase)
            for step in range(20)
            for rank in (0, 1)
            for phase in (
                ("backward", "compute", 0.5 + 0.2 * rank + 0.001 * rank),
                ("forward", "compute", 0.5 - 0.2 * rank),
                ("gather", "communication", waits[0] if rank else 0.01),
                ("reduce", "communication", 0.01 if rank else waits[1]),
            )
        )
    )


def test_a_rank_whose_other_work_makes_up_for_its_lead_before_anybody_waits_is_not_late() -> None:
    found = straggler(in_two_phases(0.01, 0.011))
    assert found is not None
    assert found.delay == pytest.approx(0.001)


def each_step(*ranks: tuple[float, float]) -> pd.DataFrame:
    """20 steps of 1 s: how long each rank computes, and how long it is in a collective."""
    return table(
        *(
            row
            for step in range(20)
            for rank, (forward, meeting) in enumerate(ranks)
            for row in (
                (step, rank, "forward", "compute", forward),
                (step, rank, "allreduce", "communication", meeting),
            )
        )
    )


def beside(phases: pd.DataFrame) -> pd.DataFrame:
    """What the phases leave of these steps."""
    return untimed_by_step(phases, pd.DataFrame({"step": range(20), "seconds": 1.0}))


@pytest.mark.parametrize("timed", [True, False])
def test_of_three_ranks_that_come_one_by_one_the_last_is_late_by_what_the_middle_one_waits(
    *, timed: bool
) -> None:
    """They begin to wait at 0.2, 0.51 and 0.8 s, because they compute or do what is not timed."""
    late = (0.0, 0.31, 0.6)
    phases = each_step(*((0.2 + timed * one, 0.8 - one) for one in late))
    found = straggler(phases, beside(phases))
    assert found is not None
    assert (found.group, found.held) == ((2,), 1.0)
    assert found.delay == pytest.approx(0.29)


@pytest.mark.parametrize(
    "ranks",
    [
        [(0.6, 0.1), (0.9, 0.1)],
        [(0.3, 0.1), (0.3, 0.7), (0.9, 0.1), (0.9, 0.1)],
    ],
)
def test_a_rank_is_not_late_if_another_works_as_long_where_nothing_is_timed(
    ranks: list[tuple[float, float]],
) -> None:
    phases = each_step(*ranks)
    assert straggler(phases) is not None
    assert straggler(phases, beside(phases)) is None


def test_a_rank_is_late_by_what_is_left_beyond_time_of_the_others_that_is_not_timed() -> None:
    phases = each_step((0.3, 0.4), (0.8, 0.1))
    found = straggler(phases, beside(phases))
    assert found is not None
    assert found.group == (1,)
    assert found.delay == pytest.approx(0.3)
    assert found.place_delay == pytest.approx(0.5)
    assert (found.awaits, found.awaits_in) == (0.0, "")


def test_ranks_that_wait_for_each_other_in_turns_within_a_step_are_late_where_they_are() -> None:
    found = straggler(in_two_phases(0.21, 0.21))
    assert found is not None
    assert found.delay == pytest.approx(0.2)
    assert found.awaits == pytest.approx(0.2)
    assert {found.meeting, found.awaits_in} == {"gather", "reduce"}


def test_steps_that_a_rank_does_not_report_are_left_out() -> None:
    whole = two_ranks(3)
    found = straggler(whole[~((whole["step"] == 1) & (whole["rank"] == 0))])
    assert found is not None
    assert found.steps == 2


def test_a_step_in_which_several_come_last_together_has_no_straggler() -> None:
    whole = two_ranks(3)
    tied = (whole["step"] == 0) & (whole["rank"] == 1)
    mine = whole["self_seconds"].mask(tied, whole["self_seconds"].shift(2))
    found = straggler(whole.assign(self_seconds=mine))
    assert found is not None
    assert (found.group, found.steps) == ((1,), 3)
    assert found.held == pytest.approx(2 / 3)
    assert found.delay == pytest.approx(0.8 / 3)
    assert straggler(whole.assign(self_seconds=1.0)) is None


def test_where_no_phase_is_timed_in_which_ranks_meet_none_is_named() -> None:
    work = two_ranks(3)
    found = straggler(work[work["name"] == "forward"])
    assert found is not None
    assert (found.group, found.phase, found.meeting) == ((1,), "forward", "")


def test_one_rank_cannot_be_compared() -> None:
    assert straggler(table((0, 0, "forward", "compute", 1.0))) is None


PAIRS = ((0, 0), (0, 1), (1, 1), (1, 2))  # as many ranks in each step, but not the same ones


def test_ranks_that_tell_other_steps_cannot_be_compared() -> None:
    rows = [(step, step % 2, "forward", "compute", 1.0 + step % 2) for step in range(4)]
    assert straggler(table(*rows)) is None
    pairs = [
        (step, (step + n) % 3, "forward", "compute", 1.0 + n) for step in (0, 1) for n in (0, 1)
    ]
    assert straggler(table(*pairs)) is None


def last_in(held: float, next_: float, steps: int, ranks: int) -> Straggler:
    return Straggler((0,), 0.1, 0.1, held, next_, (), 0.1, "", steps, ranks, 1, steps)


@pytest.mark.parametrize(
    ("held", "steps", "ranks", "chance"),
    [
        (1.0, 3, 2, 2 / 8),
        (1.0, 2, 4, 4 / 16),
        (0.75, 4, 3, 3 * (4 * 2 + 1) / 81),
        (0.5, 4, 2, 1.0),  # 2 * 11 / 16
    ],
)
def test_the_chance_to_be_last_so_often_is_that_of_a_die_with_a_face_for_each_rank(
    held: float, steps: int, ranks: int, chance: float
) -> None:
    assert last_in(held, 0.0, steps, ranks).chance == pytest.approx(chance)


def test_a_group_is_one_of_all_groups_of_its_size() -> None:
    found = replace(last_in(1.0, 0.0, 3, 4), group=(2, 3))
    assert found.chance == pytest.approx(6 / 6**3)


def test_a_rank_is_last_more_often_than_the_next_by_so_many_standard_errors() -> None:
    assert last_in(0.75, 0.25, 16, 3).above_chance == pytest.approx(2.0)
    assert last_in(0.0, 0.0, 16, 3).above_chance == 0.0


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


def test_a_stage_that_waits_less_to_receive_and_more_to_send_is_not_late() -> None:
    """As stages of a pipeline do that all work for 0.1 s, but for 5 ms of rank 0's."""
    rows = [
        (step, rank, name, class_, seconds)
        for step in range(1, 21)
        for name, class_, *both in (
            ("forward", "compute", 0.105, 0.1),
            ("recv", "wait", 0.01, 0.04),
            ("send", "wait", 0.03, 0.005),
        )
        for rank, seconds in enumerate(both)
    ]
    late = straggler(table(*rows))
    assert late is not None
    assert (late.group, late.phases, late.meeting) == ((0,), ("forward",), "recv")
    assert late.delay == pytest.approx(0.005)
    assert late.awaits == 0


def test_the_median_rank_of_two_is_the_one_that_waits() -> None:
    seconds = np.array([[3.0, 1.0, np.nan], [1.0, 2.0, 4.0], [np.nan, np.nan, np.nan]])
    assert of_median_rank(seconds) == pytest.approx([1.0, 2.0, np.nan], nan_ok=True)


def test_a_rank_that_is_late_outside_of_phases_costs_what_is_waited_at_that_meeting() -> None:
    """Rank 1 comes 0.4 s late to one meeting and waits 0.1 s at the next for rank 0."""
    rows = table(
        *(
            (step, rank, *phase)
            for step in range(20)
            for rank in (0, 1)
            for phase in (
                ("evaluation", "compute", 0.11 - 0.1 * rank),
                ("all_reduce", "communication", 0.41 - 0.4 * rank),
                ("all_gather", "communication", 0.01 + 0.1 * rank),
            )
        )
    )
    found = straggler(rows)
    assert found is not None
    assert (found.group, found.phases) == ((1,), ())
    assert found.delay == pytest.approx(0.4)
    assert found.awaits == pytest.approx(0.1)


def test_of_two_ranks_that_are_late_at_one_meeting_each_one_is_late_in_all_steps() -> None:
    """Rank 1 works 0.3 s longer before one meeting, rank 0 before the next; which of them waits
    longer altogether changes from step to step."""
    rows = table(
        *(
            (step, rank, *phase)
            for step in range(20)
            for rank in (0, 1)
            for waits in [0.26 if step % 2 else 0.38]
            for phase in (
                ("backward", "compute", 0.1 + 0.3 * rank),
                ("all_reduce", "communication", 0.01 + 0.3 * (1 - rank)),
                ("forward", "compute", 0.4 - 0.3 * rank),
                ("all_gather", "communication", 0.01 + waits * rank),
            )
        )
    )
    found = straggler(rows)
    assert found is not None
    assert (found.group, found.held) == ((1,), 1.0)
    assert found.delay == pytest.approx(0.3)
    assert found.awaits == pytest.approx(0.32)


def test_a_group_is_as_late_as_its_last_rank_and_loses_it_where_that_one_does() -> None:
    """Rank 2 computes 0.5 s longer in backward, rank 3 0.4 s longer in forward."""
    late = {(2, "backward"): 0.5, (3, "forward"): 0.4}
    rows = table(
        *(
            row
            for step in range(20)
            for rank in range(4)
            for own in [late.get((rank, "forward"), 0.0) + late.get((rank, "backward"), 0.0)]
            for row in (
                (step, rank, "forward", "compute", 0.1 + late.get((rank, "forward"), 0.0)),
                (step, rank, "backward", "compute", 0.1 + late.get((rank, "backward"), 0.0)),
                (step, rank, "all_reduce", "communication", 0.6 - own),
            )
        )
    )
    found = straggler(rows)
    assert found is not None
    assert found.group == (2, 3)
    assert found.delay == pytest.approx(0.5)
    assert found.phases == ("backward",)
    assert found.place_delay == pytest.approx(0.5)
