"""Phases are one optimizer step's, whatever the source summed over, and nothing counts twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.run import Run, from_events, load
from tests.loaded import run_of_text
from tests.run.run_rows import events, grammar_with, metric, seed_line_30, timers


def run_of(rows: list[dict[str, object]]) -> Run:
    return from_events(events(rows), grammar=grammar_with())


def by_name(run: Run, column: str = "seconds") -> dict[str, float]:
    return dict(zip(run.phases["name"], run.phases[column], strict=True))


def test_a_windows_sum_is_divided_by_its_steps() -> None:
    run = run_of([metric("loss", 10, 1.0), *timers("pipeline", 10, steps=10, forward=5.0)])
    assert by_name(run) == {"forward": pytest.approx(0.5)}


def test_a_windows_mean_stays_as_it_is() -> None:
    run = run_of([metric("loss", 10, 1.0), *timers("megatron", 10, steps=10, optimizer=0.5)])
    assert by_name(run) == {"optimizer": pytest.approx(0.5)}


def test_master_gradients_that_megatron_makes_in_backward_are_not_counted_beside_it() -> None:
    run = run_of_text(
        " iteration       10/     100 | elapsed time per iteration (ms): 1500.0 | lm loss: 2.5 |\n"
        "time (ms) | forward: 500.00 | backward: 1000.00 | backward-backward: 200.00 | "
        "backward-allreduce: 100.00 | backward-master-grad: 600.00 | backward-clip-grad: 100.00 | "
        "optimizer: 0.00 | batch generator: 5.00\n"
    )
    told = run.steps.iloc[0][["compute", "communication", "optimizer", "data"]]
    assert told.tolist() == pytest.approx([0.695, 0.1, 0.7, 0.005])
    assert run.repairs.empty


def test_what_the_first_megatron_reduces_is_communication_inside_backward() -> None:
    run = run_of_text(
        " iteration      100/     300 | elapsed time per iteration (ms): 1000.0 | "
        "learning rate 1.250E-04 | lm loss 4.750000E+00 | loss scale 32768.0 |\n"
        "time (ms) | forward: 250.00 | backward: 730.00 | allreduce: 90.00 | optimizer: 20.00 | "
        "batch generator: 10.00 | data loader: 5.00\n"
    )
    step = run.steps.iloc[0]
    told = step[["compute", "communication", "optimizer", "data"]]
    assert told.tolist() == pytest.approx([0.88, 0.09, 0.02, 0.01])
    assert step[["loss", "lr", "loss_scale"]].tolist() == [4.75, 1.25e-4, 32768]
    assert run.repairs.empty


def test_lines_of_several_steps_at_one_mark_give_their_mean() -> None:
    lines = [timers("zero-optimizer", 3, optimizer_step=seconds) for seconds in (0.1, 0.2, 0.6)]
    run = run_of([metric("loss", 3, 1.0), *lines[0], *lines[1], *lines[2]])
    assert by_name(run) == {"optimizer_step": pytest.approx(0.3)}


def test_micro_batches_of_a_step_add_up() -> None:
    rows = [
        *timers("zero-micro", 1, steps=None, forward_microstep=0.1, step_microstep=0.0),
        *timers("zero-micro", 1, steps=None, forward_microstep=0.2, step_microstep=0.4),
        metric("loss", 1, 1.0),
    ]
    run = run_of(rows)
    assert by_name(run) == {"forward": pytest.approx(0.3), "step": pytest.approx(0.4)}
    assert by_name(run, "count") == {"forward": 2, "step": 2}


def test_micro_batches_of_several_steps_count_as_many_steps_as_accumulation_says() -> None:
    micro = [timers("zero-micro", 2, steps=None, forward_microstep=0.1) for _ in range(4)]
    config = {"kind": "config", "name": "gradient_accumulation_steps", "value": 2}
    run = run_of([config, *(row for line in micro for row in line), metric("loss", 2, 1.0)])
    assert by_name(run) == {"forward": pytest.approx(0.2)}


def test_micro_lines_are_left_out_where_the_steps_own_line_exists() -> None:
    rows = [
        *timers("zero-micro", 1, steps=None, forward_microstep=0.1),
        *timers("zero-micro", 1, steps=None, forward_microstep=0.1),
        *timers("zero", 1, forward=0.25, backward=0.5, step=0.1),
    ]
    assert by_name(run_of(rows))["forward"] == 0.25


def test_an_alias_beside_the_plain_name_is_the_same_interval() -> None:
    rows = timers("pipeline", 10, steps=10, forward_microstep=4.0, forward=5.0)
    assert by_name(run_of([metric("loss", 10, 1.0), *rows])) == {"forward": pytest.approx(0.5)}


def test_self_seconds_are_what_children_leave_across_lines() -> None:
    rows = [
        *timers("zero-optimizer", 1, optimizer_allgather=0.2, optimizer_step=0.3),
        *timers("zero", 1, forward=1.0, backward=2.0, backward_inner=1.5, step=0.6),
    ]
    run = run_of(rows)
    own = by_name(run, "self_seconds")
    assert own["step"] == pytest.approx(0.1)
    assert own["backward"] == pytest.approx(0.5)
    assert sum(own.values()) == pytest.approx(1.0 + 2.0 + 0.6)
    parents = dict(zip(run.phases["name"], run.phases["parent"], strict=True))
    assert parents["optimizer_step"] == "step"
    assert pd.isna(parents["forward"])


def test_overlap_is_shown_once_where_it_lies_a_second_time() -> None:
    phases = run_of(seed_line_30()).phases.set_index("name")
    shared = phases.loc["comms_in_step"]
    assert (shared["parent"], shared["raw"], shared["class"]) == (
        "_step_step",
        "comms",
        "communication",
    )
    # 44044.57 - (93.22 + 40996.54 + 0.25 + 1930.56) = 1024.00 ms of ten steps
    assert shared["seconds"] == pytest.approx(0.1024)
    assert phases.loc["_step_step", "self_seconds"] == pytest.approx(0.165467 - 0.1024)
    assert phases.loc["comms", "self_seconds"] == pytest.approx(0.0, abs=1e-12)
    assert phases.loc["comms", "seconds"] == pytest.approx(4.404457)


def test_setup_timers_ignored_timers_and_timers_without_a_step_are_no_phases() -> None:
    rows = [
        *timers("setup", 1, init=3.0),
        *timers("pipeline", 10, steps=10, backward_allreduce=0.1),
        *timers("zero", None, forward=1.0),  # type: ignore[arg-type]
    ]
    assert len(run_of(rows).phases) == 0


def test_timers_of_a_step_that_the_log_cuts_off_are_left_out() -> None:
    rows = [
        *timers("zero", 1, forward=1.0, backward=1.0, step=1.0),
        *timers("zero-micro", 2, steps=None, forward_microstep=0.5),
    ]
    run = run_of(rows)
    assert set(run.phases["step"]) == {1}
    assert list(run.steps["step"]) == [1]


def test_a_phase_without_a_flavour_takes_the_class_its_name_has_elsewhere() -> None:
    rows: list[dict[str, object]] = [
        {"kind": "phase", "name": n, "step": 1, "seconds": 1.0} for n in ("forward", "mystery")
    ]
    classes: dict[str, str] = dict(run_of(rows).phases[["name", "class"]].itertuples(index=False))
    assert classes == {"forward": "compute", "mystery": "other"}


def test_ranks_keep_their_own_rows() -> None:
    rows = [
        *timers("megatron", 1, rank=0, optimizer=1.0),
        *timers("megatron", 1, rank=1, optimizer=3.0),
    ]
    found = run_of([*rows, metric("loss", 1, 1.0)]).phases
    assert dict(zip(found["rank"], found["seconds"], strict=True)) == {0: 1.0, 1: 3.0}


def test_lines_that_name_no_rank_belong_to_the_same_process() -> None:
    nameless = [row | {"rank": None} for row in timers("zero-optimizer", 1, optimizer_step=0.3)]
    stage: dict[str, object] = {"kind": "config", "name": "zero_stage", "value": 1}
    run = run_of([stage, *nameless, *timers("zero", 1, forward=1.0, backward=1.0, step=0.5)])
    assert by_name(run, "self_seconds")["step"] == pytest.approx(0.2)
    assert run.steps["optimizer"].tolist() == [pytest.approx(0.5)]


def test_every_phase_names_the_line_that_proves_it() -> None:
    phases = run_of(seed_line_30()).phases
    assert set(phases["source"]) == {"a.log"}
    assert phases["line"].notna().all()


ENGINE = "[2024-05-01 10:00:00,100] [INFO] [logging.py:96:log_dist] [Rank 0] "
MEGATRON_OVER_DEEPSPEED = (
    ENGINE + "  zero_optimization_stage ...... 0",
    ENGINE + "step=1, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]",
    ENGINE + "time (ms) | fwd: 300.00 | bwd: 600.00 | bwd_inner: 500.00 | bwd_allreduce: 100.00"
    " | step: 40.00",
    " iteration        1/     100 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0E+01 |",
    "(min, max) time across ranks (ms):",
    "    forward-backward ...............................: (905.00, 910.00)",
    "    optimizer ......................................: (41.00, 45.00)",
)


def test_megatrons_timers_hold_those_of_the_engine_below(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(MEGATRON_OVER_DEEPSPEED))
    run = load(log)
    parents = run.phases.set_index("name")["parent"].dropna().to_dict()
    assert parents == {
        "forward": "forward-backward",
        "backward": "forward-backward",
        "backward_inner": "backward",
        "backward_allreduce": "backward",
        "step": "optimizer",
    }
    step = run.steps.iloc[0]
    assert step["compute"] == pytest.approx(0.8)
    assert step["communication"] == pytest.approx(0.1)
    assert step["optimizer"] == pytest.approx(0.045)
    assert step["other"] == pytest.approx(1.0 - 0.945)


def test_timers_longer_than_the_one_that_holds_them_leave_the_step_unknown_and_are_named() -> None:
    row = timers("zero", 1, forward=0.01, backward=0.02, backward_inner=0.1, step=0.005)
    run = run_of([*row, metric("loss", 1, 1.0)])
    own = by_name(run, "self_seconds")
    assert pd.isna(own["backward"])
    assert own["backward_inner"] == 0.1
    assert run.steps[["compute", "optimizer", "other"]].isna().all(axis=None)
    doubt = run.repairs.set_index("name").loc["timers-contradict"]
    assert doubt["kind"] == "doubt"
    assert "backward is shorter than backward_inner inside it" in doubt["text"]
    assert doubt["line"] == 2


@pytest.mark.parametrize("inner", [0.02001, 0.0202])
def test_timers_may_exceed_the_one_that_holds_them_by_the_digits_that_are_printed(
    inner: float,
) -> None:
    row = timers("zero", 1, forward=0.01, backward=0.02, backward_inner=inner, step=0.005)
    run = run_of([*row, metric("loss", 1, 1.0)])
    assert by_name(run, "self_seconds")["backward"] == 0.0
    assert "timers-contradict" not in set(run.repairs["name"])


def test_a_missing_part_is_no_contradiction() -> None:
    rows = [
        row
        for step in (1, 2, 3)
        for row in timers("zero", step, forward=0.1, backward=0.5, backward_inner=0.4)
        if (step, row["name"]) != (3, "backward_inner")
    ]
    run = run_of([*rows, *(metric("loss", step, 1.0) for step in (1, 2, 3))])
    assert pd.isna(run.phases.set_index(["step", "name"])["self_seconds"].loc[(3, "backward")])
    assert "timers-contradict" not in set(run.repairs["name"])


def test_a_step_that_shows_fewer_micro_batches_than_the_others_is_unknown() -> None:
    """Its own line was lost, and one of its micro-batches', too: the rest is not the step."""
    part: dict[str, Any] = {"forward_microstep": 0.1, "backward_microstep": 0.2}
    rows = [
        row
        for step, batches in ((1, 4), (2, 3), (3, 4))
        for _ in range(batches)
        for row in timers("zero-micro", step, None, **part)
    ]
    marks = [metric("loss", step, 2.0) for step in (1, 2, 3)]
    found = from_events(events([*marks, *rows]), grammar=grammar_with()).phases
    seconds = found[found["name"] == "forward"]["seconds"]
    assert seconds.isna().tolist() == [False, True, False]


