"""What the clock says of a step beyond what lines state, by whoever stamped them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from dsprof.run import Run
from dsprof.run.steps import whole_steps
from tests.loaded import run_of_text

BEGAN = datetime.fromisoformat("2025-03-04 10:00:00")


def passed_on(zone: timedelta, *, each: float, stated: float, block: int) -> Run:
    """A container's log of steps whose lines were passed on so many at once."""
    lines = [
        "[2025-03-04 02:00:00,000] [INFO] [config.py:9:print]   train_batch_size ............. 32"
    ]
    for step in range(5, 151, 5):
        at = BEGAN + zone + timedelta(seconds=step * each)
        time = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"
        lines.append(
            f"[{time}] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, "
            f"RunningAvgSamplesPerSec={32 / stated}, CurrSamplesPerSec={32 / stated}, "
            "MemAllocated=14.55GB, MaxMemAllocated=61.2GB"
        )
    text = ""
    for number, line in enumerate(lines):
        last = min(number - number % block + block, len(lines) - 1)  # that filled the block
        wrapped = BEGAN + timedelta(seconds=last * 5 * each, microseconds=200 + 20 * number)
        told = {"log": line + "\n", "stream": "stdout", "time": wrapped.isoformat() + "000Z"}
        text += json.dumps(told) + "\n"
    return run_of_text(text)


@pytest.mark.parametrize("hours", [0, 8, 5.75, -7])
@pytest.mark.parametrize("block", [1, 16, 40])
def test_a_rate_is_held_against_the_loggers_clock_though_lines_were_passed_on_in_blocks(
    hours: float, block: int
) -> None:
    run = passed_on(timedelta(hours=hours), each=2.67, stated=1.17, block=block)
    whole = whole_steps(run.steps)
    assert set(whole["seconds_from"]) == {"clock"}
    assert whole["seconds"].mean() == pytest.approx(2.67, rel=0.01)
    assert (run.steps["at"].iloc[0] - BEGAN).total_seconds() == pytest.approx(5 * 2.67, abs=0.01)
