"""Saves of checkpoints that stop training."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.run import Run
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    metric,
    one,
    phase,
    quiet,
    rules,
    run_of,
    silent,
    steps,
    why,
)
from tests.loaded import run_of_text


def at(second: float) -> pd.Timestamp:
    return pd.Timestamp("2026-01-01") + pd.Timedelta(seconds=second)


def test_saving_checkpoints_is_charged_to_the_steps_between() -> None:
    marks = [
        metric("checkpoint_begin", 10, None, text="global_step10", at=at(10)),
        metric("checkpoint_ready", 10, None, text="global_step10", at=at(13)),
        metric("checkpoint_begin", 20, None, text="global_step20", at=at(26)),
        metric("checkpoint_ready", 20, None, text="global_step20", at=at(27)),
    ]
    found = one(run_of(steps(20, WELL) + marks, world_size=2), "checkpoint-stall")
    assert found.seconds_per_step == pytest.approx(0.2)  # 3 + 1 s in 20 steps
    assert found.share == pytest.approx(0.2 / 1.2)
    assert found.severity is Severity.CRITICAL
    assert found.evidence[0].text == "save: 3.00 s"


def test_of_a_single_save_none_is_called_the_longest() -> None:
    marks = [
        metric("checkpoint_begin", 10, None, text="global_step10", at=at(10)),
        metric("checkpoint_ready", 10, None, text="global_step10", at=at(15)),
    ]
    found = alone(run_of(steps(20, WELL) + marks, world_size=2), "checkpoint-stall")
    assert found.summary.startswith("1 save took 5.00 s in 20 steps: as if each step took 250 ms")


def saving_by_the_clock(every: int, took: float, count: int = 40) -> list[Row]:
    """Steps of 1 s that only time stamps tell, and lines that begin and end a save after some."""
    rows, clock = [], 0.0
    for step in range(1, count + 1):
        clock += 1.0
        rows.append(metric("loss", step, 2.0, at=at(clock)))
        if step % every == 0:
            tag = f"global_step{step}"
            rows.append(metric("checkpoint_begin", step, None, text=tag, at=at(clock)))
            clock += took
            rows.append(metric("checkpoint_ready", step, None, text=tag, at=at(clock), rank=None))
    return rows


def test_what_a_clock_counts_of_saves_is_not_added_to_the_step_again() -> None:
    run = run_of(saving_by_the_clock(every=10, took=10.0))
    assert run.steps["seconds_from"].dropna().eq("clock").all()
    found = alone(run, "checkpoint-stall")
    assert found.seconds_per_step == pytest.approx(1.0)  # four saves in 40 steps
    assert found.share == pytest.approx(0.5, rel=0.01)  # they take as long as the 40 steps


def test_a_clock_that_leaves_a_save_out_of_the_step_has_nothing_taken_off() -> None:
    """The one save is behind the last line that ends a step."""
    run = run_of(saving_by_the_clock(every=40, took=10.0))
    assert alone(run, "checkpoint-stall").share == pytest.approx(0.25 / 1.25)


def test_short_saves_are_no_finding() -> None:
    marks = [
        metric("checkpoint_begin", 10, None, text="t", at=at(10)),
        metric("checkpoint_ready", 10, None, text="t", at=at(10.5)),
    ]
    assert quiet(run_of(steps(20, WELL) + marks, world_size=2), "checkpoint-stall")


@pytest.mark.parametrize("begins", [41, 5001])
def test_steps_that_no_launch_shows_are_not_counted_against_its_saves(begins: int) -> None:
    rows: list[Row] = []
    for launch, first in enumerate((1, begins)):
        whose = {"segment": launch}
        rows += [metric("step_seconds", s, 1.0, **whose) for s in range(first, first + 40)]
        rows.append(phase("save_checkpoint", first + 20, 10.0) | whose)
    found = alone(run_of(rows, world_size=2), "checkpoint-stall")
    assert "2 saves took 20.0 s in 80 steps" in found.summary


def test_a_timer_of_saving_is_believed_before_time_stamps() -> None:
    rows = [*steps(20, WELL), phase("save_checkpoint", 20, 10.0)]
    assert alone(run_of(rows, world_size=2), "checkpoint-stall").seconds_per_step == (
        pytest.approx(0.5)
    )


def test_without_checkpoint_lines_nothing_is_said() -> None:
    assert "checkpoint" in (why(run_of(steps(20, WELL)), "checkpoint-stall") or "")


def test_a_rank_that_writes_for_all_is_no_straggler_nor_its_waiting_communication() -> None:
    """Rank 0 saves for 2 s every other step; rank 1 waits at the barrier behind it."""
    rows = steps(30, WELL, None, ranks=2)
    for step in range(1, 31):
        saves = step % 2 == 0
        rows.append(metric("step_seconds", step, 3.0 if saves else 1.0))
        rows += [phase("save_checkpoint", step, 2.0, rank=0)] if saves else []
        rows += [phase("barrier_in_checkpoint", step, 2.0, rank=1)] if saves else []
    run = run_of(rows, world_size=2)
    assert [f.rule for f in run.findings if f.severity != Severity.INFO] == ["checkpoint-stall"]


def test_ranks_that_write_unequally_long_save_as_long_as_the_longest_and_no_longer() -> None:
    """Rank 0 writes for 2 s every tenth step, rank 1 for 1 s and waits inside of the save."""
    rows = []
    for step in range(1, 42):
        saves = step % 10 == 0
        rows += [phase("forward", step, 0.95, rank) for rank in (0, 1)]
        rows += [phase("save_checkpoint", step, 2.0 - rank, rank) for rank in (0, 1) if saves]
        rows += [phase("barrier_in_checkpoint", step, 1.0, 1)] if saves else []
        rows.append(metric("step_seconds", step, 1.0 + 2.0 * saves))
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    found = alone(run, "checkpoint-stall")
    assert found.seconds_per_step == pytest.approx(8 / 40, rel=0.03)
    assert found.share == pytest.approx(8 / 48, rel=0.03)


def saving_alone(*, every: int) -> Run:
    """A loop of one's own, recorded: rank 0 writes every n-th step, rank 1 waits to reduce."""
    rows = []
    for step in range(1, 42):
        saves = 2.0 * (step % every == 0)
        for rank in (0, 1):
            rows += [phase("forward", step, 0.9, rank)]
            rows += [phase("reduce_grads", step, 0.05 + saves * rank, rank)]
        rows += [phase("save_checkpoint", step, saves, 0)] if saves else []
        rows.append(metric("step_seconds", step, 1.0 + saves))
    return run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])


