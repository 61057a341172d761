"""Classes of time that grow too large a part of the step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import (
    WELL,
    Row,
    config,
    metric,
    one,
    phase,
    run_of,
    silent,
    steps,
    why,
)
from tests.loaded import run_of_text
from tests.recording.recorded import CLASSES, MS, header


@pytest.mark.parametrize(
    ("rule", "name", "seconds", "severity"),
    [
        ("data-bound", "data", 0.15, Severity.WARNING),
        ("data-bound", "data", 0.25, Severity.CRITICAL),
        ("optimizer-bound", "optimizer_step", 0.20, Severity.WARNING),
        ("optimizer-bound", "optimizer_step", 0.40, Severity.CRITICAL),
        ("offload-bound", "swap", 0.20, Severity.WARNING),
        ("offload-bound", "swap", 0.40, Severity.CRITICAL),
    ],
)
def test_a_class_above_its_threshold_is_found(
    rule: str, name: str, seconds: float, severity: Severity
) -> None:
    rest = {"forward": 0.5 - seconds, "backward_inner": 0.45, "backward_allreduce": 0.05}
    found = one(run_of(steps(3, rest | {name: seconds}), world_size=2), rule)
    assert found.severity is severity
    assert found.seconds_per_step == pytest.approx(seconds)
    assert found.share == pytest.approx(seconds)
    assert found.phase == name
    saved = seconds / 2 if rule == "optimizer-bound" else seconds  # twice the micro-batches
    least = 0.8 if rule == "offload-bound" else 0.5  # a GPU updates five times as fast
    assert found.gain == pytest.approx((least * saved, saved))
    assert "3 printed steps, 1 to 3" in found.summary
    assert found.evidence[0].source == "planted.log"


@pytest.mark.parametrize("rule", ["data-bound", "optimizer-bound"])
def test_a_healthy_step_has_no_such_class(rule: str) -> None:
    run = run_of(steps(3, WELL | {"data": 0.01}, 1.01), world_size=2)
    assert silent(run, rule)


def test_a_class_that_no_timer_measures_is_not_judged() -> None:
    run = run_of(steps(3, WELL), world_size=2)
    assert why(run, "data-bound") == "no timer of class data"


def test_a_step_that_may_hold_zeros_gathering_is_the_optimizers_with_medium_confidence() -> None:
    slow = {"forward": 0.2, "backward": 0.3, "step": 0.5}
    engine = [
        row | ({"timers": "zero"} if row["kind"] == "phase" else {}) for row in steps(3, slow)
    ]
    found = one(run_of(engine, world_size=2), "optimizer-bound")
    assert found.confidence == "medium"
    assert found.title.endswith("which may hold ZeRO's communication")
    assert "stage is not known" in found.summary
    assert [advice.setting for advice in found.advice] == ["gradient_accumulation_steps"]
    assert one(run_of(engine, world_size=2, zero_stage=0), "optimizer-bound").confidence == "high"


@pytest.mark.parametrize(
    ("timed", "beside"),
    [
        ("optimizer_allgather: 200.00 | ", " apart from the communication timed in it"),
        ("", ""),
    ],
)
def test_a_step_without_the_gathering_timed_in_it_is_not_called_all_of_step(
    timed: str, beside: str
) -> None:
    lines = [
        f"[Rank 0] time (ms) | {timed}optimizer_gradients: 10.00 | optimizer_step: 50.00\n",
        "time (ms) | fwd: 100 | bwd: 300 | bwd_inner: 200 | bwd_allreduce: 100 | step: 700\n",
    ]
    found = one(run_of_text(*lines * 5), "optimizer-bound")
    assert found.title.endswith(f" is step(){beside}, most of it in no inner timer")


def test_what_no_timer_inside_step_holds_may_be_the_scheduler_of_the_learning_rate() -> None:
    lines = [
        "[Rank 0] time (ms) | optimizer_gradients: 10.00 | optimizer_step: 50.00\n",
        "time (ms) | fwd: 100 | bwd: 300 | bwd_inner: 200 | bwd_allreduce: 100 | step: 700\n",
    ]
    said = one(run_of_text(*lines * 5), "optimizer-bound").summary
    assert "and the learning rate scheduler do" in said


@pytest.mark.parametrize(
    ("workers", "now", "to"),
    [(0, "", "2 to 4 a rank"), (4, "4", "more, if the host has idle cores")],
)
def test_as_many_workers_as_there_are_already_are_not_advised(
    workers: int, now: str, to: str
) -> None:
    told = [config("data_workers", workers)] if workers else []
    run = run_of([*told, *steps(30, {"batch_input": 0.3, "forward": 0.3, "backward": 0.4})])
    advice = one(run, "data-bound").advice[0]
    assert (advice.setting, advice.now, advice.to) == ("DataLoader(num_workers=...)", now, to)


@pytest.mark.parametrize(("every", "anew"), [(1, True), (10, False)])
def test_where_each_step_makes_an_iterator_of_a_loader_one_for_many_is_advised(
    every: int, *, anew: bool
) -> None:
    """`next(iter(loader))`. Once an epoch is as it should be."""
    rows = [config("data_workers", 2)]
    rows += steps(30, {"batch_input": 0.3, "forward": 0.3, "backward": 0.4})
    rows += [metric("data_iterators", step, 1) for step in range(1, 31, every)]
    advice = one(run_of(rows), "data-bound").advice[0]
    assert (advice.setting == "iterators of the data loader") == anew
    assert (advice.now == "made in 29 of 29 steps") == anew


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        (range(1, 26), ", 100 % of that up to step 25 and hardly any later"),  # a cold cache
        (range(1, 61), ""),
        (range(1, 61, 5), ""),  # the first step of each epoch
        (range(36, 61), ""),
    ],
)
def test_waiting_for_input_that_is_over_is_said_to_be(waits: range, said: str) -> None:
    rows = [row for step in range(1, 61) for row in _loading(step, 0.6 * (step in waits))]
    found = one(run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows]), "data-bound")
    assert ("hardly any later" in found.title) == bool(said)
    assert found.title.endswith(said)


@pytest.mark.parametrize(
    ("usual", "said"),
    [(0.03, ", 92 % of that up to step 20 and hardly any later"), (0.1, "")],
)
def test_the_usual_loading_of_many_later_steps_is_hardly_any(usual: float, said: str) -> None:
    """The first epoch waits 0.9 s in each of 20 steps, the later ones a thirtieth or a ninth."""
    rows = [row for step in range(1, 71) for row in _loading(step, 0.9 if step < 21 else usual)]
    found = one(run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows]), "data-bound")
    assert found.title.endswith(f" % of a step is waiting for input data{said}")


def test_input_that_is_always_there_is_no_finding_beside_steps_that_stick_out(
    tmp_path: Path,
) -> None:
    """Steps whose spans are deleted have seconds of each class, 0 of the data."""
    writer, at = Writer.create(tmp_path, header(world=1), keep_bytes=1 << 17), 0
    for step in range(1, 301):
        took = 100 * MS if step % 15 else 400 * MS
        for layer in range(40):
            writer.span(writer.name(f"layer{layer}", 0, "compute"), at, at + MS, step)
        writer.step(step, at, at + took, [took * 1e-9, *[0.0] * 7])
        writer.flush()
        at += took
    writer.close()
    run = load(tmp_path)
    assert one(run, "step-spikes")
    assert silent(run, "data-bound")


def _loading(step: int, seconds: float) -> list[Row]:
    took = {"data": seconds, "forward": 0.4, "backward": 1e-9, "backward_inner": 0.6}
    rows = [phase(name, step, value) for name, value in took.items()]
    return [*rows, metric("step_seconds", step, sum(took.values()))]


@pytest.mark.parametrize(("by_script", "least"), [(30, 0.0), (10, 0.032)])
def test_states_that_a_script_moves_itself_are_no_setting_of_an_offloaded_optimizer(
    tmp_path: Path, by_script: int, least: float
) -> None:
    """The rest of 40 of 100 ms is the engine's own swapping."""
    writer = Writer.create(tmp_path, header(world=1, config={"world_size": 1, "zero_stage": 3}))
    phases = {
        writer.name("forward", 0, "compute"): 60,
        writer.name("offload_states", 0, "offload"): by_script,
        writer.name("swap", 0, "offload"): 40 - by_script,
    }
    for step in range(1, 11):
        at = step * 100 * MS
        for phase_id, many in phases.items():
            writer.span(phase_id, at, at + many * MS, step)
            at += many * MS
        writer.step(step, step * 100 * MS, at, (0.06, 0.0, 0.0, 0.0, 0.0, 0.04, 0.0, 0.0))
    writer.close()
    found = one(load(tmp_path), "offload-bound")
    assert found.title == "40 % of a step is moving data off and onto the GPU"
    assert found.gain == pytest.approx((least, 0.04))
    settings = [one.setting for one in found.advice]
    assert ("zero_optimization.offload_optimizer.device" in settings) == (by_script < 20)
    assert ("engine.offload_states(...), include=" in settings) == (by_script > 20)


