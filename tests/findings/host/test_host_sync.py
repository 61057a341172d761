"""Diagnostics that slow the run they measure: which are on, and what the GPU idles for them."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.run import Run
from tests.findings.plants import (
    WELL,
    alone,
    call,
    config,
    memory,
    one,
    quiet,
    run_of,
    silent,
    steps,
    why,
)


@pytest.mark.parametrize(
    ("json", "severity"),
    [
        ('{"comms_logger": {"enabled": true}}', Severity.WARNING),
        ('{"memory_breakdown": true, "wall_clock_breakdown": true}', Severity.WARNING),
        ('{"wall_clock_breakdown": true}', Severity.INFO),
        ('{"flops_profiler": {"enabled": true}}', Severity.INFO),
    ],
)
def test_diagnostics_that_are_on_are_named(json: str, severity: Severity) -> None:
    found = one(run_of(steps(40, WELL), ds_config=json, world_size=2), "host-sync")
    assert found.severity is severity
    assert found.seconds_per_step is None  # its price is not in a log
    assert found.advice[0].now == "true"


def test_what_a_diagnostic_does_is_said_once() -> None:
    json = '{"memory_breakdown": true, "wall_clock_breakdown": true}'
    found = alone(run_of(steps(40, WELL), ds_config=json, world_size=2), "host-sync")
    assert len(found.advice) == 2
    assert not [advice.why for advice in found.advice if advice.why in found.summary]
    assert "what that costs is not in the log" in found.summary


def test_on_a_cpu_nothing_waits_for_a_gpu() -> None:
    json = '{"comms_logger": {"enabled": true}, "wall_clock_breakdown": true}'
    assert quiet(run_of(steps(40, WELL), ds_config=json, accelerator="cpu"), "host-sync")
    built = "deepspeed.ops.comm.deepspeed_shm_comm_op"
    assert quiet(run_of(steps(40, WELL), ds_config=json, op_built=built), "host-sync")
    both = '{"comms_logger": {"enabled": true}, "memory_breakdown": true}'
    found = alone(run_of(steps(40, WELL), ds_config=both, accelerator="cpu"), "host-sync")
    assert [advice.setting for advice in found.advice] == ["memory_breakdown"]
    assert "GPU" not in found.summary


@pytest.mark.parametrize(
    ("name", "path", "severity"),
    [
        ("comms_logger", "comms_logger.enabled", Severity.WARNING),
        ("memory_breakdown", "memory_breakdown", Severity.WARNING),
        ("wall_clock_breakdown", "wall_clock_breakdown", Severity.INFO),
        ("throughput_timer_synchronized", "timers.throughput.synchronized", Severity.INFO),
    ],
)
def test_a_recording_says_what_was_on_even_by_default(
    name: str, path: str, severity: Severity
) -> None:
    def told(on: float) -> Run:
        return run_of([*steps(40, WELL), config(name, on)], ds_config="{}", world_size=2)

    found = one(told(1.0), "host-sync")
    assert (found.severity, found.advice[0].setting) == (severity, path)
    assert silent(told(0.0), "host-sync")


def test_what_the_engine_did_counts_more_than_its_json() -> None:
    run = run_of(steps(40, WELL), ds_config='{"memory_breakdown": true}', memory_breakdown=0.0)
    assert quiet(run, "host-sync")


def test_words_of_a_log_are_no_such_numbers() -> None:
    assert quiet(run_of(steps(40, WELL), ds_config="{}", memory_breakdown="False"), "host-sync")


def idling(seconds: float, phases_on: str = "gpu", waits: float = 0.0) -> Run:
    """A step of 1 s in which the device idles while the host waits for it."""
    rows = steps(40, {**WELL, "forward": 0.3 - seconds, "synchronize": seconds})
    rows.append(config("throughput_timer_synchronized", waits))
    return run_of(rows, ds_config="{}", phases_on=phases_on, world_size=2)


def test_a_device_that_idles_while_the_host_waits_has_its_price() -> None:
    run = idling(0.05, waits=1.0)
    found = one(run, "host-sync")
    assert found.title == "5.0 % of a step the GPU idles because the host waits for it"
    assert found.severity is Severity.WARNING
    assert found.seconds_per_step == pytest.approx(0.05)
    assert found.advice[0].setting == "timers.throughput.synchronized"
    assert found.evidence
    assert one(idling(0.2), "host-sync").severity is Severity.CRITICAL
    assert "torch.cuda.synchronize" in one(idling(0.2), "host-sync").advice[0].setting


def test_a_device_that_hardly_idles_has_no_finding_nor_has_a_host() -> None:
    assert quiet(idling(0.01), "host-sync")
    assert quiet(idling(0.2, phases_on="host"), "host-sync")


def test_logged_calls_give_the_communication_logger_away() -> None:
    rows = [call("all_reduce", 3, 1e6, 0.01, pattern="deepspeed_comms.op")]
    found = alone(run_of(steps(40, WELL) + rows, world_size=2), "host-sync")
    assert "comms_logger.enabled" in found.title


def test_memory_lines_of_the_engine_give_memory_breakdown_away() -> None:
    rows = [memory("allocated", 3, bytes=1e9, text="Engine before backward")]
    assert "memory_breakdown" in alone(run_of(steps(40, WELL) + rows), "host-sync").title


def test_a_configuration_without_diagnostics_is_no_finding() -> None:
    run = run_of(steps(40, WELL), ds_config='{"train_batch_size": 8}', world_size=2)
    assert quiet(run, "host-sync")


def test_an_unknown_configuration_is_not_judged() -> None:
    assert (
        why(run_of(steps(40, WELL)), "host-sync")
        == "DeepSpeed's configuration is not in the source"
    )
