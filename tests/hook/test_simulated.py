"""Whole jobs on a simulated GPU: what the recording says, beside what the device did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dsprof import load
from dsprof.findings import abstentions_of
from dsprof.run import Run
from dsprof.run.steps.words import own_name
from tests.hook.rows import Rows, folder

JOB = ("simulated",)
KINDS = ["zero1", "zero2,apart", "zero3", "zero3,late", "ddp,late", "fsdp2", "fsdp2,late"]
TRACED = 3  # the first steps, in which ZeRO-3 learns the order of layers
WHOSE_HOST_IS_LATE = "optimizer_step/all_reduce"  # on a busy machine: it comes after a number
#: Where the device waits for communication, a thirtieth of that time or more.
PLACES = {
    "zero1": {"backward/all_reduce", "reduce/all_reduce", "optimizer_step/all_gather_into_tensor"},
    "zero3": {"forward/all_gather_into_tensor", "reduce/reduce_scatter_tensor"},
    "fsdp2": {
        "forward/all_gather_into_tensor", "backward/all_gather_into_tensor",
        "backward/reduce_scatter_tensor",
    },
    "ddp,late": {"backward/all_reduce"},
}  # fmt: skip


@pytest.fixture
def ranks(results: list[dict[str, Any]], out: Path, kind: str) -> list[tuple[Rows, Any]]:
    if kind not in results[0]:
        pytest.skip("this PyTorch has no FSDP2 on a CPU")
    return [(rows, result[kind]) for rows, result in zip(folder(out / kind), results, strict=True)]


@pytest.fixture
def run(results: list[dict[str, Any]], out: Path, kind: str) -> Run:
    if kind not in results[0]:
        pytest.skip("this PyTorch has no FSDP2 on a CPU")
    return load(out / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_what_they_wait_for_communication_are_those_of_the_device(
    ranks: list[tuple[Rows, Any]],
) -> None:
    for rows, truth in ranks:
        found = [(step.length * 1e-9, step.classes[1]) for step in rows.steps[1:]]
        assert len(found) == len(truth)
        apart = [
            (mine[0] - its[0], mine[1] - its[1]) for mine, its in zip(found, truth, strict=True)
        ]
        longest = median(its[0] for its in truth)
        assert abs(median(step for step, _ in apart)) < 0.01 * longest
        assert abs(median(waiting for _, waiting in apart)) < 0.01 * longest
        assert median(waiting for _, waiting in truth) > 0.2 * longest


@pytest.mark.parametrize("kind", list(PLACES))
def test_waiting_has_the_name_of_the_collective_and_lies_in_the_phase_that_it_holds_up(
    ranks: list[tuple[Rows, Any]], kind: str
) -> None:
    rows, truth = ranks[0]
    calls = [call for call in rows.collectives if call.step > TRACED]
    assert all(call.blocked >= 0 for call in calls)
    waited: Counter[str] = Counter()
    for call in calls:
        waited[f"{own_name(call.path)}/{call.op}"] += call.blocked
    whole = sum(exposed for _, exposed in truth[TRACED - 1 :]) * 1e9
    places = {place for place, ns in waited.items() if ns > 0.03 * whole}
    assert places - {WHOSE_HOST_IS_LATE} == PLACES[kind]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "late" not in kind])
def test_a_slow_network_is_what_the_report_begins_with(run: Run) -> None:
    assert run.findings[0].rule == "communication-bound"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "late" in kind])
def test_the_rank_whose_device_is_slow_is_named(run: Run) -> None:
    found = {one.rule: one for one in run.findings}
    assert "straggler-rank" in found, (run.findings, abstentions_of(run))
    late = found["straggler-rank"]
    assert (late.ranks, late.phase) == ((1,), "forward")


@pytest.mark.parametrize(("kind", "told"), [("zero1,small", True), ("zero1", False)])
def test_a_host_that_is_not_ahead_of_its_device_is_told(run: Run, *, told: bool) -> None:
    rules = {one.rule for one in run.findings}
    assert ("host-bound" in rules) is told, abstentions_of(run)
