"""Exposed collectives and what they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings import Finding
from dsprof.findings.communication.accumulation import reductions_of_a_step
from dsprof.findings.communication.bound import _GATHERING, _beside, _gathers
from dsprof.findings.communication.calls import beside_phases
from dsprof.findings.facts import Facts, facts_of
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import (
    EXPOSED,
    WELL,
    alone,
    call,
    memory_breakdown,
    metric,
    one,
    phase,
    quiet,
    rules,
    run_of,
    steps,
    why,
)
from tests.recording.recorded import CLASSES, MS, header

#: ZeRO-1 over 5 ranks, 1e9 parameters of 2 bytes: 2 x 4/5 x 2e9 = 3.2e9 bytes a step.
ZERO_1: dict[str, Any] = {
    "framework": "deepspeed",
    "world_size": 5,
    "zero_stage": 1,
    "parameters": 1e9,
    "dtype": "fp16",
}


def test_collectives_that_take_30_percent_of_a_step_are_critical() -> None:
    found = alone(run_of(steps(3, EXPOSED), world_size=5), "communication-bound")
    assert found.severity is Severity.CRITICAL
    assert found.share == pytest.approx(0.4)
    assert found.seconds_per_step == pytest.approx(0.4)
    assert found.phase == "backward_allreduce"


def test_collectives_that_take_15_percent_are_a_warning() -> None:
    some = EXPOSED | {"backward_allreduce": 0.06}  # 0.16 of 1.0 s
    found = alone(run_of(steps(3, some), world_size=5), "communication-bound")
    assert found.severity is Severity.WARNING


def test_without_a_link_speed_the_cause_stays_open() -> None:
    found = alone(run_of(steps(3, EXPOSED), **ZERO_1), "communication-bound")
    assert "cannot be told apart: the link's speed is unknown" in found.summary
    assert found.gain is None
    assert found.confidence == "medium"


def test_a_link_that_is_used_as_it_can_be_is_called_bandwidth() -> None:
    run = run_of(steps(3, EXPOSED), {"link_bytes_per_second": 10e9}, **ZERO_1)
    found = alone(run, "communication-bound")  # at least 3.2e9 / 10e9 = 0.32 s; it takes 0.4 s
    assert "about what the link's bandwidth requires" in found.title
    assert "at least 320 ms" in found.summary
    assert found.confidence == "high"
    assert found.gain == pytest.approx((0.1, 0.2))  # half of it, with twice the micro-batches


@pytest.mark.parametrize(
    ("half", "overlap", "compute", "best"),
    [
        (True, False, 0.35, 0.2 + 0.3 / 2),  # half of 0.4 s, and of the rest all the reduction
        (True, False, 0.10, 0.2 + 0.10),  # as much of it as compute hides
        (True, True, 0.35, 0.2),
        (False, True, 0.35, 0.2 + 0.1),  # and half of the rest in numbers of half the size
    ],
)
def test_no_more_is_promised_at_the_links_limit_than_the_advice_takes_off(
    half: bool, overlap: bool, compute: float, best: float
) -> None:
    phases = EXPOSED | {"forward": compute / 2, "backward_inner": compute / 2}
    zero = {"stage": 1, "overlap_comm": overlap}
    run = run_of(
        steps(3, phases, sum(phases.values())),
        {"link_bytes_per_second": 10e9 if half else 20e9},  # at least 0.32 s
        ds_config=json.dumps({"bf16": {"enabled": half}, "zero_optimization": zero}),
        **{name: value for name, value in ZERO_1.items() if name != "dtype"},
    )
    found = alone(run, "communication-bound")
    assert "about what the link's bandwidth requires" in found.title
    assert found.gain == pytest.approx((best / 2, best))


def test_between_the_links_limit_and_far_from_it_the_advice_limits_the_gain_too() -> None:
    link = {"link_bytes_per_second": 20e9}  # at least 0.16 s; it takes 0.4 s
    found = alone(run_of(steps(3, EXPOSED), link, **ZERO_1), "communication-bound")
    assert "neither ideal nor alarming" in found.summary
    assert found.gain == pytest.approx((0.1, 0.2))  # half of it, not 0.24 s
    small = alone(run_of(steps(3, EXPOSED), link, reduce_bucket_size=1e5, **ZERO_1),
                "communication-bound")  # fmt: skip
    assert small.advice[0].setting == "zero_optimization.reduce_bucket_size"
    assert small.gain == pytest.approx((0.12, 0.24))


def test_what_the_cost_model_lacks_is_named_and_nothing_else() -> None:
    for lacking, named in (
        ("dtype", "the number format (fp16, bf16 or fp32)"),
        ("parameters", "the number of parameters"),
        ("world_size", "the data-parallel size"),
        ("zero_stage", "the ZeRO stage"),
        ("framework", "the stages of a pipeline and the data-parallel size"),
    ):
        known = {name: value for name, value in ZERO_1.items() if name != lacking}
        found = alone(run_of(steps(3, EXPOSED), **known), "communication-bound")
        assert f"cannot be told apart: this log lacks {named}, hence" in found.summary
    found = alone(run_of(steps(3, EXPOSED), **ZERO_1 | {"zero_stage": 2}), "communication-bound")
    assert "this log lacks the micro-batches of a step, hence" in found.summary


def logged(op: str, size: float, **settings: Any) -> Finding:
    """ZeRO-1 of unknown size whose steps log four calls, over a link of 10 GB/s."""
    calls = [call(op, step, size, 0.1, pattern="deepspeed_comms.op")
             for step in (1, 2, 3) for _ in range(4)]  # fmt: skip
    known = {name: value for name, value in ZERO_1.items() if name != "parameters"} | settings
    link = {"link_bytes_per_second": 10e9}
    return alone(run_of(steps(3, EXPOSED) + calls, link, **known), "communication-bound")


@pytest.mark.parametrize(
    ("op", "size"),
    [("all_reduce", 5e8), ("reduce_scatter_tensor", 1e9), ("all_gather_into_tensor", 2e8)],
)
def test_the_bytes_of_logged_calls_serve_where_the_size_of_the_model_is_not_told(
    op: str, size: float
) -> None:
    found = logged(
        op, size
    )  # 4 calls of 2 x 4/5 x 0.5 GB; a gathering's size is of one of 5 shards
    assert "2.98 GiB must cross each node's link per step" in found.summary
    assert "according to the logged calls, at least 320 ms at 10.0 GB/s" in found.summary
    assert "about what the link's bandwidth requires" in found.title


def test_logged_calls_that_may_stay_inside_a_node_say_nothing_of_its_link() -> None:
    lacks = "this log lacks the number of parameters"
    assert lacks in logged("all_to_all_single", 1e9).summary
    for groups in ({"tensor_parallel_size": 2, "world_size": 10}, {"expert_parallel_size": 5}):
        assert lacks in logged("all_reduce", 5e8, **groups).summary
    shards = {"zero_optimization": {"stage": 1, "mics_shard_size": 5}}
    assert lacks in logged("all_reduce", 5e8, ds_config=json.dumps(shards)).summary


def test_nccl_is_not_asked_to_say_what_it_says_already() -> None:
    link = {"link_bytes_per_second": 100e9}
    for told, asked in (({}, True), ({"network": "IB"}, False)):
        found = alone(run_of(steps(3, EXPOSED), link, **ZERO_1 | told), "communication-bound")
        assert ("NCCL_DEBUG" in [advice.setting for advice in found.advice]) is asked


def test_far_more_than_the_link_needs_is_not_called_bandwidth() -> None:
    run = run_of(steps(3, EXPOSED), {"link_bytes_per_second": 100e9}, **ZERO_1)
    found = alone(run, "communication-bound")  # 0.032 s would do
    assert "12 times what the link needs" in found.title or "13 times" in found.title
    assert found.gain == pytest.approx((0.184, 0.368))


def test_a_reduction_far_longer_than_the_gathering_is_waiting_for_a_slower_rank() -> None:
    late = EXPOSED | {"optimizer_allgather": 0.01}  # 4 x 0.01 would be plausible, 0.3 is not
    found = alone(run_of(steps(3, late), **ZERO_1), "communication-bound")
    assert "waiting for a slower rank" in found.title
    assert found.gain == pytest.approx((0.13, 0.26))


#: ZeRO-1 that gathers for 10 ms and reduces for 390 ms.
LATE = EXPOSED | {"optimizer_allgather": 0.01, "backward_allreduce": 0.39}


@pytest.mark.parametrize(
    ("reduced", "waits"),
    [
        (2**17, False),
        (2**21, True),
        (2**23, True),
        (5e8, True),
    ],  # 64, 4, 1, 1 calls for a large one
)
def test_small_buckets_of_the_reduction_explain_what_else_would_be_waiting(
    reduced: float, waits: bool
) -> None:
    for told in (
        {"ds_config": f'{{"zero_optimization": {{"stage": 1, "reduce_bucket_size": {reduced}}}}}'},
        {"reduce_bucket_size": reduced, "allgather_bucket_size": 5e8},
    ):
        run = run_of(steps(3, LATE), **ZERO_1 | told)
        found = alone(run, "communication-bound")
        assert ("waiting for a slower rank" in found.title) is waits
        assert (found.gain is not None) is waits
        if waits:
            times = 4 * max(1, 2**23 / reduced)
            assert found.gain == pytest.approx(((0.39 - times * 0.01) / 2, 0.39 - times * 0.01))
            assert ("smaller buckets" in found.summary) is (times > 4)
        else:
            assert found.advice[0].setting == "zero_optimization.reduce_bucket_size"
            assert found.advice[0].to == "5e8"
            assert "calls of 256 KiB" in found.advice[0].why


def test_buckets_as_small_as_those_of_the_gathering_do_not_explain_a_longer_reduction() -> None:
    run = run_of(steps(3, LATE), reduce_bucket_size=1e5, allgather_bucket_size=1e5, **ZERO_1)
    assert "waiting for a slower rank" in alone(run, "communication-bound").title


def test_copies_to_the_host_are_not_called_waiting_for_a_slower_rank() -> None:
    for link in ({}, {"link_bytes_per_second": 100e9}):
        found = alone(run_of(steps(3, LATE), link, offload_optimizer="cpu", **ZERO_1),
                    "communication-bound")  # fmt: skip
        assert "slower rank" not in found.title
        assert "copies of gradients to the host" in found.summary


def test_waiting_for_a_late_rank_is_not_counted_as_communication_again() -> None:
    rows = steps(30, {}, 1.0)
    for step in range(1, 31):
        for rank in range(3):
            late = 0.2 if rank == 2 else 0.0
            rows += [
                phase("forward", step, 0.3 + late, rank),
                phase("backward_allreduce", step, 0.7 - late, rank),
            ]
    found = alone(run_of(rows, world_size=3), "communication-bound")
    assert found.seconds_per_step == pytest.approx(0.5)  # as on the rank that does not wait
    assert "apart from 133 ms of waiting for a late rank" in found.summary
    assert found.title.startswith(
        "50 % of a step is communication between ranks apart from waiting for a late rank"
    )


def test_the_cause_is_that_of_the_steps_that_do_not_stick_out() -> None:
    rows = steps(120, EXPOSED | {"backward_allreduce": 0.18, "optimizer_allgather": 0.05})
    for row in rows:
        if row["name"] in {"backward_allreduce", "step_seconds"} and row["step"] % 30 == 0:
            row["seconds"] += 10.0
    found = alone(run_of(rows, **ZERO_1), "communication-bound")
    assert "apart from the steps that stick out" in found.title
    assert "slower rank" not in found.title  # 0.18 s are 3.6 times what gathering takes


def test_gathers_that_have_a_finding_of_their_own_prove_nothing_of_the_rest() -> None:
    table = pd.DataFrame(index=["all_gather_in_step", "reduce_scatter", "optimizer_allgather"])
    assert table.index[~_gathers(table, recorded=False)].to_list() == ["reduce_scatter"]
    table = pd.DataFrame(index=["all_gather_in_step", "reduce_scatter", "all_gather_into_tensor"])
    kept = ["reduce_scatter", "all_gather_into_tensor"]
    assert table.index[~_gathers(table, recorded=True)].to_list() == kept
    parts = {_GATHERING: 0.2, "in small messages": 0.1}
    assert _beside(parts) == " apart from gathering parameters and small messages"
    assert _beside(parts | {"in saves of checkpoints": 0.1}).endswith("what other findings name")


def test_of_two_ranks_one_waits_for_the_late_one_and_the_mean_holds_half_of_that() -> None:
    rows = [metric("step_seconds", step, 1.0) for step in range(1, 31)]
    for step in range(1, 31):
        for rank, late in ((0, 0.0), (1, 0.3)):
            rows += [
                phase("forward", step, 0.5 + late, rank),
                phase("backward_allreduce", step, 0.5 - late, rank),
            ]
    found = alone(run_of(rows, world_size=2), "communication-bound")
    assert found.seconds_per_step == pytest.approx(0.2)  # of 0.35, the mean of 0.5 and 0.2


def test_less_than_half_of_the_communication_is_not_called_most_of_it() -> None:
    three = EXPOSED | {"backward_allreduce": 0.15, "optimizer_allgather": 0.1, "reduce_grads": 0.1}
    found = alone(run_of(steps(3, three), world_size=5), "communication-bound")
    assert found.title.endswith("between ranks, the largest part backward_allreduce")


@pytest.mark.parametrize("stage", [1, 3])
def test_over_sockets_the_network_is_what_is_mended_first(stage: int) -> None:
    told: dict[str, Any] = {"network": "Socket", "transport": "NET/Socket/0", "nodes": 2}
    run = run_of(steps(3, EXPOSED), world_size=5, zero_stage=stage, **told)
    found = alone(run, "communication-bound")
    assert [one.setting for one in found.advice][:2] == ["NCCL_IB_DISABLE", "NCCL_IB_HCA"]
    assert "TCP sockets between nodes instead of InfiniBand or RoCE: that comes first." in (
        found.summary
    )


def test_on_one_host_there_is_no_link_between_nodes_to_compare_with() -> None:
    run = run_of(steps(3, EXPOSED), {"link_bytes_per_second": 10e9}, nodes=1, **ZERO_1)
    found = alone(run, "communication-bound")
    assert "all ranks are on one host" in found.summary
    assert found.gain is None


def test_with_one_replica_no_advice_is_about_gradients() -> None:
    of_one = {"world_size": 2, "tensor_parallel_size": 2, "data_parallel_size": 1, "zero_stage": 1}
    link = {"link_bytes_per_second": 10e9}
    found = alone(run_of(steps(3, EXPOSED), link, reduce_bucket_size=1e5, **of_one),
                "communication-bound")  # fmt: skip
    assert "with one replica no gradients are reduced" in found.summary
    assert [advice.setting for advice in found.advice] == ["dsprof attach"]


def test_a_model_that_asks_for_more_than_was_measured_is_not_believed() -> None:
    run = run_of(steps(3, EXPOSED), {"link_bytes_per_second": 1e9}, **ZERO_1)
    found = alone(run, "communication-bound")  # at least 3.2 s, of a step of 1 s
    assert "the rest is hidden behind compute, or the link is faster than stated" in found.summary
    assert found.title.endswith("communication between ranks, most of it backward_allreduce")
    assert (found.gain, found.confidence) == (None, "medium")


def test_calls_faster_than_the_link_say_that_it_is_another_one() -> None:
    size = 64 << 20
    rows = [call("all_reduce", 2, size, size / 50e9)]
    run = run_of(steps(3, EXPOSED) + rows, {"link_bytes_per_second": 10e9}, **ZERO_1)
    assert "the link is not what was stated" in alone(run, "communication-bound").summary


def test_what_zero_3_times_of_its_communication_is_a_lower_bound() -> None:
    run = run_of(steps(3, EXPOSED), zero_stage=3, world_size=5)
    found = alone(run, "communication-bound")
    assert found.title == "At least 40 % of a step is communication between ranks"
    assert found.seconds_per_step == pytest.approx(0.4)
    assert (found.gain, found.confidence) == (None, "medium")


def test_what_megatrons_optimizer_may_gather_leaves_the_timers_beside_it_what_they_are() -> None:
    timed = {"forward-compute": 0.5, "backward-compute": 0.9, "optimizer": 0.2}
    timed |= {"backward-params-all-reduce": 0.4}
    rows = [row | {"timers": "megatron"} for row in steps(4, timed, 2.0)]
    run = run_of(rows, world_size=16, zero_stage=1)
    assert run.steps["compute"].tolist() == pytest.approx([1.4] * 4)
    found = alone(run, "communication-bound")
    assert found.title == "At least 20 % of a step is communication between ranks"
    assert "lower bound: ZeRO gathers updated parameters" in found.summary


def test_reduction_beside_an_offloaded_optimizer_bounds_no_communication() -> None:
    run = run_of(steps(3, EXPOSED), zero_stage=3, world_size=5, offload_optimizer="cpu")
    assert "also holds copies of gradients to the host" in (why(run, "communication-bound") or "")
    assert "at least" not in alone(run, "unaccounted-time").title


def test_garbage_collected_inside_the_reduction_is_not_called_communication() -> None:
    slow = EXPOSED | {"backward": 1.5, "step": 1e-9}  # beside its parts
    looks = [row for step in (1, 2, 3) for row in memory_breakdown(step)]
    run = run_of([*looks, *steps(3, slow, None)], world_size=5, zero_stage=1)
    assert "part is unknown" in (why(run, "communication-bound") or "")
    found = alone(run, "host-sync")
    assert found.title.startswith("Up to 60 % of the timed part of a step is what memory_breakdown")
    assert found.seconds_per_step == pytest.approx(1.5)
    assert found.gain is None  # it also works between the timers, whose sum the step is
    assert "unaccounted-time" not in rules(run)


def test_garbage_that_does_not_show_beside_the_reduction_may_be_inside_it() -> None:
    looks = [row for step in (1, 2, 3) for row in memory_breakdown(step)]
    run = run_of([*looks, *steps(3, EXPOSED)], ds_config='{"zero_optimization": {"stage": 2}}',
                 world_size=5)  # fmt: skip
    assert "part is unknown" in (why(run, "communication-bound") or "")
    assert "collects garbage" in (why(run, "no-overlap") or "")


@pytest.mark.parametrize("stage", [0, 1])
def test_no_overlap_is_promised_to_a_pipeline_for_which_deepspeed_switches_it_off(
    stage: int,
) -> None:
    run = run_of(
        steps(5, EXPOSED | {"pipe_recv_grad": 0.05}, 1.05),
        ds_config=json.dumps({"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}),
        world_size=8, pipeline_parallel_size=4, data_parallel_size=2,
    )  # fmt: skip
    assert "DeepSpeed has no overlap there" in (why(run, "no-overlap") or "")
    advice = alone(run, "communication-bound").advice
    assert [one.setting for one in advice] == ["gradient_accumulation_steps"]


MIB = 1 << 20


def uneven(
    folder: Path,
    late: int,
    group: str = "0 ranks 0-1",
    *,
    loading: bool = False,
    transfer: int = 5,
    zero: int | None = None,
    size: int = 64 << 20,
) -> Run:
    """30 steps of 100 ms, `transfer` of them an all-reduce of `size` bytes, or under ZeRO-3 a
    gathering of parameters; in each, one rank in turn computes `late` ms longer.
    With `loading`, that rank also waits 1 us longer for its batch.
    """
    told = {"world_size": 2} | ({"zero_stage": zero} if zero else {})
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank=rank, world=2, config=told))
        whose = writer.name(group)
        data, forward = writer.name("data", 0, "data"), writer.name("forward", 0, "compute")
        backward = writer.name("backward", 0, "compute")
        reduce = writer.name("all_gather_into_tensor" if zero == 3 else "all_reduce", backward)
        for step in range(1, 31):
            begin = step * 100 * MS
            computing = late if step % 2 == rank else 0
            meets = begin + (100 - transfer) * MS
            arrives = meets - (late - computing) * MS
            held_up = meets - arrives + transfer * MS
            if loading:
                writer.span(data, begin - MS, begin - MS + 1_000 * (1 + (computing > 0)), step)
            writer.span(forward, begin, begin + computing * MS, step)
            writer.span(backward, begin + computing * MS, arrives + held_up, step)
            writer.collective(reduce, whose, arrives, arrives, held_up, step, size=size, seq=step)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    return load(folder)


def test_ranks_that_take_turns_at_being_late_are_told_from_transfer(tmp_path: Path) -> None:
    """In each step one rank computes 40 ms longer: the mean rank waits 20 beside 5 of transfer."""
    run = uneven(tmp_path, 40)
    assert quiet(run, "straggler-rank")
    found = alone(run, "communication-bound")
    assert found.title == (
        "25 % of a step is communication between ranks, at least 80 % of it because they take "
        "unequally long"
    )
    assert "the mean rank 20.0 ms per step longer" in found.summary
    assert "Most of what the rank that comes last does longer is forward." in found.summary
    assert [one.setting for one in found.advice] == ["the ranks' work in forward"]
    assert found.gain is None


def test_ranks_that_wait_for_each_other_where_buffers_are_broadcast_work_unequally_long(
    tmp_path: Path,
) -> None:
    """In each step one rank in turn is 40 ms late to forward. Without the broadcast, the others
    would wait in backward."""
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config={"world_size": 2}))
        forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
        buffers, reduced = writer.name("broadcast", forward), writer.name("all_reduce", backward)
        group = writer.name("0 ranks 0-1")
        for step in range(1, 31):
            begin = step * 100 * MS
            late = 40 * MS if step % 2 == rank else 0
            at, meets = begin + late, begin + 41 * MS
            writer.span(forward, at, meets, step)
            writer.collective(buffers, group, at, at, meets - at, step, size=1 << 10)
            writer.span(backward, meets, begin + 100 * MS, step)
            writer.collective(reduced, group, meets, meets, MS, step, size=1 << 20)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    found = alone(load(tmp_path), "communication-bound")
    assert found.title.endswith(" of it because they take unequally long")
    assert [one.setting for one in found.advice] == ["the ranks' work in a step"]


def test_waiting_for_a_late_rank_in_a_barrier_of_the_script_is_not_what_else_is_communication(
    tmp_path: Path,
) -> None:
    """Rank 1 comes 40 ms late to the barrier; the 30 ms in backward are of both ranks."""
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config={"world_size": 2}))
        forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
        barrier, reduced = writer.name("barrier"), writer.name("all_reduce", backward)
        group = writer.name("0 ranks 0-1")
        for step in range(1, 31):
            begin = step * 100 * MS
            writer.span(forward, begin, begin + 20 * MS, step)
            writer.span(backward, begin + 20 * MS, begin + 58 * MS, step)
            at = begin + 28 * MS
            writer.collective(reduced, group, at, at, 30 * MS, step, size=64 << 20, seq=2 * step)
            arrives = begin + (99 if rank else 59) * MS
            waits = begin + 100 * MS - arrives
            writer.collective(
                barrier, group, arrives, arrives, waits, step, size=0, seq=2 * step + 1
            )
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    run = load(tmp_path)
    assert alone(run, "straggler-rank").ranks == (1,)
    found = alone(run, "communication-bound")
    assert "apart from waiting for a late rank" in found.title
    assert "outside of forward, backward and update" not in found.title
    assert "the script's own barriers" not in [one.setting for one in found.advice]


def test_a_part_that_is_uneven_work_is_told_where_the_rest_is_unknown(tmp_path: Path) -> None:
    """In each step one rank computes 20 ms longer: the mean rank waits 10 beside 12 of transfer."""
    found = alone(uneven(tmp_path, 20, transfer=12), "communication-bound")
    assert found.title == (
        "22 % of a step is communication between ranks, at least 45 % of it because they take "
        "unequally long"
    )
    assert "the mean rank 10.0 ms per step longer. At least that much is waiting" in found.summary
    assert "In the rest, bandwidth, many small messages and more of such waiting cannot" in (
        found.summary
    )
    assert found.confidence == "medium"
    assert found.advice[-1].setting == "the ranks' work in forward"
    assert len(found.advice) > 1


@pytest.mark.parametrize(("late", "rest"), [(20, "In the rest, t"), (0, "T")])
def test_calls_that_send_too_little_for_any_link_are_not_laid_to_bandwidth(
    tmp_path: Path, late: int, rest: str
) -> None:
    """Twice 64 KiB take 1 ms at 1 Gbit/s, of the 22 that collectives hold a step up."""
    run = uneven(tmp_path, late, transfer=22 - late // 2, size=64 << 10)
    found = alone(run, "communication-bound")
    assert (
        "They send 128 KiB per step at most, 1.05 ms even at 1 Gbit/s: that is not bandwidth. "
        f"{rest}he start-up of calls and " in found.summary
    )
    settings = [one.setting for one in found.advice]
    assert "samples of a micro-batch" in settings
    assert not {"bf16.enabled", "zero_optimization.overlap_comm"} & set(settings)
    assert found.confidence == "medium"


def test_what_ranks_wait_for_each_other_in_gathers_is_uneven_work_and_no_gathering(
    tmp_path: Path,
) -> None:
    """As above, but they meet where ZeRO-3 gathers, which takes 20 ms, and the mean rank waits
    20."""
    run = uneven(tmp_path, 40, transfer=20, zero=3)
    assert alone(run, "zero3-gather-stall").seconds_per_step == pytest.approx(0.02, rel=0.01)
    found = alone(run, "communication-bound")
    assert found.title == (
        "20 % of a step is communication between ranks apart from gathering parameters, at least "
        "100 % of it because they take unequally long"
    )


def test_what_takes_next_to_nothing_is_not_named_beside_the_communication(tmp_path: Path) -> None:
    """Some microseconds of waiting for each other's input would read as a part of the cause."""
    found = alone(uneven(tmp_path, 40, loading=True), "communication-bound")
    assert "input" not in found.title + found.summary


