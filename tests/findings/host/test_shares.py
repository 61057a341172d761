"""Classes of time that grow too large a part of the step."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import load
from tests.findings.plants import WELL, alone, metric, one, phase, quiet, run_of, steps, why
from tests.loaded import run_of_text
from tests.recording.recorded import MS, header


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
    assert quiet(run, rule)


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
    found = alone(run_of_text(*lines * 5), "optimizer-bound")
    assert found.title.endswith(f" is step(){beside}, most of it in no inner timer")


def test_what_no_timer_inside_step_holds_may_be_the_scheduler_of_the_learning_rate() -> None:
    lines = [
        "[Rank 0] time (ms) | optimizer_gradients: 10.00 | optimizer_step: 50.00\n",
        "time (ms) | fwd: 100 | bwd: 300 | bwd_inner: 200 | bwd_allreduce: 100 | step: 700\n",
    ]
    said = alone(run_of_text(*lines * 5), "optimizer-bound").summary
    assert "and the learning rate scheduler do" in said


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


@pytest.mark.parametrize("told", [{}, {"cpu_offload": "False"}, {"zero_stage": 0}])
def test_an_optimizer_that_takes_long_may_be_offloaded_where_nothing_says_so(
    told: dict[str, str | int],
) -> None:
    line = (
        "[Rank 0] time (ms) | forward: 300.00 | backward: 900.00 | backward_inner: 800.00 | "
        "backward_allreduce: 100.00 | step: 9000.00\n"
        "[Rank 0] time (ms) | optimizer_gradients: 10.00 | optimizer_step: 8990.00\n"
    )
    run = run_of_text(*[line] * 3)
    run.config.update(told)
    found = alone(run, "optimizer-bound")
    unknown = not told
    assert ("Nothing says whether it is offloaded" in found.summary) is unknown
    assert found.advice[-1].why.endswith(", unless it is offloaded") is unknown


def test_an_offloaded_optimizer_is_judged_as_offloading() -> None:
    slow = {"forward": 0.3, "backward_inner": 0.2, "backward_allreduce": 0.1, "optimizer_step": 0.4}
    run = run_of(steps(3, slow), world_size=2, zero_stage=2, offload_optimizer="cpu")
    found = one(run, "offload-bound")
    assert "optimizer work offloaded to the CPU" in found.title
    assert found.seconds_per_step == pytest.approx(0.4)
    assert why(run, "optimizer-bound") == "the optimizer is offloaded: offload-bound judges it"


def test_under_zero_3_the_step_timer_is_not_called_optimizer_work() -> None:
    slow = {"forward": 0.3, "backward_inner": 0.3, "step": 0.35, "optimizer_step": 0.05}
    assert quiet(run_of(steps(3, slow), world_size=2, zero_stage=3), "optimizer-bound")


def test_a_step_of_computation_is_compute_bound_and_only_a_note() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.60, "backward_allreduce": 0.05}
    found = one(run_of(steps(4, busy), world_size=2, zero_stage=1), "compute-bound")
    assert found.severity is Severity.INFO
    assert found.title == "95 % of a step is computation"
    assert found.seconds_per_step is None  # it costs nothing that could be saved


def test_computation_of_tensor_parallel_ranks_is_not_computation_alone() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.60, "backward_allreduce": 0.05}
    run = run_of(steps(4, busy), world_size=4, zero_stage=1, tensor_parallel_size=2)
    found = one(run, "compute-bound")
    assert (
        found.title == "95 % of a step is computation, with what tensor parallelism exchanges in it"
    )
    assert found.confidence == "medium"


def test_compute_that_may_hide_communication_is_not_called_compute() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.65}
    assert why(run_of(steps(3, busy), world_size=2), "compute-bound") == (
        "no timer shows the communication that several ranks need"
    )
    gathers = why(run_of(steps(3, WELL), world_size=2, zero_stage=3), "compute-bound")
    assert gathers == "ZeRO-3 gathers parameters inside forward, backward and step"


def test_one_rank_alone_needs_no_communication_to_be_compute_bound() -> None:
    busy = {"forward": 0.35, "backward_inner": 0.65}
    found = alone(run_of(steps(4, busy), world_size=1), "compute-bound")
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
    found = alone(load([log]), "optimizer-bound")
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
    found = alone(run_of(rows, world_size=1), "data-bound")
    assert found.evidence[0].text.split("per step")[1] == told


def test_an_optimizer_on_a_disk_is_advised_to_the_hosts_memory_first() -> None:
    slow = {"forward": 0.3, "backward_inner": 0.2, "backward_allreduce": 0.1, "optimizer_step": 0.4}
    run = run_of(steps(3, slow), world_size=2, zero_stage=3, offload_optimizer="nvme")
    found = one(run, "offload-bound")
    assert "optimizer work offloaded to NVMe" in found.title
    offload = "zero_optimization.offload_optimizer"
    assert [(one.setting, one.to) for one in found.advice] == [
        (f"{offload}.device", "cpu, or none"),
        (f"{offload}.pipeline_read", "true"),
        (f"{offload}.pipeline_write", "true"),
    ]
