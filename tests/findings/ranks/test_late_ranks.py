"""Ranks that meet only now and then, of which one is late all the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsprof import load
from dsprof.recording import Writer
from dsprof.run import Run
from tests.findings.plants import alone, one
from tests.recording.recorded import MS, header

FORWARD, UPDATE, EVERY = 18, 2, 8


def local_sgd(
    folder: Path,
    late: int,
    every: int = EVERY,
    steps: int = 160,
    *,
    first: int = 1,
    who: Callable[[int], int] = lambda _: 1,
) -> Run:
    """Three ranks that average what they have learned in each step of `every`; one, mostly rank 1,
    computes `late` ms longer in each step. They are recorded from the `first` one on.
    """
    began = [MS] * 3
    ranks = [Writer.create(folder, header(rank, world=3)) for rank in range(3)]
    for step in range(1, steps + 1):
        at = list(began)
        for rank, writer in enumerate(ranks):
            name, update = writer.name("forward", 0, "compute"), writer.name("step", 0, "optimizer")
            ends = at[rank] + (FORWARD + late * (rank == who(step))) * MS
            begins, at[rank] = at[rank], ends + UPDATE * MS
            if step >= first:
                writer.span(name, begins, ends, step)
                writer.span(update, ends, at[rank], step)
        if step % every == 0:
            met = max(at) + MS
            for rank, writer in enumerate(ranks if step >= first else []):
                reduce = writer.name("all_reduce")
                writer.collective(reduce, 0, at[rank], at[rank], met - at[rank], step, size=1 << 20)
            at = [met] * 3
        for rank, writer in enumerate(ranks if step >= first else []):
            writer.step(step, began[rank], at[rank])
            writer.flush()
        began = at
    for writer in ranks:
        writer.close()
    return load(folder)


def test_where_ranks_meet_now_and_then_they_wait_there_for_what_one_is_late_by_in_each_step(
    tmp_path: Path,
) -> None:
    run = local_sgd(tmp_path / "late", 5)
    found = run.findings[0]
    assert found.title == (
        "Every 8 steps, where ranks meet, the others wait for rank 1 on worker-1, 20 % of the time"
    )
    assert "It is the last of 3 ranks in 100 % of 19 steps in which ranks meet" in found.summary
    assert "It loses most in forward (5.00 ms per step)" in found.summary
    assert "What it is late by in 8 steps, they wait in one." in found.summary
    usual = local_sgd(tmp_path / "usual", 0)
    longer, seconds = (each.judged[0].step_seconds for each in (run, usual))
    assert longer is not None
    assert seconds is not None
    assert found.seconds_per_step == pytest.approx(longer - seconds, rel=0.02)
    assert found.gain is not None
    assert found.gain[1] == found.seconds_per_step
    assert one(run, "step-spikes").severity == "info"
    assert "what happens at these steps" not in [advice.setting for advice in found.advice]


@pytest.mark.parametrize("every", [1, 70])
def test_ranks_that_meet_in_each_step_or_hardly_ever_are_not_said_to_meet_now_and_then(
    every: int, tmp_path: Path
) -> None:
    found = alone(local_sgd(tmp_path, 5, every), "straggler-rank")
    assert found.title.startswith("The others wait for rank 1 on worker-1, ")


def test_of_many_steps_those_that_lead_to_one_meeting_are_compared_together(tmp_path: Path) -> None:
    run = local_sgd(tmp_path, 5, steps=4200)
    found = alone(run, "straggler-rank")
    assert found.title.startswith("Every 8 steps, where ranks meet, the others wait for rank 1 ")
    assert found.seconds_per_step == pytest.approx(0.005, rel=0.02)


def test_of_a_recording_that_begins_amid_two_meetings_the_first_one_tells_nothing(
    tmp_path: Path,
) -> None:
    found = alone(local_sgd(tmp_path, 5, first=14), "straggler-rank")
    assert found.seconds_per_step == pytest.approx(0.005)
    assert "It is the last of 3 ranks in 100 % of 18 steps in which ranks meet" in found.summary
    assert found.steps == (17, 160)


def test_where_ranks_met_a_few_times_only_all_steps_are_compared(tmp_path: Path) -> None:
    found = alone(local_sgd(tmp_path, 5, steps=40), "straggler-rank")
    assert found.title.startswith("Every 8 steps, where ranks meet, the others wait for rank 1 ")
    assert "It is the last of 3 ranks in 100 % of 39 steps and arrives 5.00 ms" in found.summary


def test_who_is_late_from_some_step_on_is_so_by_what_leads_to_the_meetings_behind_it(
    tmp_path: Path,
) -> None:
    run = local_sgd(tmp_path, 15, steps=240, who=lambda step: 1 if step <= 120 else 2)
    found = (found for found in run.findings if found.rule == "straggler-rank")
    later, earlier = sorted(found, key=lambda one: -(one.steps or (0, 0))[0])
    assert later.title.startswith("From step 121 on, the others wait for rank 2 ")
    assert "in 100 % of 15 steps in which ranks meet, 121 to 240, and arrives 15.0 ms per step" in (
        later.summary
    )
    assert earlier.title.startswith("Up to step 120, the others wait for rank 1 ")
    assert "and arrives 15.0 ms per step" in earlier.summary