def test_ranks_of_other_groups_are_not_said_to_work_unevenly(tmp_path: Path) -> None:
    found = alone(uneven(tmp_path, 40, "dp ranks 0"), "communication-bound")
    assert "cannot be told apart" in found.summary


def accumulating(folder: Path, reduced: int, updates: int = 1, buckets: int = 1) -> Run:
    """30 steps of two ranks; of 4 backwards of 20 ms, the last `reduced` make an all-reduce of 6,
    in that many buckets. The update runs in as many pieces: where it asks for gradients itself,
    between the backwards.
    """
    for rank in (0, 1):
        told = {"world_size": 2, "gradient_buckets": buckets}
        writer = Writer.create(folder, header(rank=rank, world=2, config=told))
        whose = writer.name("0 ranks 0-1")
        backward, update = (
            writer.name("backward", 0, "compute"),
            writer.name("step", 0, "optimizer"),
        )
        reduce = writer.name("all_reduce", backward)
        for step in range(1, 31):
            begin = step * 100 * MS
            for place in range(4):
                at, over = begin + place * 25 * MS, begin + (place * 25 + 24) * MS
                writer.span(backward, at, over, step)
                if place >= 4 - reduced:
                    call = (over - 6 * MS, over - 6 * MS, 6 * MS, step)
                    size = 8 * MIB // buckets
                    writer.collective(reduce, whose, *call, size=size, seq=1, count=buckets)
                if place >= 4 - updates:
                    writer.span(update, over, over + MS, step)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    return load(folder)


