"""Runs of seconds: what is clear in them is said, and what may be chance is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.findings import Finding
from dsprof.run import load
from tests.hook.jobs_of import run_each

KINDS = {"late": 2, "noise": 2, "leak": 2}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Finding]]:
    """The findings of each kind of run, by rule."""
    out = tmp_path_factory.mktemp("short")
    run_each("short", out, KINDS, "torch")
    return {kind: _found(out / kind / "run") for kind in KINDS}


def _found(folder: Path) -> dict[str, Finding]:
    return {finding.rule: finding for finding in load(folder).findings}


def test_a_rank_that_is_late_by_a_third_in_each_of_20_steps_is_named(
    found: dict[str, dict[str, Finding]],
) -> None:
    late = found["late"]["straggler-rank"]
    assert late.ranks == (1,)
    assert late.phase == "forward"
    assert late.seconds_per_step == pytest.approx(0.015, rel=0.3)


def test_of_ranks_whose_steps_differ_by_chance_none_is_named(
    found: dict[str, dict[str, Finding]],
) -> None:
    assert "straggler-rank" not in found["noise"]


def test_a_rank_that_keeps_50_mb_in_each_of_40_steps_grows(
    found: dict[str, dict[str, Finding]],
) -> None:
    assert found["leak"]["memory-growth"].ranks == (1,)
