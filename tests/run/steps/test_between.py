"""What the clock says of a step beyond what lines state, by whoever stamped them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from dsprof.run import Run
from dsprof.run.steps.durations import whole_steps
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
    assert set(whole["covers"]) == {5.0}
    assert (run.steps["at"].iloc[0] - BEGAN).total_seconds() == pytest.approx(5 * 2.67, abs=0.01)


RATE = (
    "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=27.5, "
    "CurrSamplesPerSec=27.5, MemAllocated=1.0GB, MaxMemAllocated=2.0GB"
)
OWN = "time (ms) | rollout: 2800.00 | reward_model: 180.00 | train: 1160.00"


def turns(each: float) -> Run:
    """A script's loop of so many seconds: it times its own phases, its engine rates its part."""
    lines = ["  train_batch_size ............. 32", "  world_size ................... 8"]
    stamped = [(0.0, "config.py:9:print", line) for line in lines]
    for step in range(1, 13):
        at = step * each
        stamped += [
            (at - 1.2, "logging.py:96:log_dist", f"step={step}, skipped=0, lr=[2e-05], mom=[0.9]"),
            (at - 1.2, "timer.py:260:stop", RATE.format(step)),
            (at, "logging.py:96:log_dist", OWN),
        ]
    text = ""
    for seconds, where, line in stamped:
        moment = BEGAN + timedelta(seconds=seconds)
        time = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}"
        text += f"[{time}] [INFO] [{where}] {line}\n"
    return run_of_text(text)


def test_timers_of_a_loop_are_parts_of_its_turn_and_not_of_the_step_that_its_engine_rates() -> None:
    run = turns(4.17)
    assert whole_steps(run.steps)["seconds"].mean() == pytest.approx(4.17, abs=0.01)
    told = run.steps.dropna(subset="compute")
    assert set(told["seconds_from"]) == {"timers"}
    assert told["compute"].mean() == pytest.approx(1.16)
    assert told["other"].mean() == pytest.approx(2.98)
    assert run.findings[0].title == "67 % of a step is inside rollout, which no timer divides"
    assert "phases-exceed-step" not in set(run.repairs["name"])


def test_timers_for_which_the_clock_has_no_room_are_not_believed() -> None:
    run = turns(2.5)
    assert set(run.steps["seconds_from"].dropna()) == {"throughput"}
    assert "phases-exceed-step" in set(run.repairs["name"])


def quiet(steps: int, *, each: float, save: float = 0.0) -> Run:
    """Timers of 0.8 s at every step, without stamps; each tenth step has a line that is stamped.
    Each fiftieth is saved, if it takes time."""
    text = ""
    for step in range(1, steps + 1):
        now = BEGAN + timedelta(seconds=step * each + (step - 1) // 50 * save)
        head = f"[{now:%Y-%m-%d %H:%M:%S},000] [INFO] [logging.py:123:log_dist] [Rank 0]"
        if step % 10 == 0:
            text += f"{head} step={step}, skipped=0, lr=[0.001], mom=[0.9]\n"
        text += "[Rank 0] time (ms) | fwd: 300.00 | bwd: 400.00 | bwd_inner: 390.00 | "
        text += f"bwd_allreduce: 10.00 | step: {1000.0 if step % 10 == 0 else 100.0}\n"
        if save and step % 50 == 0:
            text += f"{head} [Torch] Checkpoint global_step{step} is about to be saved!\n"
    return run_of_text(text)


@pytest.mark.parametrize("steps", [30, 35, 40])
def test_a_few_long_stretches_tell_what_no_timer_does_of_all_their_steps(steps: int) -> None:
    whole = whole_steps(quiet(steps, each=3.0).steps)
    assert whole["seconds"].mean() == pytest.approx(3.0, rel=0.02)
    assert set(whole["seconds_from"]) == {"clock"}
    assert len(whole) == steps


@pytest.mark.parametrize(("steps", "each"), [(25, 3.0), (40, 0.9)])
def test_one_stretch_or_one_that_its_timers_fill_tells_nothing_beyond_them(
    steps: int, each: float
) -> None:
    run = quiet(steps, each=each)
    assert run.steps["whole_seconds"].isna().all()


def test_a_save_that_begins_behind_a_step_is_no_time_of_the_steps_up_to_the_next_line() -> None:
    run = quiet(300, each=0.9, save=30.0)
    assert run.steps["whole_seconds"].isna().all()
    assert "Saving checkpoints takes" in next(iter(run.findings)).title


@pytest.mark.parametrize("wrapper", ["", "%b %d %H:%M:%S ", "%Y-%m-%d %H:%M:%S "])
def test_whole_seconds_of_a_wrapper_are_not_mixed_with_those_of_the_logger(wrapper: str) -> None:
    """Timers have the wrapper's stamp alone."""
    text = ""
    for step in range(1, 61):
        at = BEGAN + timedelta(seconds=0.07 * step + 0.9)
        if step % 10 == 0:
            text += f"{at:{wrapper}}[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO] "
            text += (
                f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.1], mom=[0.9]\n"
            )
        text += f"{at:{wrapper}}time (ms) | fwd: 10.00 | bwd: 20.00 | step: 10.00\n"
    whole = whole_steps(run_of_text(text).steps)
    assert set(whole["seconds_from"]) == {"clock"}
    assert whole["seconds"].mean() == pytest.approx(0.07)