@pytest.mark.parametrize("buckets", [1, 2])
def test_gradients_that_are_reduced_in_each_backward_of_a_step_need_no_larger_batch(
    tmp_path: Path, buckets: int
) -> None:
    found = alone(accumulating(tmp_path, 4, buckets=buckets), "communication-bound")
    assert found.title == (
        "24 % of a step is communication between ranks: gradients are reduced 4 times for one "
        "update"
    )
    assert [advice.setting for advice in found.advice] == ["DistributedDataParallel.no_sync()"]
    assert found.gain == pytest.approx((0.009, 0.027))


@pytest.mark.parametrize(
    ("reduced", "updates", "buckets"), [(3, 1, 1), (4, 4, 1), (1, 1, 4), (2, 1, 2)]
)
def test_no_reduction_is_too_many_if_some_backwards_make_none_or_the_update_asks_for_each(
    tmp_path: Path, reduced: int, updates: int, buckets: int
) -> None:
    """As many calls as there are backwards may be one reduction in as many buckets."""
    run = accumulating(tmp_path, reduced, updates, buckets)
    assert reductions_of_a_step(Facts(run)) == 0


def of_two_losses(folder: Path, sizes: tuple[tuple[int, ...], ...]) -> Run:
    """30 steps of a ZeRO-1 engine that accumulates nothing; each of its two backwards reduces
    buckets of these sizes in 6 ms each.
    """
    config = {"framework": "deepspeed", "zero_stage": 1, "gradient_accumulation_steps": 1}
    for rank in (0, 1):
        told = {"world_size": 2, "data_parallel_size": 2} | config
        writer = Writer.create(folder, header(rank=rank, world=2, config=told))
        whose = writer.name("0 ranks 0-1")
        forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
        reduce = writer.name("reduce", backward, "compute")
        call = writer.name("all_reduce", reduce)
        for step in range(1, 31):
            begin = step * 100 * MS
            for place, buckets in enumerate(sizes):
                at, over = begin + place * 50 * MS, begin + (place * 50 + 48) * MS
                writer.span(forward, at, at + 10 * MS, step)
                writer.span(backward, at + 10 * MS, over, step)
                writer.span(reduce, at + 20 * MS, over, step)
                for size in buckets:
                    issued = at + 24 * MS
                    writer.collective(call, whose, issued, issued, 6 * MS, step, size=size, seq=1)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    return load(folder)