def test_an_offloaded_optimizer_is_judged_as_offloading() -> None:
    slow = {"forward": 0.3, "backward_inner": 0.2, "backward_allreduce": 0.1, "optimizer_step": 0.4}
    run = run_of(steps(3, slow), world_size=2, zero_stage=2, offload_optimizer="cpu")
    found = one(run, "offload-bound")
    assert "optimizer work offloaded to the CPU" in found.title
    assert found.seconds_per_step == pytest.approx(0.4)
    assert why(run, "optimizer-bound") == "the optimizer is offloaded: offload-bound judges it"


def test_under_zero_3_the_step_timer_is_not_called_optimizer_work() -> None:
    slow = {"forward": 0.3, "backward_inner": 0.3, "step": 0.35, "optimizer_step": 0.05}
    assert silent(run_of(steps(3, slow), world_size=2, zero_stage=3), "optimizer-bound")


def test_a_step_of_computation_is_compute_bound_and_only_a_note() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.60, "backward_allreduce": 0.05}
    found = one(run_of(steps(4, busy), world_size=2, zero_stage=1), "compute-bound")
    assert found.severity is Severity.INFO
    assert found.title == "95 % of a step is computation"
    assert found.seconds_per_step is None  # it costs nothing that could be saved


def test_compute_that_may_hide_communication_is_not_called_compute() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.65}
    assert why(run_of(steps(3, busy), world_size=2), "compute-bound") == (
        "no timer shows the communication that several ranks need"
    )
    gathers = why(run_of(steps(3, WELL), world_size=2, zero_stage=3), "compute-bound")
    assert gathers == "ZeRO-3 gathers parameters inside forward, backward and step"


