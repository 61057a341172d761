"""Modules that ran in another order than ZeRO-3 had traced, and what that may explain."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone, one
from tests.loaded import run_of_text

LOST = "Invalidate trace cache @ step 1: expected module 25, but got module 323\n"
LEAVES = "deepspeed.utils.set_z3_leaf_modules"


def timed_out(operation: str) -> str:
    """Of two ranks of several, as PyTorch says it."""
    return "".join(
        f"[E ProcessGroupNCCL.cpp:467] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=211067, OpType={operation}, NumelIn=2359296, NumelOut=18874368, "
        "Timeout(ms)=1800000) ran for 1800001 milliseconds before timing out.\n"
        for rank in (1, 7)
    )


@pytest.mark.parametrize(("before", "times"), [(LOST, "once"), (2 * LOST, "2 times")])
def test_a_gather_that_timed_out_behind_a_lost_trace_may_be_of_ranks_that_ran_other_modules(
    before: str, times: str
) -> None:
    found = one(run_of_text(before, timed_out("_ALLGATHER_BASE")), "hang")
    assert f"ZeRO-3 lost its trace of modules {times}: other modules ran" in found.summary
    settings = [one.setting for one in found.advice]
    assert settings.index(LEAVES) < settings.index("branches that depend on data or rank")
    assert found.confidence == "medium"


@pytest.mark.parametrize(("before", "operation"), [(LOST, "ALLREDUCE"), ("", "_ALLGATHER_BASE")])
def test_without_a_lost_trace_or_in_another_call_nothing_is_said_of_it(
    before: str, operation: str
) -> None:
    found = alone(run_of_text(before, timed_out(operation)), "hang")
    assert "trace" not in found.summary
    assert LEAVES not in [one.setting for one in found.advice]