def test_the_reductions_of_megatron_lie_in_the_timer_around_them(tmp_path: Path) -> None:
    """Since 3.0 there is such a timer; before, they stand by themselves."""
    iteration = (
        " iteration       20/ 1000 | consumed samples:           80 | elapsed time per iteration "
        "(ms): 140.0 | learning rate: 2.0E-08 | global batch size:     4 | number of skipped "
        "iterations:   0 | number of nan iterations:   0 |\n"
    )
    parts = "backward-params-all-reduce: 21.00 | backward-embedding-all-reduce: 0.25"
    around = " | backward-reduce-model-grads: 21.50"
    for told, reducing in ((parts, 0.02125), (parts + around, 0.0215)):
        log = tmp_path / "run.log"
        log.write_text(f"{iteration}time (ms) | forward-compute: 60.00 | {told}\n")
        assert load(log).steps["communication"].tolist() == [pytest.approx(reducing)]


def test_what_rank_0_says_of_a_step_is_not_mixed_with_what_nobody_says_it_is() -> None:
    """Prefixes name the rank only now and then; a step of which no line does is rank 0's."""
    rows = timers("megatron", 1, optimizer=1.0)
    for step in (1, 2):
        rows += [row | {"rank": None} for row in timers("megatron", step, optimizer=3.0)]
    run = run_of(rows)
    assert run.phases["seconds"].tolist() == [1.0, 3.0]
    assert run.phases["rank"].tolist() == [0, pd.NA]
