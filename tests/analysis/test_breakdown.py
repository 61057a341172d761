"""The mean step: of which steps it is, and which phases are a pipeline's waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.analysis.breakdown import (
    Breakdown,
    breakdown_of,
    main_steps,
    pipeline_phases,
)
from dsprof.recording import Writer
from dsprof.run import Run, from_events, load
from dsprof.text.overview import overview
from tests.loaded import run_of_text
from tests.recording.recorded import CLASSES, MS, header
from tests.run.run_rows import events, grammar_with, metric, timers

ENGINE: dict[str, Any] = {
    "forward": 0.2, "backward": 0.6, "backward_inner": 0.4, "backward_allreduce": 0.2, "step": 0.2,
}  # fmt: skip


def test_calls_that_a_recording_saw_inside_a_pipelines_instructions_are_its_waiting() -> None:
    names = [
        "pipe_recv_grad", "recv_in_pipe_recv_grad", "send_in_pipe_send_output",
        "forward-recv", "all_reduce_in_reduce_grads", "forward",
    ]  # fmt: skip
    table = pd.DataFrame({"seconds": 1.0}, index=names)
    assert list(pipeline_phases(table).index) == names[:4]


def run_of(*lines: list[dict[str, Any]]) -> Run:
    stage = {"kind": "config", "name": "zero_stage", "value": 1}
    rows = [*(row for line in lines for row in line), stage]  # no settings stand before it
    return from_events(events(rows), grammar=grammar_with())


def mean_of(run: Run) -> Breakdown:
    found = breakdown_of(main_steps(run.steps), run.phases)
    assert found is not None
    return found


def test_a_class_that_few_steps_tell_counts_as_nothing_in_none_of_them() -> None:
    """Calls were logged in two of seven steps: what they took of an average step is unknown."""
    call = {"kind": "comm", "name": "all_reduce", "rank": 0, "seconds": 0.1,
            "bytes": 1024.0, "count": 1, "pattern": "deepspeed_comms.op"}  # fmt: skip
    plain: dict[str, Any] = {"forward": 0.2, "backward": 0.6, "step": 0.2}
    lines = [timers("zero", step, **plain) for step in range(1, 8)]
    mean = mean_of(run_of(*lines, [call | {"step": step} for step in (3, 4)]))
    assert "communication" not in mean.classes
    assert sum(mean.classes.values()) == pytest.approx(mean.seconds)
    most = mean_of(run_of(*lines, [call | {"step": step} for step in range(2, 8)]))
    assert most.classes["communication"] == pytest.approx(0.1)
    assert most.windows == 6


def test_phases_that_exceed_their_step_are_no_more_of_it_than_their_classes() -> None:
    sums = [timers("pipeline", n, forward=0.4, backward=0.4, pipe_recv_grad=0.8, step=0.0)
            for n in (1, 2)]  # fmt: skip
    said = [[metric("step_seconds", n, 0.8)] for n in (1, 2)]
    mean = mean_of(run_of(*sums, *said))
    assert mean.classes["wait"] == pytest.approx(0.4)
    assert mean.phases.loc["pipe_recv_grad", "seconds"] == pytest.approx(0.4)
    assert mean.phases.loc["pipe_recv_grad", "shown"] == 0.8


@pytest.mark.parametrize(("first", "rows"), [(1, 7), (201, 8)])
def test_only_the_first_steps_of_a_launch_warm_up(first: int, rows: int) -> None:
    run = run_of(*(timers("zero", first + n, **ENGINE) for n in range(8)))
    assert len(main_steps(run.steps)) == rows


@pytest.mark.parametrize(
    ("slow", "later", "left"),
    [(5, 1.0, 55), (5, 8.0, 59), (7, 1.0, 59)],  # the second: slow steps come again
)
def test_steps_that_compile_at_the_start_warm_up_too_unless_there_are_many(
    slow: int, later: float, left: int
) -> None:
    seconds = [20.0] * slow + [1.0] * (59 - slow) + [later]
    run = run_of([metric("step_seconds", step, each) for step, each in enumerate(seconds, 1)])
    assert len(main_steps(run.steps)) == left
    first = "step" if left == 59 else 5
    assert overview(run).aside == f", without the first {first}, a warm-up"


def test_of_windows_at_the_start_it_is_said_how_many_steps_they_are_of() -> None:
    rows = [metric("step_seconds", 100 * n, 6.0 if n == 1 else 0.2, steps=100) for n in range(1, 9)]
    aside = overview(run_of(rows)).aside
    assert aside == ", without the first 100 steps, a warm-up"
    alone = [{**row, "steps": 1} for row in rows]  # each line of one of them
    aside = overview(run_of(alone)).aside
    assert aside == ", without the first printed one, up to step 100, a warm-up"


@pytest.mark.parametrize(("each", "which"), [(1, "step 910"), (10, "steps 901 to 910")])
def test_slow_steps_at_the_start_of_an_excerpt_are_no_warm_up(each: int, which: str) -> None:
    seconds = [6.0, *[0.2] * 8]
    rows = [metric("step_seconds", 910 + 10 * n, s, steps=each) for n, s in enumerate(seconds)]
    assert overview(run_of(rows)).aside == f", without {which}, far slower than the rest"


@pytest.mark.parametrize(
    ("first", "seconds", "mean"),
    [(1, (2.0, 0.43), 0.43), (1, (0.9, 0.43), 0.43), (1, (0.8, 0.43), 0.615),
     (1, (0.43, 2.0), 1.215), (201, (2.0, 0.43), 1.215)],
    ids=["much-longer", "longer", "as-long", "the-second-is-longer", "no-launch-is-seen"],
)  # fmt: skip
def test_of_two_steps_the_first_warms_up_only_if_a_launch_begins_with_it_and_it_is_longer(
    first: int, seconds: tuple[float, float], mean: float
) -> None:
    run = run_of([metric("step_seconds", n, each) for n, each in enumerate(seconds, first)])
    assert mean_of(run).seconds == pytest.approx(mean)
    assert overview(run).aside == ", without the first step, a warm-up" * (mean == 0.43)


@pytest.mark.parametrize(
    ("whole", "timed", "steps"),
    [
        ({205: 2.3}, {}, [205]),  # timers sum to 2.0 s: they lack more than a tenth
        ({205: 2.2}, {}, [*range(201, 211)]),
        ({205: 4.0}, {205: 3.2}, [*range(201, 211)]),  # no usual step: its timers are longer, too
        ({205: 2.2, 206: 2.2}, {}, [205, 206]),
        ({}, {}, [*range(201, 211)]),
    ],
    ids=["lacks-much", "lacks-little", "unusual", "enough", "none"],
)
def test_steps_known_as_a_whole_are_averaged_alone_if_they_are_enough_or_timers_lack_much(
    whole: dict[int, float], timed: dict[int, float], steps: list[int]
) -> None:
    def step(number: int) -> list[dict[str, Any]]:
        factor = timed.get(number, 2.0)
        return timers("zero", number, **{name: factor * one for name, one in ENGINE.items()})

    said = [[metric("step_seconds", number, seconds)] for number, seconds in whole.items()]
    run = run_of(*map(step, range(201, 211)), *said)
    assert main_steps(run.steps)["step"].tolist() == steps


def test_classes_that_a_source_does_not_tell_add_nothing_and_alone_are_unknown() -> None:
    classes = {"compute": 1.0, "wait": 0.5}
    mean = Breakdown(2.0, classes, pd.DataFrame(), windows=1, first=1, last=1)
    assert mean.of("compute", "wait", "data") == 1.5
    assert mean.of("data") is None


def test_the_first_print_of_a_window_holds_the_first_step_and_that_of_a_later_launch_too() -> None:
    windows = [timers("zero", 10 * n, **ENGINE) for n in range(1, 9)]
    assert len(main_steps(run_of(*windows).steps)) == 7
    resumed = [row | {"segment": 1} for n in range(8) for row in timers("zero", 300 + n, **ENGINE)]
    assert len(main_steps(run_of(resumed).steps)) == 7


def test_a_mean_says_how_many_steps_it_is_of_and_its_median_is_of_the_same() -> None:
    whole = [metric("step_seconds", n, 3.0 if n == 33 else 2.0) for n in range(30, 34)]
    run = run_of(whole, *(timers("zero", n, **ENGINE) for n in range(30, 33)))
    told = overview(run)
    assert (told.rows, told.averaged, told.seconds) == (4, 3, 2.0)
    assert (told.median, told.p95) == (2.0, None)  # too few for a percentile


@pytest.mark.parametrize("timed", [False, True], ids=["by-its-rate", "by-timers"])
def test_the_mean_of_rates_is_that_over_their_time(*, timed: bool) -> None:
    """Nine steps of a second and one of eleven: 320 samples in 20 s, not 29 a second."""
    batch = {"kind": "config", "name": "train_batch_size", "value": 32}
    seconds = [1.0] * 9 + [11.0]
    rates = [[metric("samples_per_second", 100 + n, 32 / one)] for n, one in enumerate(seconds)]
    more = [timers("zero", 100 + n, forward=0.3) for n in range(10 if timed else 0)]
    rates = [row for row in rates if not timed or row[0]["step"] in (105, 109)]
    seen = overview(run_of([metric("loss", 100, 1.0)], *more, *rates, [batch]))
    assert seen.samples_per_second == pytest.approx(64 / 12 if timed else 16.0)


@pytest.mark.parametrize("first", [7, 70])
def test_a_recorded_first_step_that_began_late_is_no_part_of_the_mean(
    tmp_path: Path, first: int
) -> None:
    """It begins with its first phase, which is `first` ms before its end and not 100."""
    writer = Writer.create(tmp_path, header())
    forward = writer.name("forward", 0, "compute")
    for step in range(2, 6):
        end = step * 100 * MS
        begin = end - (first if step == 2 else 100) * MS
        writer.span(forward, end - 7 * MS, end, step)
        writer.step(step, begin, end, CLASSES)
    writer.close()
    seen = overview(load(tmp_path))
    assert seen.seconds == pytest.approx(0.1)
    assert seen.aside == ", without the first step, a warm-up"


def test_a_window_counts_as_many_times_as_it_has_steps() -> None:
    """Lines need not stand equally far apart."""
    line = "Epoch: [0][{}/5005]\tTime {:.3f} ({:.3f})\tData {:.3f} ({:.3f})\tLoss 6.9 (6.9)\n"
    run = run_of_text(line.format(14, 1, 8, 0.5, 7), line.format(15, 88, 13, 87, 12))
    mean = breakdown_of(run.steps, run.phases)
    assert mean is not None
    assert mean.seconds == pytest.approx(13)
    assert mean.classes["data"] == pytest.approx(12)
    assert mean.phases["seconds"]["data_time"] == pytest.approx(12)
