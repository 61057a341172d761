"""Calls that are too small to use the link."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import load
from dsprof.text.words import what_if
from tests.findings.plants import (
    WELL,
    alone,
    call,
    one,
    quiet,
    recorded,
    run_of,
    silent,
    steps,
    why,
)
from tests.recording.recorded import CLASSES, MS, header


def test_many_small_messages_are_latency() -> None:
    rows = [call("all_reduce", step, 4096, 0.01) for step in range(1, 11) for _ in range(20)]
    found = alone(run_of(steps(10, WELL) + rows, world_size=2), "small-messages")
    assert found.seconds_per_step == pytest.approx(0.2)  # 20 calls of 10 ms
    assert found.share == pytest.approx(0.2)
    assert found.advice[0].setting == "zero_optimization.reduce_bucket_size"
    assert "20 such calls per step" in found.summary


def test_a_log_does_not_tell_latency_from_waiting_in_small_messages() -> None:
    rows = [call("all_reduce", step, 4096, 0.01) for step in range(1, 11) for _ in range(20)]
    found = alone(run_of(steps(10, WELL) + rows, world_size=2), "small-messages")
    assert found.title.endswith("under 1.00 MiB: latency or waiting, not bandwidth")
    assert "wait for each other in them, this log does not say" in found.summary


def test_calls_of_set_up_belong_to_no_step() -> None:
    """100 s of broadcasts before the first step, 0.2 s a step in it."""
    rows = [call("all_reduce", step, 4096, 0.01) for step in range(1, 11) for _ in range(20)]
    rows += [call("broadcast", 1, 4096, 1.0) | {"step": None} for _ in range(100)]
    found = alone(run_of(steps(10, WELL) + rows, world_size=2), "small-messages")
    assert found.seconds_per_step == pytest.approx(0.2)
    assert found.phase == "all_reduce"


def test_a_summary_table_counts_set_up_and_is_an_upper_bound() -> None:
    rows = [call("all_reduce", 10, 4096, 2.0, count=200, pattern="deepspeed_comms.summary")]
    found = alone(run_of(steps(10, WELL) + rows, world_size=2), "small-messages")
    assert "20 such calls per step take at most 200 ms" in found.summary
    assert found.evidence[0].text == "200 times all_reduce of 4.00 KiB in 2.00 s, 10.0 ms each"


def test_a_bucket_that_is_as_large_as_it_should_be_is_not_advised() -> None:
    rows = [call("all_reduce", step, 4096, 0.01) for step in range(1, 11) for _ in range(20)]
    for size, advised in ((1e6, ["1e6"]), (5e8, []), (None, [])):
        zero = {"stage": 1} | ({} if size is None else {"reduce_bucket_size": size})
        json_ = json.dumps({"zero_optimization": zero})
        run = run_of(steps(10, WELL) + rows, world_size=2, ds_config=json_)
        found = one(run, "small-messages")
        assert [advice.now for advice in found.advice] == advised  # unset is DeepSpeed's 5e8
        assert (found.gain is None) == (not advised)


def test_what_is_advised_for_one_operation_saves_no_other() -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.3, "backward_allreduce": 0.5}
    rows = [recorded("all_reduce", step, 4096, 0.03) for step in range(1, 11) for _ in range(10)]
    rows += [recorded("all_gather", step, 4096, 0.02) for step in range(1, 11) for _ in range(10)]
    found = one(run_of(steps(10, timed) + rows, world_size=2, zero_stage=1), "small-messages")
    assert found.seconds_per_step == pytest.approx(0.5)
    assert [advice.setting for advice in found.advice] == ["these all_reduce calls"]
    assert found.gain is not None
    assert found.gain[0] == pytest.approx(0.3)


def test_calls_that_take_longer_than_their_step_are_not_judged() -> None:
    rows = [call("all_reduce", step, 4096, 0.1) for step in range(1, 11) for _ in range(20)]
    assert "longer than a step" in (why(run_of(steps(10, WELL) + rows), "small-messages") or "")


def test_few_small_messages_beside_large_ones_are_no_finding() -> None:
    rows = [call("all_reduce", step, 64 << 20, 0.2) for step in range(1, 11)]
    rows += [call("all_reduce", step, 4096, 0.01) for step in range(1, 11) for _ in range(12)]
    assert quiet(run_of(steps(10, WELL) + rows, world_size=2), "small-messages")


def test_small_messages_without_any_calls_are_not_judged() -> None:
    assert "comms_logger" in (why(run_of(steps(10, WELL)), "small-messages") or "")


def test_a_recording_tells_of_small_messages_by_what_they_hold_up() -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.2, "backward_allreduce": 0.6}
    rows = [recorded("all_reduce", step, 4096, 0.03) for step in range(1, 11) for _ in range(20)]
    run = run_of(steps(10, timed) + rows, world_size=2, zero_stage=1)
    found = one(run, "small-messages")
    assert found.seconds_per_step == pytest.approx(0.6)
    assert found.confidence == "high"
    assert found.gain == pytest.approx((0.6, 0.8))  # and half of what is left of the step
    assert what_if(found, 1.0, None).endswith(
        "(80 %); more than the calls take, because what prepares each of them is saved as well"
    )
    assert found.severity is Severity.CRITICAL  # exposed, not merely timed one by one
    assert run.findings[0].rule == "small-messages"
    assert silent(run, "communication-bound")  # 4 % are left, and the cause is named already


@pytest.mark.parametrize(
    ("tensors", "inside", "advised"),
    [
        (2, "forward", ["samples of a micro-batch", "tensor_parallel_size"]),
        (2, "backward", ["zero_optimization.reduce_bucket_size"]),  # of gradients
        (1, "forward", ["zero_optimization.reduce_bucket_size"]),
    ],
)
def test_small_messages_of_tensor_parallelism_are_in_no_bucket(
    tensors: int, inside: str, advised: list[str]
) -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.2, "backward_allreduce": 0.6}
    each_step = [("backward", 14), (inside, 6)]
    rows = [
        recorded("all_reduce", step, 4096, 0.03) | {"raw": f"{phase}/all_reduce"}
        for step in range(1, 11)
        for phase, many in each_step
        for _ in range(many)
    ]
    buckets = json.dumps({"zero_optimization": {"stage": 1, "reduce_bucket_size": 1e6}})
    run = run_of(
        steps(10, timed) + rows,
        world_size=4,
        zero_stage=1,
        tensor_parallel_size=tensors,
        ds_config=buckets,
    )
    found = one(run, "small-messages")
    assert [advice.setting for advice in found.advice] == advised
    assert (found.gain is None) == ("tensor_parallel_size" in advised)


@pytest.mark.parametrize(
    ("op", "inside", "replicas", "settings"),
    [
        ("all_gather_into_tensor", "backward", 2, ["fully_shard"]),
        ("all_reduce", "backward", 2, ["DistributedDataParallel(bucket_cap_mb=...)"]),
        ("all_reduce", "forward", 2, []),  # a trainer's own numbers, in no bucket
        ("all_reduce", "backward", None, []),  # of tensor parallelism
        ("all_reduce", "", 2, ["these all_reduce calls"]),  # of the script
        ("all_to_all_single", "forward", 2, ["samples of a micro-batch"]),  # of sequences
    ],
)
def test_a_recorded_job_without_deepspeed_is_not_advised_on_settings_of_others(
    op: str, inside: str, replicas: int | None, settings: list[str], tmp_path: Path
) -> None:
    writer = Writer.create(tmp_path, header())
    if replicas:
        writer.config("data_parallel_size", replicas)
    forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
    small = writer.name(op, {"forward": forward, "backward": backward, "": 0}[inside])
    for step in range(1, 31):
        at = step * 100 * MS
        writer.span(forward, at, at + 20 * MS, step)
        writer.span(backward, at + 20 * MS, at + 100 * MS, step)
        for _ in range(20):
            writer.collective(small, 0, at, at, 3 * MS, step, size=4096)
        writer.step(step, at, at + 100 * MS, CLASSES)
    writer.close()
    run = load(tmp_path)
    found = one(run, "small-messages")
    assert [advice.setting for advice in found.advice] == settings
    if not inside:  # what is around them is in no phase either, and nothing is of this run
        assert found.gain == pytest.approx((found.seconds_per_step, found.seconds_per_step))
    said = [advice.setting for found in run.findings for advice in found.advice]
    assert not [setting for setting in said if "zero_optimization" in setting]
    assert why(run, "zero3-gather-stall") == "not a ZeRO-3 run"


@pytest.mark.parametrize(
    ("times", "buckets", "advised", "part"),
    [
        (20, 1, ["DistributedDataParallel.no_sync()"], 0.95),
        (
            4,
            5,
            [
                "DistributedDataParallel.no_sync()",
                "DistributedDataParallel(bucket_cap_mb=...)",
            ],
            1.0,
        ),
        (1, 20, ["DistributedDataParallel(bucket_cap_mb=...)"], 1.0),
    ],
)
def test_small_gradients_that_are_reduced_in_each_backward_are_to_be_reduced_once(
    times: int, buckets: int, advised: list[str], part: float, tmp_path: Path
) -> None:
    """20 calls of 3 ms a step, the buckets of one reduction of different sizes."""
    told = {"data_parallel_size": 2, "gradient_buckets": buckets}
    writer = Writer.create(tmp_path, header(config=told))
    backward = writer.name("backward", 0, "compute")
    reduce = writer.name("all_reduce", backward)
    for step in range(1, 31):
        at = step * 100 * MS
        for place in range(times):
            begin = at + place * 80 * MS // times
            writer.span(backward, begin, begin + 80 * MS // times, step)
            for bucket in range(buckets):
                issued = begin + bucket * 3 * MS
                size = 4096 * (bucket + 1)
                writer.collective(reduce, 0, issued, issued, 3 * MS, step, size=size)
        writer.step(step, at, at + 100 * MS, CLASSES)
    writer.close()
    found = one(load(tmp_path), "small-messages")
    assert [advice.setting for advice in found.advice] == advised
    assert (f"in each of {times} backwards of a step" in found.summary) == (times > 1)
    assert found.title.endswith(
        f": gradients are reduced {times} times for one update"
        if times > 1
        else ": latency, not bandwidth"
    )
    assert found.seconds_per_step is not None
    assert found.gain is not None
    assert found.gain[0] == pytest.approx(part * found.seconds_per_step)


def test_of_a_scripts_own_calls_fewer_save_nothing_of_those_that_reduce_gradients() -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.2, "backward_allreduce": 0.6}
    each_step = [("all_reduce", 15), ("backward/all_reduce", 5)]
    rows = [
        recorded("all_reduce", step, 4096, 0.03) | {"raw": raw}
        for step in range(1, 11)
        for raw, many in each_step
        for _ in range(many)
    ]
    found = one(run_of(steps(10, timed) + rows, world_size=2, zero_stage=1), "small-messages")
    assert [advice.setting for advice in found.advice] == ["these all_reduce calls"]
    assert found.seconds_per_step == pytest.approx(0.6)
    assert found.gain is not None
    assert found.gain[0] == pytest.approx(0.45)


def test_barriers_of_values_that_are_logged_in_forward_count(tmp_path: Path) -> None:
    """Lightning's `log(sync_dist=True)` makes a barrier and an all_reduce for each value."""
    writer = Writer.create(tmp_path, header())
    writer.config("data_parallel_size", 2)
    forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
    meet, reduce_ = (writer.name(name, forward) for name in ("barrier", "all_reduce"))
    for step in range(1, 31):
        at = step * 100 * MS
        writer.span(forward, at, at + 20 * MS, step)
        writer.span(backward, at + 20 * MS, at + 100 * MS, step)
        for number in range(20):
            now = at + number * MS
            writer.collective(meet, 0, now, now, MS // 2, step, size=0)
            writer.collective(reduce_, 0, now, now + MS // 2, MS // 5, step, size=4)
        writer.step(step, at, at + 100 * MS, CLASSES)
    writer.close()
    found = alone(load(tmp_path), "small-messages")
    assert found.seconds_per_step == pytest.approx(0.014)  # 20 times 0.5 ms and 0.2 ms
    assert "40 such calls per step, 20 of them barriers, take 14.0 ms" in found.summary
    assert [advice.setting for advice in found.advice] == ["what forward logs of all ranks"]


@pytest.mark.parametrize("stage", [1, 3])
def test_what_a_trainer_gathers_into_lists_is_no_parameter_and_in_no_bucket(stage: int) -> None:
    """transformers' Trainer and TRL gather a few bytes of every metric that they log."""
    timed = WELL | {"forward": 0.1, "backward_inner": 0.2, "broadcast_in_forward": 0.6}
    rows = [recorded("all_gather", step, 8, 0.03) for step in range(1, 11) for _ in range(20)]
    run = run_of(steps(10, timed) + rows, world_size=2, zero_stage=stage)
    found = one(run, "small-messages")
    assert found.seconds_per_step == pytest.approx(0.6)
    assert [advice.setting for advice in found.advice] == ["these all_gather calls"]
    assert found.gain
    assert found.gain[0] == pytest.approx(0.6)
    assert why(run, "zero3-gather-stall")


def test_no_bucket_is_advised_for_what_an_engine_gathers_into_lists() -> None:
    timed = WELL | {"forward": 0.1, "backward_inner": 0.2, "all_gather_in_step": 0.6}
    each = [recorded("all_gather", step, 4096, 0.03, "step") for step in range(1, 11)]
    found = one(run_of(steps(10, timed) + 20 * each, world_size=2, zero_stage=1), "small-messages")
    assert not found.advice
    assert not found.gain


def test_waiting_for_a_pipelines_neighbour_is_no_small_message() -> None:
    timed = WELL | {"forward": 0.1, "pipe_recv_grad": 0.6}
    rows = [recorded("recv", step, 4096, 0.03) for step in range(1, 11) for _ in range(20)]
    assert why(run_of(steps(10, timed) + rows, world_size=2), "small-messages")


@pytest.mark.parametrize(("ended", "silent_steps"), [((60, 30), 0), ((60, 60), 20)])
def test_calls_of_a_step_are_counted_by_the_ranks_that_ended_it(
    ended: tuple[int, int], silent_steps: int, tmp_path: Path
) -> None:
    """A rank may end fewer steps, as in DDP's join, and a step may have no call at all."""
    for rank, last in enumerate(ended):
        writer = Writer.create(tmp_path, header(rank=rank, world=2))
        backward = writer.name("backward", 0, "compute")
        reduce = writer.name("all_reduce", backward)
        for step in range(1, last + 1 + silent_steps):
            at = step * 100 * MS
            writer.span(backward, at, at + 100 * MS, step)
            for _ in range(20 if step <= last else 0):
                writer.collective(reduce, 0, at, at, 3 * MS, step, size=4096)
            writer.step(step, at, at + 100 * MS, CLASSES)
        writer.close()
    found = alone(load(tmp_path), "small-messages")
    part = 60 / (60 + silent_steps)
    assert found.seconds_per_step == pytest.approx(0.06 * part, rel=0.02)
    assert f"About {round(20 * part)} such calls" in found.summary


@pytest.mark.parametrize("turns", [True, False])
def test_waiting_for_a_late_rank_is_no_latency_of_small_messages(
    turns: bool, tmp_path: Path
) -> None:
    """20 calls of 2 ms a step; before them one rank waits 40 ms for the other, in turns or not."""
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2))
        writer.config("data_parallel_size", 2)
        whose = writer.name("0 ranks 0-1")
        backward = writer.name("backward", 0, "compute")
        reduce = writer.name("all_reduce", backward)
        for step in range(1, 7):  # too few to name a straggler
            at = step * 100 * MS
            waits = step % 2 == rank if turns else rank == 0
            begin = at + (10 if waits else 50) * MS
            writer.span(backward, begin, at + 100 * MS, step)
            for call_ in range(20):
                lasts = 42 if waits and not call_ else 2
                writer.collective(reduce, whose, begin, begin, lasts * MS, step, size=4096)
            writer.step(step, at, at + 100 * MS, CLASSES)
        writer.close()
    run = load(tmp_path)
    found = one(run, "small-messages")
    assert found.seconds_per_step == pytest.approx(0.04)
    assert found.gain == pytest.approx((0.04, 0.045))  # backward computes 10 ms
    assert found.title.startswith("67 % of communication time")
    assert found.title.endswith("under 1.00 MiB: latency, not bandwidth")
    assert "the ranks wait 20.0 ms for each other in them" in found.summary
