"""Ranks that are late only up to some step, or from it on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsprof.page.ranks import rank_section
from dsprof.run import Run
from tests.findings.plants import Row, alone, phase, rules, run_of, steps
from tests.text.said import shown

LATE = 0.25  # of a step of 1 s


def changing(
    who: Callable[[int], int], count: int = 60, lacking: frozenset[int] = frozenset()
) -> Run:
    """Of 4 ranks one is late in each step; how long a step takes does not change. Of the `lacking`
    steps the last rank is not known.
    """
    rows: list[Row] = steps(count, {}, 1.0)
    for step in range(1, count + 1):
        for rank in range(4 - (step in lacking)):
            own = LATE if rank == who(step) else 0.0
            rows += [
                phase("data", step, 0.05 + own, rank),
                phase("forward", step, 0.65, rank),
                phase("backward_allreduce", step, 0.05 + LATE - own, rank),
            ]
    return run_of(rows, world_size=4)


def test_a_rank_that_is_late_from_some_step_on_is_named_from_there_with_the_one_before_it() -> None:
    run = changing(lambda step: 2 if step > 30 else 0)
    later, earlier = (found for found in run.findings if found.rule == "straggler-rank")
    assert later.title == "From step 31 on, the others wait for rank 2, 13 % of the time"
    assert (later.ranks, later.steps) == ((2,), (31, 60))
    assert later.seconds_per_step == pytest.approx(LATE * 30 / 59)  # the first step warms up
    assert "It is the last of 4 ranks in 100 % of 30 steps, 31 to 60, and arrives 250 ms" in (
        later.summary
    )
    assert earlier.title == "Up to step 30, the others wait for rank 0, 12 % of the time"
    assert (earlier.ranks, earlier.steps) == ((0,), (2, 30))
    assert "communication-bound" not in rules(run), "what the others wait is told once"
    assert "Rank 2 comes last in 100 % of the steps from step 31 on, 250 ms per step after" in (
        rank_section(run).lead
    )
    text = " ".join(shown(run, 400).split())
    assert (
        "Ranks rank 0 is last in 100 % of the steps up to step 30, 250 ms per step behind" in text
    )
    assert "rank 2 is last in 100 % of the steps from step 31 on, 250 ms per step behind" in text


@pytest.mark.parametrize(
    "who",
    [
        lambda step: step // 10 % 4,
        lambda step: step * 7 % 11 % 4,
        lambda step: 2 if step > 54 else step % 2,  # behind it are too few steps
    ],
    ids=["for a while", "in turns", "at last"],
)
def test_ranks_that_take_turns_are_not_late_in_a_part(who: Callable[[int], int]) -> None:
    assert "straggler-rank" not in rules(changing(who))


def test_a_rank_that_is_late_in_all_steps_is_not_said_to_be_so_in_a_part() -> None:
    assert alone(changing(lambda _: 1), "straggler-rank").title == (
        "The others wait for rank 1, 25 % of each step"
    )


def test_what_proves_that_a_rank_is_late_in_a_part_is_of_its_steps() -> None:
    run = changing(lambda step: 2 if step > 30 else 0, lacking=frozenset(range(20, 45)))
    earlier = next(found for found in run.findings if found.ranks == (0,))
    assert earlier.title == "Up to step 19, the others wait for rank 0, 13 % of the time"
    assert [one.text for one in earlier.evidence] == [
        "rank 0, step 19, data: 300 ms",
        "rank 1, step 19, data: 50.0 ms",
    ]