def test_one_rank_alone_needs_no_communication_to_be_compute_bound() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.65}
    found = one(run_of(steps(4, busy), world_size=1), "compute-bound")
    assert found.title.startswith("100 % of a step")


_AT = "[2024-05-01 12:00:{:02},000] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
_INSIDE = "optimizer_allgather: 1.00 | optimizer_gradients: 1.00 | optimizer_step: {}.00"
_WHOLE = "fwd: 300.00 | bwd: 201.00 | bwd_inner: 200.00 | bwd_allreduce: 1.00 | step: 400.00"


@pytest.mark.parametrize(("update", "own"), [(20, False), (390, True)])
def test_what_step_holds_beside_its_timers_is_not_called_the_optimizer(
    tmp_path: Path, update: int, own: bool
) -> None:
    log = tmp_path / "run.log"
    lines = [_AT.format(n) + said for n in range(9) for said in (_INSIDE.format(update), _WHOLE)]
    log.write_text("\n".join(lines) + "\n")
    found = one(load([log]), "optimizer-bound")
    assert ("own work" in found.title) is own
    assert ("378 ms lie outside the timers" in found.summary) is not own


@pytest.mark.parametrize(
    ("last", "told"),
    [(0.2502, ", as at step 100"), (0.3, ", at step 100: 300 ms")],
    ids=["as the mean", "another"],
)
def test_a_proof_tells_the_last_number_beside_the_mean(last: float, told: str) -> None:
    rows = [
        *steps(99, {"data": 0.25, "forward": 0.75}),
        phase("data", 100, last),
        phase("forward", 100, 0.75),
        metric("step_seconds", 100, 0.75 + last),
    ]
    found = one(run_of(rows, world_size=1), "data-bound")
    assert found.evidence[0].text.split("per step")[1] == told


