"""Ranks whose training thread is ready to run and has no CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording import Unit, Writer
from dsprof.run import Run, load
from tests.findings.plants import alone, one, run_of, why
from tests.recording.recorded import CLASSES, MS, header

FORWARD, BACKWARD = 30, 60


def contended(
    folder: Path,
    *shares: float,
    late: Sequence[int] = (),
    steps: int = 30,
    every: int = 1,
    on: str = "cpu",
    told: Mapping[str, float] = {},
    stopped: float | None = None,
) -> Run:
    """Two or more ranks that compute and then meet, of which each waits for a CPU for its share of
    the time.

    Args:
        late: ms by which backward of each rank is longer.
        every: steps from one count to the next.
        on: what computes.
        told: configuration of each rank.
        stopped: by a limit, of what a rank waits.
    """
    late = late or [0] * len(shares)
    whole = FORWARD + BACKWARD + max(late) + 10
    for rank, share in enumerate(shares):
        writer = Writer.create(folder, header(rank, world=len(shares), local_rank=rank))
        writer.config("accelerator", on)
        for name, value in told.items():
            writer.config(name, value)
        forward, backward = (writer.name(word, 0, "compute") for word in ("forward", "backward"))
        meet, waited = writer.name("all_reduce"), writer.name("cpu_wait")
        throttled = writer.name("cpu_throttled")
        for step in range(1, steps + 1):
            at = began = (1 + (step - 1) * whole) * MS
            for phase, length in ((forward, FORWARD), (backward, BACKWARD + late[rank])):
                writer.span(phase, at, at + length * MS, step)
                at += length * MS
            ends = began + whole * MS
            writer.collective(meet, 0, at, at, ends - at, step, -1, 1 << 20)
            writer.step(step, began, ends, CLASSES, 1)
            if step % every == 0:
                seconds = share * (ends - MS) * 1e-9
                writer.metric(waited, seconds, unit=Unit.SECONDS, at_ns=ends)
                if stopped is not None:
                    writer.metric(throttled, stopped * seconds, unit=Unit.SECONDS, at_ns=ends)
            writer.flush()
        writer.close()
    return load(folder)


def test_ranks_that_wait_for_a_cpu_are_told_with_what_it_may_cost(tmp_path: Path) -> None:
    run = contended(tmp_path, 0.15, 0.4)
    found = run.findings[0]
    assert found.rule == "cpu-contention"
    assert found.severity is Severity.CRITICAL
    assert found.title == (
        "Both ranks are ready to run and wait for a CPU, rank 1 for 40 % of the time"
    )
    assert found.summary == (
        "The thread of rank 1 that trains was ready to run, and had no CPU, for 1.16 s of 2.90 s, "
        "by the kernel's count. Other threads had all that it may use, unless a limit that the "
        "recording does not know was used up. Whatever it does meanwhile takes longer: "
        "computing, too, is partly waiting."
    )
    assert found.ranks == (0, 1)
    assert found.seconds_per_step == pytest.approx(0.04)
    assert found.gain is not None
    assert found.gain[1] == pytest.approx(0.04)
    assert found.evidence[0].text == "rank 1 has waited 1.20 s for a CPU so far"
    assert found.evidence[0].source.endswith(".dsprof")
    assert found.advice[0].setting == "what else is busy on worker-1"


def test_a_limit_that_stops_the_container_as_long_as_ranks_wait_is_the_reason(
    tmp_path: Path,
) -> None:
    told = {"cpu_threads": 8, "cpu_cores": 64, "cpu_limit": 1.5, "local_ranks": 2}
    found = contended(tmp_path, 0.3, 0.4, told=told, stopped=1.5).findings[0]
    assert found.title == (
        "Both ranks are ready to run and wait for a CPU, rank 1 for 40 % of the time: its "
        "container's CPU limit is used up"
    )
    assert (
        "The limit of its container (1.5 CPUs) was used up: its threads were stopped for 1.74 s "
        "meanwhile, added up over CPUs." in found.summary
    )
    assert [(each.setting, each.now, each.to) for each in found.advice] == [
        ("OMP_NUM_THREADS", "8", "1"),
        ("CPU limit of the container", "1.5 CPUs", "more"),
    ]


def test_a_limit_that_hardly_stops_the_container_is_not_the_reason(tmp_path: Path) -> None:
    told = {"cpu_limit": 12.0}
    found = contended(tmp_path, 0.3, 0.4, told=told, stopped=0.1).findings[0]
    assert found.title.endswith("40 % of the time")
    assert (
        "Other threads had all that it may use: the limit of its container (12 CPUs) stopped its "
        "threads for 116 ms meanwhile, added up over CPUs." in found.summary
    )
    assert found.advice[0].setting == "what else is busy on worker-1"


def test_a_limit_of_more_than_a_hundred_cpus_is_told_as_what_it_is(tmp_path: Path) -> None:
    found = contended(tmp_path, 0.3, 0.4, told={"cpu_limit": 128.0}, stopped=0.1).findings[0]
    assert "the limit of its container (128 CPUs)" in found.summary


def test_of_a_late_rank_it_is_said_that_its_limit_is_used_up(tmp_path: Path) -> None:
    told = {"cpu_limit": 2.0}
    found = contended(tmp_path, 0.0, 0.35, late=(0, 50), told=told, stopped=1.0).findings[0]
    assert found.rule == "straggler-rank"
    assert "0 s at most. The CPU limit of its container is used up." in found.summary
    assert found.advice[0].setting == "CPU limit of the container"


def test_computing_that_waits_for_a_cpu_is_not_called_computing(tmp_path: Path) -> None:
    run = contended(tmp_path, 0.01, 0.12)
    found = run.findings[0]
    assert (found.rule, found.severity) == ("cpu-contention", Severity.WARNING)
    assert found.title.endswith("Rank 1 is ready to run and waits for a CPU, 12 % of the time")
    assert why(run, "compute-bound") == "what looks like computing is partly waiting for a CPU"


@pytest.mark.parametrize(("shares", "every"), [((0.02, 0.09), 1), ((0.5, 0.5), 8)])
def test_who_hardly_waits_or_was_hardly_asked_is_not_named(
    tmp_path: Path, shares: tuple[float, float], every: int
) -> None:
    run = contended(tmp_path, *shares, every=every)
    assert "cpu-contention" not in [each.rule for each in run.findings]


def test_what_a_host_waits_that_feeds_a_gpu_is_a_note(tmp_path: Path) -> None:
    run = contended(tmp_path, 0.5, 0.5, on="cuda")
    found = one(run, "cpu-contention")
    assert found.severity is Severity.INFO
    assert found.seconds_per_step is None
    assert "Whether the GPU waits meanwhile is unknown" in found.summary
    assert why(run, "compute-bound") is None  # the phases are the GPU's own time


def test_on_a_gpu_the_title_says_of_a_late_rank_no_more_than_that_it_is(tmp_path: Path) -> None:
    found = contended(tmp_path, 0.0, 0.35, late=(0, 50), on="cuda").findings[0]
    assert found.title == "Rank 0 waits for rank 1 on worker-1, 33 % of each step"
    assert "Rank 1 waits 52.5 ms per step for a CPU" in found.summary


@pytest.mark.parametrize(
    ("threads", "cores", "expected"), [(8, 8, ("8", "4")), (4, 8, None), (1, 1, None)]
)
def test_threads_of_the_ranks_themselves_that_are_more_than_cpus_are_advised_against(
    tmp_path: Path, threads: int, cores: int, expected: tuple[str, str] | None
) -> None:
    told = {"cpu_threads": threads, "cpu_cores": cores, "local_ranks": 2}
    found = alone(contended(tmp_path, 0.3, 0.3, told=told), "cpu-contention")
    fewer = [(now, to) for setting, now, to, _ in found.advice if setting == "OMP_NUM_THREADS"]
    assert fewer == ([expected] if expected else [])


def test_a_rank_that_is_late_because_it_waits_for_a_cpu_is_told_so_once(tmp_path: Path) -> None:
    run = contended(tmp_path, 0.0, 0.35, late=(0, 50))
    found = run.findings[0]
    assert found.rule == "straggler-rank"
    assert found.title == (
        "Rank 0 waits for rank 1 on worker-1, 33 % of each step: rank 1 waits for a CPU"
    )
    assert "Rank 1 waits 52.5 ms per step for a CPU, the others 0 s at most" in found.summary
    assert found.advice[0].setting == "what else is busy on worker-1"
    assert [each.text for each in found.evidence][-1].startswith("rank 1 has waited")
    other = one(run, "cpu-contention")
    assert other.severity is Severity.INFO
    assert "This time is counted in straggler-rank, too" in other.summary


def test_a_rank_that_is_late_for_another_reason_is_not_said_to_wait_for_a_cpu(
    tmp_path: Path,
) -> None:
    found = alone(contended(tmp_path, 0.11, 0.13, late=(0, 50)), "straggler-rank")
    assert "CPU" not in found.title
    assert found.advice[0].setting == "the node of rank 1 (worker-1)"


def test_a_count_that_begins_anew_is_not_taken_for_time_that_went_back(tmp_path: Path) -> None:
    for first in (1, 2):
        writer = Writer.create(tmp_path, header(0, world=1, config={"accelerator": "cpu"}))
        forward, waited = writer.name("forward", 0, "compute"), writer.name("cpu_wait")
        for step in range(1, 16):
            at = (first * 2_000 + step * 100) * MS
            writer.span(forward, at, at + 100 * MS, step + 15 * (first - 1))
            writer.step(step + 15 * (first - 1), at, at + 100 * MS, CLASSES, 1)
            writer.metric(waited, 0.04 * (step - 1), unit=Unit.SECONDS, at_ns=at + 100 * MS)
            writer.flush()
        writer.close()
    found = alone(load(tmp_path), "cpu-contention")
    assert found.share == pytest.approx(0.4, rel=0.1)


def test_a_log_does_not_tell_it() -> None:
    run = run_of([], world_size=2)
    assert why(run, "cpu-contention") == (
        "no count of how long a thread waits for a CPU: only recordings on Linux have it"
    )


_AT_TIMES = {3, 4, 9, 17, 19, 26, 33, 34, 41, 50, 52, 61, 67, 68, 77}


@pytest.mark.parametrize(
    ("rule", "is_long", "is_note"),
    [
        ("step-spikes", lambda step: step in _AT_TIMES, True),
        ("step-spikes", lambda step: step % 4 == 0, False),  # what others do keeps to no interval
        ("slowdown", lambda step: step > 50, True),
    ],
)
def test_steps_that_are_longer_by_no_more_than_ranks_wait_for_a_cpu_are_a_note(
    tmp_path: Path, rule: str, is_long: Callable[[int], bool], is_note: bool
) -> None:
    """Some steps take twice as long; ranks wait for half of the time."""
    writer = Writer.create(tmp_path, header(0, world=1, config={"accelerator": "cpu"}))
    forward, waited = writer.name("forward", 0, "compute"), writer.name("cpu_wait")
    at = MS
    for step in range(1, 81):
        ends = at + (200 if is_long(step) else 100) * MS
        writer.span(forward, at, ends, step)
        writer.step(step, at, ends, CLASSES, 1)
        writer.metric(waited, (ends - MS) * 0.5e-9, unit=Unit.SECONDS, at_ns=ends)
        writer.flush()
        at = ends
    writer.close()
    run = load(tmp_path)
    assert run.findings[0].rule == "cpu-contention"
    longer = one(run, rule)
    assert (longer.severity is Severity.INFO) is is_note
    said = "Ranks wait for a CPU as long (cpu-contention): that may be all of it."
    assert (said in longer.summary) is is_note


def test_steps_in_which_a_rank_is_late_that_has_its_cpu_are_a_finding(tmp_path: Path) -> None:
    for rank in (0, 1):
        told = {"accelerator": "cpu"}
        writer = Writer.create(tmp_path, header(rank, world=2, config=told))
        forward, waited = writer.name("forward", 0, "compute"), writer.name("cpu_wait")
        meet = writer.name("all_reduce")
        at = MS
        for step in range(1, 81):
            late = (200 if step in _AT_TIMES else 0) * MS
            own = at + 100 * MS + late * rank
            ends = at + 100 * MS + late + MS
            writer.span(forward, at, own, step)
            writer.collective(meet, 0, own, own, ends - own, step, size=1 << 20)
            writer.step(step, at, ends, CLASSES, 1)
            if not rank:
                writer.metric(waited, (ends - MS) * 0.4e-9, unit=Unit.SECONDS, at_ns=ends)
            writer.flush()
            at = ends
        writer.close()
    run = load(tmp_path)
    assert one(run, "cpu-contention").ranks == (0,)
    found = one(run, "step-spikes")
    assert found.ranks == (1,)
    assert found.severity is not Severity.INFO
