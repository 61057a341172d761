"""Runs of seconds: what is clear in them is said, and what may be chance is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsprof.findings import Finding
from dsprof.run import load
from tests.hook.jobs_of import run_each

KINDS = {"late": 2, "noise": 2, "leak": 2}
LATE = 0.015  # seconds that rank 1 sleeps in each forward beyond the other's 0.05


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("short")


@pytest.fixture(scope="module")
def told(out: Path) -> dict[str, list[dict[str, Any]]]:
    """What each kind of run says of itself, by rank."""
    return run_each("short", out, KINDS, "torch")


@pytest.fixture(scope="module")
def found(out: Path, told: dict[str, Any]) -> dict[str, dict[str, Finding]]:
    """The findings of each kind of run, by rule."""
    return {kind: _found(out / kind / "run") for kind in told}


def _found(folder: Path) -> dict[str, Finding]:
    return {finding.rule: finding for finding in load(folder).findings}


def test_a_rank_that_is_late_by_a_third_in_each_of_20_steps_is_named(
    told: dict[str, list[dict[str, Any]]], found: dict[str, dict[str, Finding]]
) -> None:
    """On a busy machine it is late by more, at most by what steps take beyond the others' sleep;
    where the other rank is delayed, too, less is waited for it.
    """
    late = found["late"]["straggler-rank"]
    assert late.ranks == (1,)
    assert late.phase == "forward"
    assert late.seconds_per_step is not None
    assert 0.5 * LATE < late.seconds_per_step < max(rank["beyond"] for rank in told["late"])


def test_of_ranks_whose_steps_differ_by_chance_none_is_named(
    found: dict[str, dict[str, Finding]],
) -> None:
    assert "straggler-rank" not in found["noise"]


def test_a_rank_that_keeps_50_mb_in_each_of_40_steps_grows(
    found: dict[str, dict[str, Finding]],
) -> None:
    assert found["leak"]["memory-growth"].ranks == (1,)