def test_an_engine_that_reduces_for_each_of_two_losses_needs_no_larger_batch(
    tmp_path: Path,
) -> None:
    found = alone(of_two_losses(tmp_path, ((MIB, 1000), (MIB, 1000))), "communication-bound")
    assert found.title == (
        "24 % of a step is communication between ranks: gradients are reduced 2 times for one "
        "update"
    )
    assert [(advice.setting, advice.now) for advice in found.advice] == [
        ("engine.backward() of a step", "2")
    ]
    assert found.gain == pytest.approx((0.006, 0.018))


def test_an_engine_whose_last_backward_alone_reduces_is_not_said_to_reduce_too_often(
    tmp_path: Path,
) -> None:
    """As under `no_sync`, in however many buckets."""
    found = alone(of_two_losses(tmp_path, ((), (MIB, MIB, 1000))), "communication-bound")
    assert "for one update" not in found.title
    assert "gradient_accumulation_steps" in {advice.setting for advice in found.advice}


def test_little_communication_is_no_finding() -> None:
    run = run_of(steps(40, WELL), world_size=5, zero_stage=1)
    assert quiet(run, "communication-bound")
    assert quiet(run, "no-overlap")


def test_a_log_without_timers_is_not_judged() -> None:
    run = run_of(steps(40, {}), world_size=5)
    assert why(run, "communication-bound") == "no timer tells where the time of a step goes"
    assert "communication-bound" not in rules(run)


