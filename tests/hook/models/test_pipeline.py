"""Two pipeline stages: instructions are phases, and waiting for the neighbour is seen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dsprof.run import load
from tests.hook.rows import Rows, folder

JOB = ("pipeline",)
STEPS, MICROS, SLEEP = 5, 4, 0.004


@pytest.fixture
def rows(results: list[dict[str, Any]], out: Path) -> list[Rows]:
    assert len(results) == 2
    return folder(out / "pipe")


def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["watched"] == result["plain"]
        assert result["left"] == []


def test_every_instruction_of_a_stage_is_a_phase(rows: list[Rows]) -> None:
    first, last = (Counter(row.path for row in rank.spans if row.step > 1) for rank in rows)
    every = (STEPS - 1) * MICROS
    both = {"batch_input": every, "forward": every, "backward": every, "step": STEPS - 1}
    assert first.items() >= (both | {"pipe_send_output": every, "pipe_recv_grad": every}).items()
    assert last.items() >= (both | {"pipe_recv_input": every, "pipe_send_grad": every}).items()


def test_workers_that_make_batches_are_counted_in_the_instruction_that_loads(
    rows: list[Rows],
) -> None:
    """DeepSpeed starts two for each loader that it makes."""
    assert [rank.config["data_workers"] for rank in rows] == [2, 2]


@pytest.mark.usefixtures("results")
def test_an_evaluation_is_a_phase_as_a_whole_and_trains_nothing(out: Path) -> None:
    for rank in folder(out / "evaluated"):
        paths = Counter(row.path for row in rank.spans)
        assert paths["evaluation"] == 1
        assert paths["forward"] == paths["backward"] == 2 * MICROS
        (evaluation,) = (row for row in rank.spans if row.path == "evaluation")
        inside = [row for row in rank.collectives if row.path == "evaluation"]
        assert {row.op for row in inside} & {"send", "recv"}
        assert all(0 <= row.begin - evaluation.begin < evaluation.length for row in inside)


def test_a_train_batch_is_a_step(rows: list[Rows], results: list[dict[str, Any]]) -> None:
    for rank, result in zip(rows, results, strict=True):
        assert [row.step for row in rank.steps] == list(range(1, STEPS + 1))
        assert {row.micros for row in rank.steps} == {MICROS}
        losses = [float.fromhex(word) for word in result["watched"]]
        assert list(rank.metric("loss").values()) == pytest.approx(losses, rel=1e-6)


def test_every_call_is_recorded(rows: list[Rows], results: list[dict[str, Any]]) -> None:
    """The Flight Recorder counts collectives on gloo; sends and receives the schedule counts."""
    for rank, result in zip(rows, results, strict=True):
        calls = Counter(row.op for row in rank.collectives)
        sent, received = calls.pop("send"), calls.pop("recv")
        assert calls == result["issued"]
        assert rank.unseen == 0
        assert min(sent, received) >= STEPS * MICROS


def test_the_first_stage_waits_for_the_slow_one(rows: list[Rows]) -> None:
    """What the last stage computes longer, the first one waits: class wait, not compute."""
    wait, compute = 2, 0
    for step in range(2, STEPS + 1):
        first, last = (next(s for s in rank.steps if s.step == step) for rank in rows)
        assert last.classes[compute] > MICROS * SLEEP
        assert first.classes[wait] > MICROS * SLEEP / 2
        assert first.classes[wait] > first.classes[compute] - last.classes[wait]


def test_the_number_of_stages_is_recorded(rows: list[Rows], out: Path) -> None:
    assert rows
    assert load(out / "pipe").config["pipeline_parallel_size"] == 2


@pytest.mark.usefixtures("results")
def test_what_follows_a_rollback_is_another_launch_that_counts_from_the_checkpoint(
    out: Path,
) -> None:
    run = load(out / "rollback")
    assert list(zip(run.steps["segment"], run.steps["step"], strict=True)) == [
        (0, 1), (0, 2), (1, 2),
    ]  # fmt: skip
    assert set(run.phases["rank"]) == {0, 1}
    assert run.problems.empty
