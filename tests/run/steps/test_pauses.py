"""Time between two steps that is of neither."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsprof.run import Run, from_events
from dsprof.run.steps.durations import whole_steps
from tests.loaded import run_of_text
from tests.run.run_rows import events, grammar_with, metric, timers


def rated(*waits: float, every: int = 1) -> Run:
    """Steps of 2 s that a rate tells, each `every` with a stamp, after so many seconds more."""
    at, rows = pd.Timestamp("2024-03-15 10:00:00"), list[dict[str, Any]]()
    for step, more in enumerate(waits, 1):
        at += pd.Timedelta(seconds=2.0 + more)
        rows += timers("zero", step, forward=1.0, backward=0.9)
        if step % every == 0:
            rows.append(metric("samples_per_second", step, 16.0, at=at))
    batch = {"kind": "config", "name": "train_batch_size", "value": 32}
    return from_events(events([batch, *rows]), grammar=grammar_with())


def pause_of(run: Run) -> list[str]:
    return run.repairs.loc[run.repairs["name"] == "pause", "text"].to_list()


def test_a_stall_between_two_steps_that_say_how_long_they_take_is_named() -> None:
    (text,) = pause_of(rated(*[0.0] * 20, 2400.0, *[0.0] * 20))
    assert text.startswith("between these steps and the ones before them 40 min 00 s passed")
    assert "a clock that was set forward" in text


def test_a_stall_is_found_between_the_stamps_of_every_tenth_step() -> None:
    (text,) = pause_of(rated(*[0.0] * 24, 2400.0, *[0.0] * 25, every=10))
    assert " 40 min 00 s passed" in text


def test_what_lies_between_all_steps_alike_is_no_pause() -> None:
    assert pause_of(rated(*[2400.0] * 20)) == []


def test_a_step_that_is_said_to_have_taken_that_long_is_no_pause() -> None:
    rows = [metric("step_seconds", n, 2400.0 if n == 9 else 2.0,
                   at=pd.Timestamp("2024-03-15") + pd.Timedelta(2 * n + 2398 * (n > 8), "s"))
            for n in range(1, 20)]  # fmt: skip
    assert pause_of(from_events(events(rows), grammar=grammar_with())) == []


def barred(*waits: float) -> Run:
    """Ten steps of 2 s between two of the Trainer's dicts, after so many seconds more."""
    text, seconds, total = "", 5, 10 * len(waits)
    for number, more in enumerate(waits, 1):
        seconds += 20 + int(more)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text += f" {number}%|#  | {number * 10}/{total} [{clock}<9:59:59,  2.00s/it]"
        text += f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {number / len(waits):.2f}}}\n"
    return run_of_text(text)


def test_a_stall_inside_a_window_of_a_bar_is_named_and_no_part_of_the_mean_step() -> None:
    run = barred(*[0.0] * 20, 2400.0, *[0.0] * 20)
    (text,) = pause_of(run)
    assert text.startswith("between these steps and the ones before them 40 min 00 s passed")
    assert whole_steps(run.steps)["seconds"].to_list() == pytest.approx([2.0] * 39)
    assert pause_of(barred(*[1000.0] * 5, 2400.0, *[1000.0] * 5)) == []