def test_overlap_is_not_advised_where_most_is_the_gathering_of_parameters() -> None:
    gathers = WELL | {"optimizer_allgather": 0.5, "backward_allreduce": 0.3}
    reduces = WELL | {"optimizer_allgather": 0.3, "backward_allreduce": 0.5}
    settings: dict[str, Any] = {"zero_stage": 2, "ds_config": '{"zero_optimization": {"stage": 2}}'}
    for phases, advised in ((gathers, False), (reduces, True)):
        run = run_of(steps(5, phases, sum(phases.values())), world_size=2, nodes=1, **settings)
        said = [advice.setting for advice in alone(run, "communication-bound").advice]
        assert ("zero_optimization.overlap_comm" in said) is advised
        assert alone(run, "no-overlap").phase == "backward_allreduce"


@pytest.mark.parametrize(("buffers", "cured"), [(0.4, True), (0.1, False)])
def test_what_ddp_sends_in_each_forward_no_accumulation_takes_away(
    buffers: float, *, cured: bool
) -> None:
    parts = {"forward": 0.5, "broadcast_in_forward": buffers, "reduce_grads": 0.5 - buffers}
    advice = alone(run_of(steps(20, parts), world_size=2), "communication-bound").advice
    settings = [one.setting for one in advice]
    assert (settings == ["DistributedDataParallel(broadcast_buffers=...)"]) == cured
    assert ("gradient_accumulation_steps" in settings) != cured


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter_tensor", "broadcast"])
def test_what_layers_sum_in_each_forward_no_accumulation_takes_away(op: str) -> None:
    parts = {"forward": 0.5, f"{op}_in_forward": 0.1, "reduce_grads": 0.4}
    advice = alone(run_of(steps(20, parts), world_size=2), "communication-bound").advice
    settings = [one.setting for one in advice]
    assert ("gradient_accumulation_steps" in settings) == (op == "broadcast")