def test_a_rank_that_saves_alone_in_each_step_is_not_late_by_it() -> None:
    run = saving_alone(every=1)
    assert rules(run)[0] == "checkpoint-stall"
    assert silent(run, "straggler-rank")


def test_what_the_others_wait_for_a_rank_that_saves_alone_is_of_its_saving() -> None:
    run = saving_alone(every=10)
    assert rules(run) == ["checkpoint-stall"]
    assert run.judged[0].straggler is None
    found = one(run, "checkpoint-stall")
    assert found.seconds_per_step == pytest.approx(8 / 40, rel=0.03)
    assert found.share == pytest.approx(8 / 48, rel=0.03)


def test_what_fairseq_writes_between_two_updates_that_it_prints_is_told() -> None:
    at = "2026-02-03 04:0{}:00 | INFO | train_inner | "
    update = at + "epoch 002:     25 / 400 loss=8.5, num_updates={}"
    saved = (
        "2026-02-03 04:02:30 | INFO | fairseq.checkpoint_utils | Saved checkpoint out/2.pt "
        "(epoch 2 @ 250 updates, score 7.25) (writing took 24.0 seconds)"
    )
    lines = [update.format(minute, 100 * minute) for minute in range(1, 9)]
    run = run_of_text(*(f"{line}\n" for line in [*lines[:2], saved, *lines[2:]]))
    found = alone(run, "checkpoint-stall")
    assert found.title == "Saving checkpoints takes 5.0 % of the training time"
    assert "save: 24.0 s" in found.evidence[0].text
