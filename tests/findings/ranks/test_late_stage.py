"""A stage of a recorded pipeline that is late between two steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import load
from dsprof.findings.finding import Finding
from dsprof.run import Run
from tests.findings.pipelines import FORWARD, pipeline, recorded
from tests.findings.plants import one, rules, why


def late(run: Run) -> Finding | None:
    assert "straggler-rank" in rules(run) or why(run, "straggler-rank")
    return one(run, "straggler-rank") if "straggler-rank" in rules(run) else None


def test_what_stage_0_does_between_steps_costs_all_of_it() -> None:
    """Of 40 ms the other stages have 0: they wait as long."""
    found = late(pipeline((40, 0, 0)))
    assert found is not None
    assert found.seconds_per_step == pytest.approx(0.040, rel=0.02)
    assert (found.ranks, found.confidence) == ((0,), "medium")
    assert found.title == (
        "The others wait for stage 0 (rank 0) at the beginning of each step, 35 % of it"
    )
    assert "between broadcast and the next forward" in found.summary
    assert "between broadcast and the next forward" in found.evidence[0].text
    assert found.advice[0].to == "a minute of rank 0"


def test_what_stage_0_does_in_some_of_the_steps_costs_what_it_is_in_the_mean() -> None:
    found = late(pipeline((40, 0, 0), until=18))  # 17 of the 29 that are judged
    assert found is not None
    assert found.seconds_per_step == pytest.approx(0.040 * 17 / 29, rel=0.02)
    assert found.title.startswith(
        "The others wait for stage 0 (rank 0) at the beginning of steps, "
    )
    assert found.title.endswith(" of the time")
    assert "40.0 ms more than any other in a median step, 23.4 ms in the mean" in found.summary


def test_of_a_later_stage_only_what_its_first_input_waits_for_it_costs() -> None:
    """It comes after two forwards."""
    found = late(pipeline((0, 0, 40)))
    assert found is not None
    assert found.seconds_per_step == pytest.approx(0.040 - 2 * FORWARD / 1e3, rel=0.02)
    assert found.ranks == (2,)
    assert "The rest costs nothing" in found.summary


@pytest.mark.parametrize(
    ("pauses", "forwards"),
    [
        ((40, 40, 40), ()),  # as long as any other
        ((0, 7, 0), ()),  # before its first input has come
        ((0, 0, 25), (16, 4, 4)),  # nor does it hold up a slower stage before it
        ((3, 0, 0), ()),  # hardly any
    ],
)
def test_what_nobody_waits_for_is_no_cost(
    pauses: tuple[float, ...], forwards: tuple[float, ...]
) -> None:
    assert late(pipeline(pauses, forwards=forwards)) is None


def test_a_stage_that_is_late_while_another_one_still_updates_costs_no_more_than_that() -> None:
    """The broadcast waits for the update of the other one in this recording, but need not."""
    assert late(pipeline((40, 0, 0), updates=(2, 40, 2))) is None


def test_the_waiting_for_a_late_stage_is_told_once() -> None:
    """The others wait for it, and as long for the bubble as where no stage is late."""
    usual, run = (pipeline((ms, 0, 0), micro_batches=8) for ms in (0, 100))
    found = late(run)
    assert found is not None
    assert found.seconds_per_step == pytest.approx(0.100, rel=0.02)
    assert "pipeline-imbalance" not in rules(run), "transfers between stages take no time here"
    assert one(usual, "pipeline-bubble").seconds_per_step == pytest.approx(0.024, rel=0.02)
    assert "pipeline-bubble" not in rules(run), "which is 11 % of the longer step"
    untimed = one(run, "unaccounted-time")
    assert untimed.severity == "info"
    assert "all of that on rank 0, for which the others wait" in untimed.title


def test_what_the_bubble_is_beside_the_waiting_for_a_late_stage_is_said() -> None:
    run = pipeline((12, 0, 0), micro_batches=2)
    assert late(run) is not None
    bubble = one(run, "pipeline-bubble")
    assert bubble.seconds_per_step == pytest.approx(0.024, rel=0.02)
    assert "8.00 ms of the waiting are for stage 0, which is late between broadcast" in (
        bubble.summary
    )


def test_what_a_stage_does_now_and_then_is_left_to_step_spikes() -> None:
    run = pipeline((600, 0, 0), every=8)
    assert late(run) is None
    assert "step-spikes" in rules(run)
    assert "pipeline-imbalance" not in rules(run), "it is what the others wait for in these steps"


def test_a_stage_that_is_not_recorded_may_be_late_itself(tmp_path: Path) -> None:
    recorded(tmp_path, (40, 0, 0))
    for path in tmp_path.glob("rank-00001*"):
        path.unlink()
    assert late(load(tmp_path)) is None