@pytest.mark.parametrize(("op", "is_own"), [("broadcast", True), ("all_reduce", False)])
def test_what_a_script_sends_beside_its_phases_is_not_saved_by_larger_batches(
    tmp_path: Path, op: str, *, is_own: bool
) -> None:
    """An all-reduce there may be of gradients that the script averages itself."""
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config={"world_size": 2}))
        backward, whose = writer.name("backward", 0, "compute"), writer.name("0 ranks 0-1")
        call = writer.name(op)
        for step in range(1, 31):
            begin = step * 100 * MS
            writer.span(backward, begin, begin + 70 * MS, step)
            sent = begin + 70 * MS
            writer.collective(call, whose, sent, sent, 30 * MS, step, -1, 2 * MIB, 4, step)
            seconds = (0.07, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            writer.step(step, begin, begin + 100 * MS, seconds)
        writer.close()
    found = one(load(tmp_path), "communication-bound")
    settings = [advice.setting for advice in found.advice]
    assert ("what the script sends by broadcast" in settings) == is_own
    assert ("outside of forward, backward and update, 8.00 MiB per step" in found.summary) == is_own
    assert ("micro-batches of a step" in settings) != is_own


@pytest.mark.parametrize("size", [8, 2 * MIB])
@pytest.mark.parametrize("is_reduced", [True, False])
def test_what_a_script_reduces_in_few_bytes_is_its_own_where_backward_reduces_gradients(
    tmp_path: Path, size: int, *, is_reduced: bool
) -> None:
    """Of 30 ms in collectives 10 are in backward; 12 average a metric, and 8 are a barrier."""
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config={"world_size": 2}))
        backward, whose = writer.name("backward", 0, "compute"), writer.name("0 ranks 0-1")
        inside = writer.name("all_reduce" if is_reduced else "broadcast", backward)
        metric, barrier = writer.name("all_reduce"), writer.name("barrier")
        for step in range(1, 31):
            begin = step * 100 * MS
            writer.span(backward, begin, begin + 80 * MS, step)
            at = begin + 70 * MS
            for op, many, sent in ((inside, 10, 4 * MIB), (metric, 12, size), (barrier, 8, 0)):
                writer.collective(op, whose, at, at, many * MS, step, -1, sent, 4, step)
                at += many * MS
            writer.step(step, begin, begin + 100 * MS, (0.07, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
        writer.close()
    found = alone(load(tmp_path), "communication-bound")
    title = "30 % of a step is communication between ranks"
    if not is_reduced:
        assert "outside" not in found.title + found.summary
    elif size < MIB:
        assert found.title == f"{title}, 67 % of it outside of forward, backward and update"
        assert "20.0 ms of it are calls that the script or its trainer makes" in found.summary
        assert [one.setting for one in found.advice] == ["what the script sends by all_reduce"]
    else:
        assert "12.0 ms of it are calls" not in found.summary
        assert "what the script sends by all_reduce" not in [one.setting for one in found.advice]


@pytest.mark.parametrize("parameters", [MIB, MIB // 8])
def test_what_a_script_reduces_is_not_its_gradients_where_the_model_has_fewer(
    tmp_path: Path, parameters: int
) -> None:
    """An all-reduce of 2 MiB beside the phases, and that of ZeRO in backward."""
    config: dict[str, Any] = {"world_size": 2, "parameters": parameters}
    config |= {"zero_stage": 1, "ds_config": '{"zero_optimization": {"stage": 1}}'}
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config=config))
        backward, whose = writer.name("backward", 0, "compute"), writer.name("0 ranks 0-1")
        calls = ((writer.name("all_reduce", backward), 10), (writer.name("all_reduce"), 30))
        for step in range(1, 31):
            begin = step * 100 * MS
            writer.span(backward, begin, begin + 70 * MS, step)
            for op, many in calls:
                at = begin + (60 if many == 10 else 70) * MS
                writer.collective(op, whose, at, at, many * MS, step, -1, 2 * MIB, 1, step)
            writer.step(step, begin, begin + 100 * MS, (0.06, 0.04, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
        writer.close()
    run, is_own = load(tmp_path), parameters < MIB
    found = one(run, "communication-bound")
    settings = [advice.setting for advice in found.advice]
    assert ("what the script sends by all_reduce" in settings) == is_own
    assert found.title.endswith("75 % of it outside of forward, backward and update") == is_own
    assert ("no-overlap" in rules(run)) != is_own  # 10 ms of 100 are too few to hide


@pytest.mark.parametrize(("blocked", "severity"), [(40, "critical"), (10, "warning"), (2, None)])
def test_sends_and_receives_that_a_script_makes_itself_are_said_to_hold_a_step_up(
    tmp_path: Path, blocked: int, severity: str | None
) -> None:
    """So many milliseconds of 100 for each, as a pipeline of PyTorch's has them."""
    between(tmp_path, "", blocked)
    run = load(tmp_path)
    if severity is None:
        assert "communication-bound" not in rules(run)
        return
    found = alone(run, "communication-bound")
    assert (str(found.severity), found.confidence, found.gain) == (severity, "low", None)
    assert found.share == pytest.approx(2 * blocked / 100)


@pytest.mark.parametrize("world", [1, 2])
def test_a_job_of_one_rank_is_not_said_to_communicate_between_ranks(
    tmp_path: Path, world: int
) -> None:
    """Its calls are made all the same; with a second rank they are many small messages."""
    given = {"zero_optimization": {"stage": 1}}
    config = {"world_size": world, "zero_stage": 1, "ds_config": given}
    for rank in range(world):
        told = header(rank=rank, world=world, framework="deepspeed", config=config)
        writer = Writer.create(tmp_path, told)
        backward, whose = writer.name("backward", 0, "compute"), writer.name("0 ranks 0")
        reduce = writer.name("all_reduce", backward)
        for step in range(1, 31):
            begin = step * 100 * MS
            writer.span(backward, begin, begin + 70 * MS, step)
            for one_of_them in range(20):
                sent = begin + (10 + 2 * one_of_them) * MS
                seq = 20 * step + one_of_them
                writer.collective(reduce, whose, sent, sent, 2 * MS, step, size=64, seq=seq)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    run = load(tmp_path)
    assert ("small-messages" in rules(run)) == (world > 1)
    if world == 1:
        found = alone(run, "communication-bound")
        assert found.title.startswith("40 % of a step is collective calls in a job of one rank")
        assert "between" not in found.title + found.summary
        assert [(advice.setting, advice.to) for advice in found.advice] == [
            ("zero_optimization.stage", "0")
        ]
        assert "no-overlap" not in rules(run)


def test_what_a_pipeline_of_deepspeeds_waits_for_is_told_once(tmp_path: Path) -> None:
    between(tmp_path, "pipe_", 40)
    assert "pipeline-bubble" in rules(load(tmp_path))
    assert "communication-bound" not in rules(load(tmp_path))


def between(folder: Path, timer: str, blocked: int) -> None:
    """30 steps of 100 ms in which a send and a receive take so many each, in its timer if any."""
    writer = Writer.create(folder, header(config={"world_size": 2}))
    group, computes = writer.name("world ranks 0-1"), writer.name("forward", 0, "compute")
    waits = 2 * blocked * 1e-3
    for step in range(1, 31):
        begin = step * 100 * MS
        writer.span(computes, begin, begin + (100 - 2 * blocked) * MS, step)
        for name in ("send", "recv"):
            at = begin + 20 * MS
            phase = writer.name(f"{timer}{name}_grad", 0, "wait") if timer else 0
            if phase:
                writer.span(phase, at, at + blocked * MS, step)
            call = writer.name(name, phase)
            writer.collective(call, group, at, at, blocked * MS, step, size=MIB)
        writer.step(
            step, begin, begin + 100 * MS, (0.1 - waits, 0.0, waits, 0.0, 0.0, 0.0, 0.0, 0.0)
        )
    writer.close()


def test_in_a_broadcast_of_a_few_bytes_the_others_wait_for_the_rank_that_sends(
    tmp_path: Path,
) -> None:
    """Rank 1 updates 40 of 100 ms longer before it sends the loss of a pipeline's last stage, in
    too few steps to be called late."""
    for rank, held_up in ((0, 41), (1, 1)):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config={"world_size": 2}))
        group, sends = writer.name("0 ranks 0-1"), writer.name("broadcast", 0, "communication")
        forward, step_ = writer.name("forward", 0, "compute"), writer.name("step", 0, "optimizer")
        for step in range(1, 11):
            begin = step * 100 * MS
            meets = begin + (100 - held_up) * MS
            writer.span(forward, begin, begin + 55 * MS, step)
            writer.span(step_, begin + 55 * MS, meets, step)
            writer.collective(sends, group, meets, meets, held_up * MS, step, size=8, seq=step)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    said = beside_phases(facts_of(load(tmp_path))[0], 0.021)
    assert said is not None
    assert said.said.endswith("In them rank 1 is held up least.")
    assert said.advice.setting == "what rank 1 does before its broadcast"
