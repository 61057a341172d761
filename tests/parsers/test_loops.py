"""Loops of vision and multimodal trainers, which time their turns and the waiting for data."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

LOGGER = (
    "Epoch: [{epoch}]  [{turn:4d}/100]  eta: 0:10:00  lr: 0.000250  loss: 1.5000 (1.6250)  "
    "time: 0.5000  data: {data:.4f}  max mem: 2048\n"
)
MMENGINE = (
    "2024/03/04 10:{turn:02d}:00 - mmengine - INFO - Epoch(train)  [{epoch}][{turn}/40]  "
    "lr: 1.0000e-03  eta: 0:10:00  time: 6.0000  data_time: {data:.4f}  memory: 2048  loss: 1.5\n"
)


def test_turns_that_begin_anew_with_each_epoch_are_one_launch_and_are_counted_on() -> None:
    turns = [(epoch, turn) for epoch in (3, 4) for turn in (0, 50)]
    run = run_of_text(*(LOGGER.format(epoch=e, turn=t, data=0.125) for e, t in turns))
    assert run.steps["step"].to_list() == [300, 350, 400, 450]
    assert run.steps["segment"].unique().tolist() == [0]


def test_epochs_that_count_from_1_have_no_steps_before_the_first() -> None:
    turns = [(epoch, turn) for epoch in (1, 2) for turn in (20, 40)]
    run = run_of_text(*(MMENGINE.format(epoch=e, turn=t, data=0.25) for e, t in turns))
    assert run.steps["step"].to_list() == [20, 40, 60, 80]
    assert run.steps["data"].to_list() == [0.25] * 4
    assert run.steps["seconds"].to_list() == [6.0] * 4


def test_a_loop_that_says_how_long_it_waits_for_data_is_bound_by_it_from_a_tenth_on() -> None:
    text = "".join(LOGGER.format(epoch=0, turn=t, data=0.125) for t in range(10, 60, 5))
    assert run_of_text(text).findings[0].title == "25 % of a step is waiting for input data"


@pytest.mark.parametrize(
    ("data", "title"),
    [
        (0.005, "1.0 % of a step is waiting for data; nothing else is timed"),
        (0.0, "Hardly any of a step is waiting for data; nothing else is timed"),
    ],
)
def test_a_loop_that_times_waiting_for_data_alone_leaves_the_rest_of_a_step_unknown_at_no_price(
    data: float, title: str
) -> None:
    """Waiting that rounds to zero is none: no timer that failed to measure."""
    text = "".join(LOGGER.format(epoch=0, turn=t, data=data) for t in range(10, 60, 5))
    run = run_of_text(text)
    assert run.findings[0].title == title
    assert run.findings[0].seconds_per_step is None
    assert run.repairs.empty


def test_a_loop_s_lines_of_an_evaluation_are_no_steps() -> None:
    text = LOGGER.format(epoch=0, turn=10, data=0.125)
    text += "Test:  [ 0/50]  eta: 0:00:05  loss: 2.0 (2.0)  time: 0.1008  data: 0.0042\n"
    text += "Test: Epoch: [0]  [ 20/50]  eta: 0:00:05  loss: 2.0 (2.0)  time: 9.0  data: 0.0042\n"
    text += LOGGER.format(epoch=0, turn=20, data=0.125)
    run = run_of_text(text)
    assert run.steps["step"].to_list() == [10, 20]
    assert run.steps["seconds"].to_list() == [0.5, 0.5]
