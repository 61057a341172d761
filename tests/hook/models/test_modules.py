"""DDP, FSDP2 and a plain model: no engine says when a step begins, and DDP reduces unseen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dsprof.hook.spans import COMMUNICATION
from tests.hook.rows import Rows, folder

JOB = ("modules",)
STEPS, LATE = 5, 0.03
KINDS = (
    "ddp",
    "ddp of an object",
    "ddp with buffers",
    "ddp inside",
    "fsdp2",
    "tensor parallel",
    "plain",
)

#: Our names of operations, and what gloo makes of them.
FLIGHT = {
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "all_reduce",
}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"] == result[kind]["plain"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_the_model_does_not_return_is_what_backward_begins_at(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        told = [float.fromhex(loss) for loss in result[kind]["watched"]]
        assert list(rank.metric("loss").values()) == told


@pytest.mark.parametrize("kind", KINDS)
def test_each_optimizer_step_closes_a_step_of_its_phases(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        assert [row.step for row in rank.steps] == list(range(1, STEPS + 1)), kind
        for path in ("forward", "backward", "step"):
            assert [row.step for row in rank.spans if row.path == path] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("kind", ["ddp of an object", "plain"])
def test_what_torch_autograd_backward_is_given_in_a_list_is_one_backward_and_its_loss(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        assert Counter(row.path for row in rank.spans)["backward"] == STEPS, kind
        assert len(rank.metric("loss")) == STEPS


@pytest.mark.parametrize("kind", KINDS)
def test_collectives_are_counted_as_the_flight_recorder_counts_them(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    """DDP tells, from C++ and unseen, in which order gradients came: coverage counts it."""
    for result, rank in zip(results, rows, strict=True):
        recorded = Counter[str]()
        for row in rank.collectives:
            recorded[FLIGHT[row.op]] += row.calls
        issued = result[kind]["issued"]
        unseen = sum(issued.values()) - sum(recorded.values())
        assert recorded + Counter(broadcast=unseen) == issued
        assert bool(recorded) == (kind != "plain")
        assert unseen == (2 if kind.startswith("ddp") else 0)
        assert rank.unseen == (unseen if "collectives_issued" in rank.config else 0)


@pytest.mark.parametrize("kind", ["ddp", "ddp of an object", "ddp inside"])
def test_the_gradients_ddp_exchanges_are_of_the_models_size(rows: list[Rows], kind: str) -> None:
    parameters = 6 * (1024 * 1024 + 1024) + 1025
    for rank in rows:
        for step in range(1, STEPS + 1):
            moved = [row for row in rank.collectives if row.step == step]
            assert [(row.path, row.op) for row in moved] == [("backward", "all_reduce")], kind
            assert moved[0].size * moved[0].calls == pytest.approx(4 * parameters, rel=0.001)


@pytest.mark.parametrize("kind", ["ddp with buffers"])
def test_ddp_waits_in_forward_for_the_buffers_of_rank_0(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        sent = [row for row in rank.collectives if row.op == "broadcast"]
        assert [(row.path, row.step) for row in sent] == [
            ("forward", step) for step in range(1, STEPS + 1)
        ], kind
        assert {row.calls for row in sent} == {2}  # floats and the count of batches
        assert all(row.blocked > 0 for row in sent)


@pytest.mark.parametrize("kind", ["fsdp2"])
def test_fsdp2_gathers_in_forward_and_backward(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        found = {(row.path, row.op) for row in rank.collectives}
        assert ("forward", "all_gather_into_tensor") in found, kind
        assert ("backward", "all_gather_into_tensor") in found
        assert any(op == "reduce_scatter_tensor" for _, op in found)


@pytest.mark.parametrize("kind", ["tensor parallel"])
def test_what_tensor_parallel_layers_sum_is_waited_for_in_forward_and_backward(
    rows: list[Rows], kind: str
) -> None:
    """Three pairs of layers sum what they gave, and all but one the gradient of their input."""
    for rank in rows:
        sums = Counter((row.path, row.step) for row in rank.collectives)
        for step in range(1, STEPS + 1):
            assert sums.pop(("forward", step)) == 3, kind
            assert sums.pop(("backward", step)) == 2
        assert not sums
        assert {row.size for row in rank.collectives} == {8 * 1024 * 4}
        assert all(row.blocked > 0 for row in rank.collectives)
        for told in rank.steps:
            blocked = sum(row.blocked for row in rank.collectives if row.step == told.step)
            assert told.classes[COMMUNICATION] == pytest.approx(blocked * 1e-9, rel=1e-3)


def test_what_a_function_that_communicates_compiles_to_is_the_same_with_the_hook(
    results: list[dict[str, Any]], out: Path
) -> None:
    for result, rank in zip(results, folder(out / "traced"), strict=True):
        plain, watched = result["traced"]
        assert watched == plain
        assert len(plain["graphs"]) == 3
        # Where PyTorch counts: the compiled one twice; one was faked.
        assert rank.config.get("collectives_issued", 3.0) == 3.0
        assert rank.config["collectives_seen"] == 2.0


def test_every_collective_that_a_process_group_has_is_looked_at(
    results: list[dict[str, Any]],
) -> None:
    """Not the end of several that were issued one by one, nor a change of the group itself."""
    for result in results:
        assert set(result["unseen"]) <= {"_end_coalescing", "reconfigure"}


@pytest.mark.usefixtures("results")
def test_what_is_waited_for_together_is_the_wait_of_the_call_that_gave_it(out: Path) -> None:
    for number, rank in enumerate(folder(out / "together")):
        assert [row.step for row in rank.collectives] == list(range(1, STEPS + 1))
        assert all(row.blocked > 0 for row in rank.collectives)
        assert rank.usual_wait > 0.6 * LATE or number


@pytest.mark.parametrize("kind", KINDS)
def test_detach_takes_everything_back(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        assert result[kind]["left"] == []
        assert rank.ended


def test_time_that_ddp_blocks_is_what_its_own_timers_say(
    results: list[dict[str, Any]], out: Path
) -> None:
    for result, rank in zip(results, folder(out / "reducer"), strict=True):
        blocked = [row.blocked * 1e-9 for row in rank.collectives][: STEPS - 1]
        # A thread that may go on waits for a core now and then, and only one of the two sees it.
        off = [abs(ours - its) for ours, its in zip(blocked, result["reducer"], strict=True)]
        assert min(off) <= max(1e-3, 0.05 * median(result["reducer"]))


def test_without_gradient_exchange_backward_is_shorter_by_at_least_what_blocked(
    results: list[dict[str, Any]], out: Path
) -> None:
    """At least: gloo's threads also take the cores that the overlapped part computes on."""
    for result, rank in zip(results, folder(out / "oracle"), strict=True):
        exchanging = median(result["oracle"]["exchanging"])
        alone = min(result["oracle"]["alone"])  # where nobody else had the cores
        blocked = median(row.blocked * 1e-9 for row in rank.collectives)
        assert len(rank.collectives) == len(result["oracle"]["exchanging"])  # none under no_sync
        assert 0.2 * exchanging < blocked < exchanging - alone + 0.1 * exchanging


def test_a_compiled_model_stays_one_whole_graph(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["graphs"] == {"not at all": 1, "attached first": 1, "compiled first": 1}
