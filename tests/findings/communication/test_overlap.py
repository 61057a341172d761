"""Communication that could run beside computation, and does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import EXPOSED, WELL, alone, call, one, quiet, rules, run_of, steps, why
from tests.recording.recorded import CLASSES, MS, header

MIB = 1 << 20


def reducing(folder: Path, forward_group: str) -> Run:
    """30 steps of 100 ms: 16 MiB reduced for 5 ms in forward, and 15 ms by "dp" in backward."""
    writer = Writer.create(folder, header(config={"zero_stage": 0, "world_size": 4}))
    groups = {"forward": writer.name(forward_group), "backward": writer.name("dp ranks 0,2")}
    for step in range(1, 31):
        begin = step * 100 * MS
        for place, (path, length, blocked) in enumerate([("forward", 30, 5), ("backward", 60, 15)]):
            phase, at = writer.name(path, 0, "compute"), begin + 30 * place * MS
            writer.span(phase, at, at + length * MS, step)
            reduce = writer.name("all_reduce", phase)
            writer.collective(reduce, groups[path], at, at, blocked * MS, step, size=16 * MIB)
        writer.step(step, begin, begin + 100 * MS, CLASSES)
    writer.close()
    return load(folder)


def test_while_every_call_is_logged_overlap_cannot_be_seen() -> None:
    rows = [call("all_reduce", 2, 1e6, 0.01, pattern="deepspeed_comms.op")]
    run = run_of(steps(3, EXPOSED) + rows, ds_config='{"zero_optimization": {"stage": 2}}',
                 world_size=5)  # fmt: skip
    assert "communication logger waits" in (why(run, "no-overlap") or "")


def test_communication_without_overlap_names_the_switch() -> None:
    run = run_of(
        steps(3, EXPOSED),
        ds_config='{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
        world_size=5,
    )
    found = one(run, "no-overlap")
    assert found.advice[0][:3] == (
        "zero_optimization.overlap_comm", "unset (false)", "true"
    )  # fmt: skip
    assert found.seconds_per_step == pytest.approx(0.3)  # the reduction can hide, not the gather
    assert found.gain == pytest.approx((0.15, 0.3))
    assert "how much of it waits for a slower rank, which nothing hides" in found.summary


@pytest.mark.parametrize(
    ("op", "size", "exposed", "warned"),
    [
        ("all_reduce", 16 * MIB, 0.12, True),
        ("all_reduce", 16 * MIB, 0.08, False),
        ("all_reduce", MIB // 16, 0.12, False),  # latency, or a busy machine
        ("reduce_scatter_tensor", 16 * MIB, 0.12, True),
        ("all_gather", 16 * MIB, 0.12, False),  # comes when backward is over
        ("all_to_all_single", 16 * MIB, 0.22, False),  # experts wait for their tokens
    ],
)
def test_large_reductions_that_hold_a_recorded_step_up_are_worth_a_switch_from_a_tenth_on(
    op: str, size: int, exposed: float, warned: bool
) -> None:
    well = WELL | {"backward_allreduce": exposed, "optimizer_allgather": 0.02}
    rows = [call(op, step, size, float("nan"), value=exposed) for step in range(1, 41)]
    run = run_of(steps(40, well) + rows, world_size=2, zero_stage=0)
    assert ("no-overlap" in rules(run)) is warned
    if warned:
        assert one(run, "no-overlap").seconds_per_step == pytest.approx(exposed)


def test_waiting_for_a_late_rank_is_no_part_of_what_could_overlap(tmp_path: Path) -> None:
    """Of 100 ms rank 1 sleeps for 40, for which rank 0 waits beside the reduction's own 20."""
    for rank, waited in ((0, 60), (1, 20)):
        settings = {"zero_stage": 0, "world_size": 2}
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config=settings))
        group = writer.name("dp ranks 0-1")
        for step in range(1, 31):
            begin = step * 100 * MS
            arrives, length = begin + (80 - waited) * MS, waited * MS
            backward = writer.name("backward", 0, "compute")
            writer.span(backward, arrives - 20 * MS, arrives + length, step)
            reduce = writer.name("all_reduce", backward)
            writer.collective(
                reduce, group, arrives, arrives, length, step, size=16 * MIB, seq=step
            )
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    run = load(tmp_path)
    assert alone(run, "straggler-rank").ranks == (1,)
    found = alone(run, "no-overlap")
    assert found.title.startswith("Communication (20 % of a step)")
    assert (
        "20.0 ms per step of exposed communication, apart from 20.0 ms of waiting" in found.summary
    )


