"""A step whose timer line was broken by another process' line is of what its other lines tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsprof.run import Run, from_events, load
from tests.run.run_rows import events, grammar_with, metric, timers

PREFIX = "[2026-11-21 06:12:4{},415] [INFO] [logging.py:107:log_dist] [Rank 0] "
MICRO = (
    "time (ms) | fwd_microstep: 3.00 | bwd_microstep: 400.00 | bwd_inner_microstep: 3.00 "
    "| bwd_allreduce_microstep: 10.00 | step_microstep: 12.00"
)
WHOLE = "time (ms) | fwd: 3.00 | bwd: 400.00 | bwd_inner: 3.00 | bwd_allreduce: 10.00 | step: 12.00"
SPLICED = WHOLE.replace("400.00", "400[2026-11-21 06:12:42,679] [INFO] [utils.py:781:f] after.00")


def run_of(folder: Path, *globals_: str) -> Run:
    text = []
    for n, whole in enumerate(globals_, 1):
        mark = f"step={n}, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"
        text += [PREFIX.format(n) + line for line in (mark, MICRO, whole)]
    path = folder / "run.log"
    path.write_text("\n".join(text) + "\n")
    return load(path)


def test_a_closing_line_with_another_line_inside_still_closes_its_step(tmp_path: Path) -> None:
    run = run_of(tmp_path, WHOLE, SPLICED, WHOLE)
    assert run.steps["step"].tolist() == [1, 2, 3]
    assert run.steps["seconds"].tolist() == pytest.approx([0.415] * 3)
    backward = run.phases[run.phases["name"] == "backward"]
    assert backward["seconds"].tolist() == pytest.approx([0.4] * 3)  # of its micro-batches


def test_a_step_with_logged_calls_and_no_timer_is_not_as_long_as_its_calls() -> None:
    call = {"kind": "comm", "name": "all_reduce", "pattern": "deepspeed_comms.op", "rank": 0}
    rows = [
        *timers("zero", 1, forward=0.5, backward=0.5, step=0.0),
        metric("loss", 1, 1.0),
        metric("loss", 2, 1.0),
        call | {"step": 2, "count": 1, "bytes": 8.0, "seconds": 0.004},
    ]
    run = from_events(events(rows), grammar=grammar_with())
    assert run.steps["seconds"].iloc[0] == pytest.approx(1.0)
    assert np.isnan(run.steps["seconds"].iloc[1])


def test_calls_do_not_stand_in_for_a_step_that_lacks_a_timer() -> None:
    call = {"kind": "comm", "name": "all_reduce", "pattern": "deepspeed_comms.op", "rank": 0}
    call |= {"step": 3, "count": 1, "bytes": 8.0, "seconds": 0.004}
    rows = [
        row for step in (1, 2) for row in timers("zero", step, forward=0.5, backward=0.5, step=0.1)
    ]
    rows += [*timers("zero", 3, forward=0.5, step=0.1), call]
    rows += [metric("loss", step, 1.0) for step in (1, 2, 3)]
    run = from_events(events(rows), grammar=grammar_with())
    assert run.steps["seconds"].isna().tolist() == [False, False, True]
