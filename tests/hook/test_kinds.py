"""Engines beyond the plain one: bf16, fp16 that overflows, CPU offload, experts, logged calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hook.rows import Rows, folder

STEPS = 5
KINDS = ("bf16", "offload", "fp16", "moe", "muon", "logged")
JOB = ("kinds", *KINDS)


@pytest.fixture(params=KINDS)
def ranks(
    request: pytest.FixtureRequest, results: list[dict[str, Any]], out: Path
) -> list[tuple[str, dict[str, Any], Rows]]:
    kind = request.param
    recorded = folder(out / kind)
    return [(kind, result[kind], rows) for result, rows in zip(results, recorded, strict=True)]


def test_losses_and_weights_are_the_same_to_the_last_bit(
    ranks: list[tuple[str, dict[str, Any], Rows]],
) -> None:
    for _, result, _ in ranks:
        assert result["watched"] == result["plain"]
        assert result["left"] == []


def test_every_step_and_collective_is_recorded(
    ranks: list[tuple[str, dict[str, Any], Rows]],
) -> None:
    for kind, result, rows in ranks:
        assert [row.step for row in rows.steps] == list(range(1, STEPS + 1))
        assert sum(row.calls for row in rows.collectives) == result["issued"] > 0
        ops = {row.op for row in rows.collectives}
        assert ("all_to_all_single" in ops) == (kind == "moe")


def test_skipped_steps_and_the_scale_are_recorded(out: Path, results: list[dict[str, Any]]) -> None:
    for result, rows in zip(results, folder(out / "fp16"), strict=True):
        assert result["fp16"]["skipped"] > 0
        assert max(rows.metric("skipped").values()) == result["fp16"]["skipped"]
        assert sorted(rows.metric("loss_scale")) == list(range(1, STEPS + 1))


def test_what_muon_computes_while_gradients_are_reduced_is_the_optimizers(
    out: Path, results: list[dict[str, Any]]
) -> None:
    for result, rows in zip(results, folder(out / "muon"), strict=True):
        if not result["has muon"]:
            pytest.skip("this DeepSpeed has no Muon")
        updates = [row for row in rows.spans if row.path == "backward/reduce/muon_update"]
        assert {row.step for row in updates} == set(range(1, STEPS + 1))
        assert rows.classes["backward/reduce/muon_update"] == "optimizer"


def test_what_costs_time_is_recorded_as_the_engine_has_it(
    out: Path, results: list[dict[str, Any]]
) -> None:
    """The communication logger is on; on a CPU nothing waits for the device."""
    for result, rank in zip(results, folder(out / "logged"), strict=True):
        settings = {
            "wall_clock_breakdown": 0,
            "memory_breakdown": 0,
            "comms_logger": 1,
            "throughput_timer_synchronized": 0,
        }
        assert rank.header["config"].items() >= settings.items()
        assert rank.config["phases_on"] == "host"
        assert rank.config.get("accelerator") == result["accelerator"]
        assert {row.name for row in rank.memory} >= {"host_process"}