def test_waiting_in_turns_is_no_part_of_what_could_overlap(tmp_path: Path) -> None:
    """Of 100 ms one rank sleeps for 60, in turns; the reduction itself takes 5."""
    for rank in (0, 1):
        settings = {"zero_stage": 0, "world_size": 2}
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config=settings))
        group = writer.name("dp ranks 0-1")
        backward = writer.name("backward", 0, "compute")
        reduce = writer.name("all_reduce", backward)
        for step in range(1, 31):
            begin = step * 100 * MS
            length = (5 if step % 2 == rank else 65) * MS
            arrives = begin + 100 * MS - length
            writer.span(backward, begin + 5 * MS, arrives + length, step)
            writer.collective(
                reduce, group, arrives, arrives, length, step, size=16 * MIB, seq=step
            )
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    assert quiet(load(tmp_path), "no-overlap")


def test_a_reduction_that_hardly_any_compute_could_hide_is_not_said_to_lack_overlap() -> None:
    for compute, warned in ((0.04, False), (0.06, True)):
        phases = {"forward": compute, "backward_allreduce": 0.4, "data": 0.6 - compute}
        run = run_of(steps(3, phases), world_size=2, zero_stage=0)
        assert ("no-overlap" in rules(run)) is warned


@pytest.mark.parametrize(("took", "warned"), [(0.25, True), (0.6, False)])
def test_communication_of_which_most_is_hidden_overlaps(took: float, *, warned: bool) -> None:
    """0.2 s of each step are exposed, of so much in all."""
    well = WELL | {"backward_allreduce": 0.2, "optimizer_allgather": 0.02}
    rows = [call("all_reduce", step, 1 << 24, took, value=0.2) for step in range(1, 41)]
    run = run_of(steps(40, well, 1.14) + rows, world_size=2)
    assert ("no-overlap" in rules(run)) is warned


def test_sums_of_activations_are_no_reduction_that_a_switch_hides(tmp_path: Path) -> None:
    apart = reducing(tmp_path / "apart", "tp ranks 0-1")
    found = alone(apart, "no-overlap")  # of a recording, which tells who is late
    assert found.seconds_per_step == pytest.approx(0.015)
    assert "slower rank" not in found.summary
    assert quiet(reducing(tmp_path / "same", "dp ranks 0,2"), "no-overlap")


def test_overlap_that_is_on_is_no_finding() -> None:
    json = '{"zero_optimization": {"stage": 2, "overlap_comm": true}}'
    assert quiet(run_of(steps(3, EXPOSED), ds_config=json, world_size=5), "no-overlap")


@pytest.mark.parametrize(
    ("buckets", "replicas", "warned"), [(1, 2, True), (2, 2, False), (1, 0, False)]
)
def test_gradients_in_one_bucket_of_ddp_cannot_be_reduced_during_backward(
    buckets: int, replicas: int, warned: bool, tmp_path: Path
) -> None:
    for rank in (0, 1):
        writer = Writer.create(tmp_path, header(rank=rank, world=2))
        if replicas:
            writer.config("data_parallel_size", replicas)
        backward = writer.name("backward", 0, "compute")
        reduce, whose = writer.name("all_reduce", backward), writer.name("0 ranks 0-1")
        for step in range(1, 31):
            at = step * 100 * MS
            writer.span(backward, at, at + 100 * MS, step)
            held_up = 14 * MS // buckets
            for _ in range(buckets):
                writer.collective(reduce, whose, at, at, held_up, step, size=(16 << 20) // buckets)
            writer.step(step, at, at + 100 * MS, CLASSES)
        writer.close()
    run = load(tmp_path)
    if not warned:
        assert "no-overlap" not in rules(run)
        return
    found = one(run, "no-overlap")
    assert "all gradients, 16.0 MiB, in one bucket" in found.summary
    assert found.seconds_per_step == pytest.approx(0.014)
    (advice,) = found.advice
    assert (advice.setting, advice.to) == (
        "DistributedDataParallel(bucket_cap_mb=...)",
        "at most 4",
    )
