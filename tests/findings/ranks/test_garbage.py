"""Ranks that collect Python's garbage are told, with what stops it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.recording import Unit, Writer
from dsprof.run import Run, load
from tests.findings.plants import one, run_of, why
from tests.recording.recorded import CLASSES, MS, header

STEP = 100


def collected(
    folder: Path,
    *shares: float,
    calls: int = 0,
    late: Sequence[int] = (),
    pause: int = 0,
    steps: int = 60,
    every: int = 1,
    on: str = "cpu",
    is_long: Callable[[int], bool] = lambda _: False,
) -> Run:
    """Ranks that compute and then meet; each collects garbage for its share of the time.

    Args:
        calls: full collections a step.
        late: ms by which each rank computes longer.
        pause: ms between forward and the meeting.
        every: steps from one count to the next.
        on: what computes.
        is_long: which steps take twice as long.
    """
    late = late or [0] * len(shares)
    for rank, share in enumerate(shares):
        writer = Writer.create(folder, header(rank, world=len(shares), config={"accelerator": on}))
        forward, meet = writer.name("forward", 0, "compute"), writer.name("all_reduce")
        seconds, full = writer.name("garbage"), writer.name("garbage_collections")
        at = MS
        for step in range(1, steps + 1):
            length = STEP * (2 if is_long(step) else 1)
            own = at + (length - pause + late[rank]) * MS
            ends = at + (length + max(late) + 1) * MS
            writer.span(forward, at, own, step)
            if len(shares) > 1:
                met = own + pause * MS
                writer.collective(meet, 0, met, met, ends - met, step, size=1 << 20)
            writer.step(step, at, ends, CLASSES, 1)
            if step % every == 0:
                spent = share * (ends - MS) * 1e-9
                writer.metric(seconds, spent, unit=Unit.SECONDS, at_ns=ends)
                writer.metric(full, calls * step, unit=Unit.COUNT, at_ns=ends)
            writer.flush()
            at = ends
        writer.close()
    return load(folder)


def test_a_script_that_collects_in_each_step_is_told_what_that_costs(tmp_path: Path) -> None:
    found = collected(tmp_path, 0.25, 0.3, calls=1).findings[0]
    assert found.rule == "garbage-collection"
    assert found.severity is Severity.CRITICAL
    assert found.title == "Both ranks collect Python's garbage, rank 1 for 30 % of the time"
    assert "in 59 full collections, about 1 a step; no other code" in found.summary
    assert found.ranks == (0, 1)
    assert found.seconds_per_step == pytest.approx(0.0303)
    assert found.gain is not None
    assert found.gain[1] == pytest.approx(0.0303)
    assert [(each.setting, each.now) for each in found.advice] == [
        ("gc.collect()", "about 1 a step"), ("gc.freeze()", ""),
    ]  # fmt: skip
    assert found.evidence[0].text.startswith("rank 1 has collected garbage for 1.8")
    assert found.evidence[0].source.endswith(".dsprof")


def test_ranks_that_collect_when_python_likes_are_advised_to_do_so_together(
    tmp_path: Path,
) -> None:
    found = one(collected(tmp_path, 0.06, 0.06, 0.06), "garbage-collection")
    assert found.severity is Severity.WARNING
    assert "all of theirs together is 18 % of the time" in found.summary
    assert found.advice[0].setting == "gc.disable(), and gc.collect() at every so many steps"


def test_a_rank_that_trains_alone_waits_for_nobody(tmp_path: Path) -> None:
    found = one(collected(tmp_path, 0.3), "garbage-collection")
    assert found.title == "Rank 0 collects Python's garbage, 30 % of the time"
    assert [each.setting for each in found.advice] == ["gc.freeze()"]
    assert "wait for each other" not in found.summary


@pytest.mark.parametrize(("shares", "every"), [((0.01, 0.04), 1), ((0.5, 0.5), 16)])
def test_who_hardly_collects_or_was_hardly_asked_is_not_named(
    tmp_path: Path, shares: tuple[float, float], every: int
) -> None:
    run = collected(tmp_path, *shares, every=every)
    assert "garbage-collection" not in [each.rule for each in run.findings]


def test_a_late_rank_that_collects_is_the_finding_and_that_it_collects_its_reason(
    tmp_path: Path,
) -> None:
    run = collected(tmp_path, 0.01, 0.25, late=(0, 40))
    found = run.findings[0]
    assert found.rule == "straggler-rank"
    assert found.title.endswith(" of each step: rank 1 collects garbage")
    assert "Rank 1 collects garbage for 35.3 ms per step, the others for 1.41 ms at most." in (
        found.summary
    )
    assert one(run, "garbage-collection").severity is Severity.INFO


def test_a_late_rank_that_collects_no_longer_than_the_others_is_late_for_another_reason(
    tmp_path: Path,
) -> None:
    found = one(collected(tmp_path, 0.25, 0.25, late=(0, 40)), "straggler-rank")
    assert "garbage" not in found.title + found.summary


def test_time_that_no_timer_explains_may_be_spent_on_it(tmp_path: Path) -> None:
    run = collected(tmp_path, 0.3, 0.3, pause=30)
    assert run.findings[0].rule == "garbage-collection"
    found = one(run, "unaccounted-time")
    assert found.severity is Severity.INFO
    assert "Ranks collect garbage as long (garbage-collection): that may be all" in found.summary


def test_steps_that_stick_out_may_be_those_in_which_it_is_done(tmp_path: Path) -> None:
    run = collected(tmp_path, 0.3, 0.3, is_long=lambda step: step % 10 == 0)
    assert run.findings[0].rule == "garbage-collection"
    assert one(run, "step-spikes").severity is Severity.INFO


def test_what_a_host_collects_that_feeds_a_gpu_is_a_note(tmp_path: Path) -> None:
    found = one(collected(tmp_path, 0.5, 0.5, on="cuda"), "garbage-collection")
    assert found.severity is Severity.INFO
    assert found.seconds_per_step is None
    assert "Whether the GPU waits meanwhile is unknown" in found.summary


def test_computing_that_collects_is_not_called_computing(tmp_path: Path) -> None:
    run = collected(tmp_path, 0.1, 0.1)
    assert why(run, "compute-bound") == "what looks like computing is partly collecting garbage"


def test_without_a_recording_nothing_is_known_of_it() -> None:
    assert why(run_of([]), "garbage-collection") == (
        "no count of how long garbage is collected: only recordings have it"
    )
