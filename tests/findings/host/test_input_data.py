"""Waiting for input: whose, when, and what is advised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    config,
    metric,
    one,
    phase,
    quiet,
    run_of,
    silent,
    steps,
)
from tests.loaded import run_of_text
from tests.recording.recorded import CLASSES, MS, header


@pytest.mark.parametrize(
    ("workers", "now", "to"),
    [(0, "", "2 to 4 a rank, if it has fewer"), (4, "4", "more, if the host has idle cores")],
)
def test_as_many_workers_as_there_are_already_are_not_advised(
    workers: int, now: str, to: str
) -> None:
    told = [config("data_workers", workers)] if workers else []
    run = run_of([*told, *steps(30, {"batch_input": 0.3, "forward": 0.3, "backward": 0.4})])
    advice = alone(run, "data-bound").advice[0]
    assert (advice.setting, advice.now, advice.to) == ("DataLoader(num_workers=...)", now, to)


NEOX = (
    " samples/sec: 4.0 | iteration {:8}/ 55000 | elapsed time per iteration (ms): {} |"
    " lm_loss: 2.25E+00 | loss scale: 4096.0 | number of skipped iterations:   0 |\n"
    "time (ms) | forward: {} | backward: 4300.00 | backward-backward: 4299.00 |"
    " backward-allreduce: 0.00 | optimizer: 1500.00 | batch generator: {}\n"
)


@pytest.mark.parametrize(("later", "waits"), [(84.5, False), (1900.0, True)])
def test_what_only_the_first_of_few_steps_waits_for_is_no_slow_loader(
    later: float, waits: bool
) -> None:
    run = run_of_text(
        NEOX.format(1, 10900.0, 5020.0, 2370.0),
        NEOX.format(2, 6500.0 + later, 610.0 + later, later),
    )
    assert [found.rule for found in run.findings].count("data-bound") == waits


@pytest.mark.parametrize(("every", "anew"), [(1, True), (10, False)])
def test_where_each_step_makes_an_iterator_of_a_loader_one_for_many_is_advised(
    every: int, *, anew: bool
) -> None:
    """`next(iter(loader))`. Once an epoch is as it should be."""
    rows = [config("data_workers", 2)]
    rows += steps(30, {"batch_input": 0.3, "forward": 0.3, "backward": 0.4})
    rows += [metric("data_iterators", step, 1) for step in range(1, 31, every)]
    advice = alone(run_of(rows), "data-bound").advice[0]
    assert (advice.setting == "iterators of the data loader") == anew
    assert (advice.now == "made in 29 of 29 steps") == anew


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        (range(1, 26), ", 100 % of that up to step 25 and hardly any later"),  # a cold cache
        (range(1, 61), ""),
        (range(1, 61, 5), ""),  # the first step of each epoch
        (range(36, 61), ""),
    ],
)
def test_waiting_for_input_that_is_over_is_said_to_be(waits: range, said: str) -> None:
    rows = [row for step in range(1, 61) for row in _loading(step, 0.6 * (step in waits))]
    found = alone(run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows]), "data-bound")
    assert ("hardly any later" in found.title) == bool(said)
    assert found.title.endswith(said)


@pytest.mark.parametrize(
    ("usual", "said"),
    [(0.03, ", 92 % of that up to step 20 and hardly any later"), (0.1, "")],
)
def test_the_usual_loading_of_many_later_steps_is_hardly_any(usual: float, said: str) -> None:
    """The first epoch waits 0.9 s in each of 20 steps, the later ones a thirtieth or a ninth."""
    rows = [row for step in range(1, 71) for row in _loading(step, 0.9 if step < 21 else usual)]
    found = alone(run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows]), "data-bound")
    assert found.title.endswith(f" % of a step is waiting for input data{said}")


@pytest.mark.parametrize("every", [10, 1])
def test_a_slow_batch_proves_waiting_of_which_the_last_step_has_none(every: int) -> None:
    """The first batch of an epoch takes 3 s, or every batch 0.3 s."""
    took = {step: 1e-3 if step % every else 0.3 * every for step in range(1, 66)}
    rows = [row for step, seconds in took.items() for row in _loading(step, seconds)]
    proofs = [proof.text for proof in alone(run_of(rows), "data-bound").evidence]
    longest = [proof for proof in proofs if proof.endswith("data: 3.00 s, the longest")]
    assert len(longest) == (every == 10)


def test_input_that_is_always_there_is_no_finding_beside_steps_that_stick_out(
    tmp_path: Path,
) -> None:
    """Steps whose spans are deleted have seconds of each class, 0 of the data."""
    writer, at = Writer.create(tmp_path, header(world=1), keep_bytes=1 << 17), 0
    for step in range(1, 301):
        took = 100 * MS if step % 15 else 400 * MS
        for layer in range(40):
            writer.span(writer.name(f"layer{layer}", 0, "compute"), at, at + MS, step)
        writer.step(step, at, at + took, [took * 1e-9, *[0.0] * 7])
        writer.flush()
        at += took
    writer.close()
    run = load(tmp_path)
    assert alone(run, "step-spikes")
    assert quiet(run, "data-bound")


def _loading(step: int, seconds: float) -> list[Row]:
    took = {"data": seconds, "forward": 0.4, "backward": 1e-9, "backward_inner": 0.6}
    rows = [phase(name, step, value) for name, value in took.items()]
    return [*rows, metric("step_seconds", step, sum(took.values()))]


def test_a_job_without_a_gpu_is_not_advised_on_copies_to_one() -> None:
    rows = steps(40, {**WELL, "data": 0.4}, seconds=1.4)
    pinned = "DataLoader(pin_memory=...)"
    on_gpu = alone(run_of(rows), "data-bound")
    on_cpu = alone(run_of(rows, accelerator="cpu"), "data-bound")
    assert pinned in [advice.setting for advice in on_gpu.advice]
    assert pinned not in [advice.setting for advice in on_cpu.advice]
    assert "GPU" not in on_cpu.summary


def loading(folder: Path, loads: Callable[[int, int], int], group: str = "0 ranks 0-1") -> Run:
    """31 steps of 100 ms of two ranks; `loads`: how many ms a rank loads in a step. The rank that
    loads less waits in a reduction, which takes both 5 ms more.
    """
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank=rank, world=2, config={"world_size": 2}))
        whose = writer.name(group)
        data, backward = writer.name("data", 0, "data"), writer.name("backward", 0, "compute")
        reduce = writer.name("all_reduce", backward)
        for step in range(1, 32):
            begin, own = step * 100 * MS, loads(rank, step) * MS
            waits = max(loads(one, step) for one in (0, 1)) * MS - own + 5 * MS
            writer.span(data, begin, begin + own, step)
            writer.span(backward, begin + own, begin + own + waits + 20 * MS, step)
            writer.collective(reduce, whose, begin, begin, waits, step, size=8 << 20, seq=step)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    return load(folder)


def test_ranks_that_wait_for_the_input_of_another_in_turns_wait_for_data(tmp_path: Path) -> None:
    """Of every two steps, rank 1 loads 80 ms in one, and rank 0 10 ms in the other."""
    run = loading(tmp_path, lambda rank, step: (10, 80)[rank] if step % 2 == rank else 0)
    found = run.findings[0]
    assert found.rule == "data-bound"
    assert found.seconds_per_step == pytest.approx(0.0225 + 0.0225, rel=0.03)  # own, and others'
    assert "ms more a step, ranks wait in collectives" in found.summary
    assert silent(run, "communication-bound")  # 5 ms of 100 are left


def test_a_rank_that_loads_longest_in_each_step_is_named_alone(tmp_path: Path) -> None:
    run = loading(tmp_path, lambda rank, _: 40 * rank)
    assert run.findings[0].rule == "straggler-rank"
    assert "ranks wait in collectives" not in one(run, "data-bound").summary


def test_ranks_of_other_groups_are_not_said_to_wait_for_each_others_input(tmp_path: Path) -> None:
    run = loading(tmp_path, lambda rank, step: 40 * (step % 2 == rank), "dp ranks 0")
    assert alone(run, "data-bound").seconds_per_step == pytest.approx(0.02, rel=0.1)
    assert alone(run, "communication-bound").seconds_per_step == pytest.approx(0.025, rel=0.1)