def test_a_job_without_a_gpu_is_not_advised_on_copies_to_one() -> None:
    rows = steps(40, {**WELL, "data": 0.4}, seconds=1.4)
    pinned = "DataLoader(pin_memory=...)"
    on_gpu = one(run_of(rows), "data-bound")
    on_cpu = one(run_of(rows, accelerator="cpu"), "data-bound")
    assert pinned in [advice.setting for advice in on_gpu.advice]
    assert pinned not in [advice.setting for advice in on_cpu.advice]
    assert "GPU" not in on_cpu.summary


def loading(folder: Path, loads: Callable[[int, int], int], group: str = "0 ranks 0-1") -> Run:
    """31 steps of 100 ms of two ranks; `loads`: how many ms a rank loads in a step. The rank that
    loads less waits in a reduction, which takes both 5 ms more.
    """
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank=rank, world=2, config={"world_size": 2}))
        whose = writer.name(group)
        data, backward = writer.name("data", 0, "data"), writer.name("backward", 0, "compute")
        reduce = writer.name("all_reduce", backward)
        for step in range(1, 32):
            begin, own = step * 100 * MS, loads(rank, step) * MS
            waits = max(loads(one, step) for one in (0, 1)) * MS - own + 5 * MS
            writer.span(data, begin, begin + own, step)
            writer.span(backward, begin + own, begin + own + waits + 20 * MS, step)
            writer.collective(reduce, whose, begin, begin, waits, step, size=8 << 20, seq=step)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    return load(folder)


def test_ranks_that_wait_for_the_input_of_another_in_turns_wait_for_data(tmp_path: Path) -> None:
    """Of every two steps, rank 1 loads 80 ms in one, and rank 0 10 ms in the other."""
    run = loading(tmp_path, lambda rank, step: (10, 80)[rank] if step % 2 == rank else 0)
    found = run.findings[0]
    assert found.rule == "data-bound"
    assert found.seconds_per_step == pytest.approx(0.0225 + 0.0225, rel=0.03)  # own, and others'
    assert "ms more a step, ranks wait in collectives" in found.summary
    assert silent(run, "communication-bound")  # 5 ms of 100 are left


def test_a_rank_that_loads_longest_in_each_step_is_named_alone(tmp_path: Path) -> None:
    run = loading(tmp_path, lambda rank, _: 40 * rank)
    assert run.findings[0].rule == "straggler-rank"
    assert "ranks wait in collectives" not in one(run, "data-bound").summary


def test_ranks_of_other_groups_are_not_said_to_wait_for_each_others_input(tmp_path: Path) -> None:
    run = loading(tmp_path, lambda rank, step: 40 * (step % 2 == rank), "dp ranks 0")
    assert one(run, "data-bound").seconds_per_step == pytest.approx(0.02, rel=0.1)
    assert one(run, "communication-bound").seconds_per_step == pytest.approx(0.025, rel=0.1)
