"""Micro-batches that a log counts by their timers."""

from __future__ import annotations

import pytest

from dsprof.analysis.micro_batches import (
    counted_micro_batches,
    timed_micro_batches,
    turns_timed,
)
from dsprof.run import Run
from tests.loaded import run_of_text
from tests.text.said import shown

_MICRO = (
    "[Rank 0] time (ms) | fwd_microstep: 650.00 | bwd_microstep: 1800.00 | step_microstep: 0.05"
)
_WHOLE = "[Rank 0] time (ms) | fwd: 2600.00 | bwd: 7200.00 | step: 0.20\n"


def bar(turns: int) -> str:
    return f"Epoch 0:   1%|          | {turns}/743 [00:{turns * 3:02}<34:35,  2.50s/it, loss=11.5]"


def trained(*many: int, turns: int = 1) -> Run:
    """Steps of so many micro-batches, in a loop whose bar turns once in `turns` of them."""
    lines, done = [], 0
    for of_step in many:
        for last in range(of_step - 1, -1, -1):
            lines.append(f"{bar(done // turns)}{_MICRO}\n{_WHOLE * (not last)}")
            done += 1
    return run_of_text(*lines)


@pytest.mark.parametrize(
    ("many", "told"),
    [
        ((4, 4, 4), 4),
        ((2, 4, 4), 4),  # begins within a step
        ((4, 4), None),  # one step alone is whole
        ((4, 4, 3), None),  # lines were lost, or the last step of an epoch is shorter
    ],
)
def test_a_step_has_as_many_micro_batches_as_timer_lines_of_them(
    many: tuple[int, ...], told: int | None
) -> None:
    run = trained(*many)
    assert timed_micro_batches(run) == counted_micro_batches(run) == told
    assert turns_timed(run) == sum(many)
    assert run.judged[0].layout.micro_batches == told
    assert (f"{told} micro-batch" in shown(run)) == (told is not None)


def test_one_line_a_step_may_be_of_several_micro_batches() -> None:
    """Megatron calls step() behind the last of them."""
    run = trained(1, 1, 1)
    assert timed_micro_batches(run) == 1
    assert run.judged[0].layout.micro_batches is None


_STEP = (
    "[2023-11-07 01:55:{0:02},711] [INFO] [logging.py:96:log_dist] [Rank 0] step={0}, skipped=0, "
    "lr=[4.5e-05], mom=[(0.9, 0.95)]\n"
    "[2023-11-07 01:55:{0:02},714] [INFO] [timer.py:260:stop] epoch={2}/micro_step={1}/"
    "global_step={0}, RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.5, MemAllocated=4.32GB, "
    "MaxMemAllocated=38.49GB\n"
)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([(10, 40, 0), (20, 80, 0), (30, 120, 0)], 4),
        ([(10, 40, 0), (20, 80, 0), (30, 8, 1), (40, 48, 1)], 4),  # counts anew in an epoch
        ([(10, 10, 0), (20, 20, 0)], None),
        ([(10, 40, 0), (20, 80, 0), (30, 100, 0)], None),
        ([(10, 40, 0)], None),
    ],
)
def test_the_throughput_timer_counts_micro_batches_between_its_lines(
    places: list[tuple[int, int, int]], told: int | None
) -> None:
    run = run_of_text(*(_STEP.format(*place) for place in places))
    assert counted_micro_batches(run) == told
    assert ("4 micro-batches a step" in shown(run)) == (told == 4)


def test_a_log_without_such_lines_counts_none() -> None:
    run = run_of_text(*([_WHOLE] * 3))
    assert (timed_micro_batches(run), turns_timed(run)) == (None, 0)


def test_a_bar_that_turns_with_each_micro_batch_is_said_to_count_them() -> None:
    said = " ".join(shown(trained(4, 4, 4)).split())
    assert "Bar 11 of 743 micro-batches in 33.0 s, 2.50 s each as it smooths them" in said
    assert "not stated" not in said


@pytest.mark.parametrize(("many", "turns"), [((1, 1, 1), 1), ((4, 4, 4), 4), ((4, 3, 4), 1)])
def test_of_any_other_bar_what_it_counts_is_not_stated(many: tuple[int, ...], turns: int) -> None:
    said = " ".join(shown(trained(*many, turns=turns)).split())
    assert "of 743 turns in" in said
    assert "whether a turn is an optimizer step is not stated" in said
