"""What only the views of a run show of its sources."""

from __future__ import annotations

from typing import Any

from dsprof.run import Run, from_events
from tests.logs.reading import PFX, read
from tests.run.run_rows import events, grammar_with, metric, timers

MICRO: dict[str, Any] = {
    "forward_microstep": 0.2, "backward_microstep": 0.5, "backward_inner": 0.3,
    "backward_allreduce": 0.2, "step_microstep": 0.1,
}  # fmt: skip


def without_steps(*lines: list[dict[str, Any]]) -> Run:
    stage = {"kind": "config", "name": "zero_stage", "value": 1}
    rows = [{**row, "step": None, "steps": None} for line in lines for row in line]
    return from_events(events([stage, *rows]), grammar=grammar_with())


def repair_of(run: Run, name: str) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = run.repairs.set_index("name").to_dict("index")  # type: ignore[assignment]
    return rows[name]


def test_what_micro_batches_take_is_told_where_no_step_is_known() -> None:
    slower = {name: 2 * seconds for name, seconds in MICRO.items()}
    run = without_steps(timers("zero-micro", 1, **MICRO), timers("zero-micro", 1, **slower))
    assert run.phases.empty
    found = repair_of(run, "micro-batches-alone")
    assert (found["kind"], found["rows"]) == ("doubt", 10)
    assert "One takes 1.20 s (mean of 2), most of it backward_inner 450 ms" in found["text"]


def test_micro_batches_of_a_step_are_in_its_phases_and_not_told_apart() -> None:
    lines = [row for step in (1, 2) for row in timers("zero-micro", step, **MICRO)]
    run = from_events(events(lines), grammar=grammar_with())
    assert len(run.phases)
    assert "micro-batches-alone" not in run.repairs["name"].to_list()


def test_a_torn_line_takes_along_no_line_of_other_micro_batches() -> None:
    line = PFX + (
        b"time (ms) | fwd_microstep: 1330.05 | bwd_microstep: 4766.88 | bwd_inner_microstep: "
        b"4410.89 | bwd_allreduce_microstep: 355.95 | step_microstep: 0.05\n"
    )
    log = read(line * 4 + line[:-60])
    run = from_events(log.events.to_pandas(), meta=log.meta)
    assert repair_of(run, "cut-short")["rows"] < 5
    alone = repair_of(run, "micro-batches-alone")
    assert alone["rows"] == 20
    assert "(mean of 4), most of it backward_inner 4.41 s" in alone["text"]


def maxima(*seconds: float) -> Run:
    """Steps of 2.5 s whose timers are maxima over the ranks."""
    rows = [
        row | {"pattern": "megatron.timers_minmax"}
        for step, longest in enumerate(seconds, 1)
        for row in timers("megatron", step, **{"forward-backward": longest, "optimizer": 0.9})  # type: ignore[arg-type]
    ]
    marks = [metric("step_seconds", step, 2.5) for step in range(1, len(seconds) + 1)]
    return from_events(events([*marks, *rows]), grammar=grammar_with())


def test_maxima_of_several_ranks_that_exceed_their_step_are_no_parts_of_one_ranks() -> None:
    run = maxima(2.3, 2.3, 1.5)
    found = repair_of(run, "maxima-exceed-step")
    assert (found["kind"], found["rows"]) == ("doubt", 2)
    assert "phases-exceed-step" not in run.repairs["name"].to_list()


def test_maxima_of_several_ranks_that_fit_into_their_step_are_not_doubted() -> None:
    assert "maxima-exceed-step" not in maxima(1.5, 1.5).repairs["name"].to_list()
