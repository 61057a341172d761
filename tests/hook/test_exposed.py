"""The time that communication keeps training waiting, by two other ways of finding it.

DDP beside its own `no_sync` in turns of one run, and PyTorch's profiler over the same steps: what
gloo's spans cover and the operators do not. On a quiet machine they agree within 5 points and
15 %; the margins here are for a busy one, where a thread that may go on waits for a core. A wait
that is counted twice, or not at all, is far outside of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import dsprof
from dsprof.events import Severity
from tests.hook.rows import folder

JOB = ("exposed",)
BLOCK, TURNS = 4, 6
ENOUGH = 1 / 3  # of a core; two ranks beside two busy processes have half of one, on two cores


def settled(steps: Sequence[Any]) -> list[Any]:
    """Without the first steps of each turn and the first turn: they fill caches, ranks meet."""
    return [step for number, step in enumerate(steps) if number % BLOCK and number >= BLOCK]


def test_the_share_of_communication_under_ddp_is_what_no_sync_saves(
    results: list[dict[str, Any]], out: Path
) -> None:
    """Medians of steps: one that another process held up says nothing of either.

    Nor do steps that shared their core all along: whoever waits in between gets more of a core than
    who computes alone, and what waiting costs cannot be told from that.
    """
    turns = [result["turns"] for result in results]
    ran = sum(sum(turn["ran"]) for turn in turns) / sum(sum(turn["alone"]) for turn in turns)
    if ran < ENOUGH:
        pytest.skip(f"too busy a machine: steps that wait for nobody had {ran:.0%} of a core")
    exchanging = median(chain.from_iterable(settled(turn["exchanging"]) for turn in turns))
    alone = median(chain.from_iterable(settled(turn["alone"]) for turn in turns))
    shares: list[float] = []
    for rank in folder(out / "turns"):
        of_turns = [step for step in rank.steps if (step.step - 1) // BLOCK % 2 == 0]
        assert len(of_turns) == BLOCK * TURNS
        assert sum(row.calls > 0 for row in rank.collectives) == len(of_turns)  # none alone
        shares += [step.classes[1] / (step.length * 1e-9) for step in settled(of_turns)]
    saved = 1 - alone / exchanging
    assert saved > 0.25  # else this job shows nothing
    assert median(shares) == pytest.approx(saved, abs=0.2)


@pytest.mark.parametrize("job", ["ddp", "zero-1", "zero-3"])
def test_time_blocked_is_what_a_profiler_sees_of_the_same_steps(
    results: list[dict[str, Any]], out: Path, job: str
) -> None:
    """In the median step: one that another process held up says little of either."""
    ratios: list[float] = []
    for result, rank in zip(results, folder(out / job), strict=True):
        by_step: defaultdict[int, float] = defaultdict(float)
        for row in rank.collectives:
            by_step[row.step] += row.blocked * 1e-9
        assert len(by_step) == TURNS
        blocked = (by_step[step] for step in sorted(by_step))
        ratios += [ours / its for ours, its in zip(blocked, result[job], strict=True)]
    assert median(ratios) == pytest.approx(1, abs=0.35)


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("job", ["ddp", "zero-1"])
def test_large_gradients_and_a_small_batch_are_bound_by_communication(out: Path, job: str) -> None:
    """Unless ranks wait for a core so long that nothing else is told."""
    found = {one.rule: one for one in dsprof.load(str(out / job)).findings}
    busy = found.get("cpu-contention")
    if "communication-bound" not in found and busy and busy.severity is Severity.CRITICAL:
        pytest.skip(f"too busy a machine: {busy.title}")
    assert "communication-bound" in found


@pytest.mark.usefixtures("results")
def test_the_gathers_of_zero_3_are_communication(out: Path) -> None:
    for rank in folder(out / "zero-3"):
        inside = {row.path.split("/")[0] for row in rank.collectives if row.blocked > 0}
        assert {"forward", "backward"} <= inside
        forward = sum(row.blocked for row in rank.collectives if row.path.startswith("forward"))
        assert forward * 1e-9 <= sum(step.classes[1] for step in rank.steps)
