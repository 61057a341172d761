"""Ranks and steps that make more backwards for one update than others."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import alone
from tests.recording.recorded import MS, header


def accumulated(folder: Path, micros: tuple[int, int], *, often: int = 0, late: int = 0) -> Run:
    """A recording of two ranks: so many micro-batches of 30 ms a step, one more in each tenth if
    `often`; rank 1 computes each `late` ms longer. Then both meet."""
    for rank, usual in enumerate(micros):
        writer = Writer.create(folder, header(rank))
        forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
        reduce, group = writer.name("all_reduce", backward), writer.name("world ranks 0-1")
        for step in range(1, 61):
            more = often * (step % 10 == 0)
            longest = max(n * (30 + late * r) for r, n in enumerate(micros)) + 30 * more
            start = at = step * 1000 * MS
            end = start + (longest + 1) * MS
            for micro in range(usual + more):
                writer.span(forward, at, at + (10 + late * rank) * MS, step, micro)
                at += (10 + late * rank) * MS
                last = micro == usual + more - 1
                writer.span(backward, at, end if last else at + 20 * MS, step, micro)
                at += 20 * MS
            writer.collective(reduce, group, at, at, end - at, step, 0, 4096, 1, step)
            writer.step(step, start, end)
            writer.flush()
        writer.close()
    return load(folder)


def test_a_rank_that_makes_more_backwards_for_an_update_has_more_work_and_no_slow_node(
    tmp_path: Path,
) -> None:
    found = alone(accumulated(tmp_path, (2, 3)), "straggler-rank")
    assert found.summary.endswith("For one update rank 1 makes 3 backwards, rank 0 2.")
    (advice,) = found.advice
    assert (advice.setting, advice.now) == ("micro-batches of rank 1", "3")
    assert advice.to == "as many as the others, 2"


def test_a_mean_of_backwards_is_written_as_all_numbers_are(tmp_path: Path) -> None:
    found = alone(accumulated(tmp_path, (2, 3), often=1), "straggler-rank")
    assert found.summary.endswith("For one update rank 1 makes 3.10 backwards, rank 0 2.10.")


def test_a_rank_that_makes_as_many_backwards_is_looked_for_on_its_node(tmp_path: Path) -> None:
    found = alone(accumulated(tmp_path, (2, 2), late=15), "straggler-rank")
    assert "backwards" not in found.summary
    assert found.advice[0].setting.startswith("the node of rank 1")


def test_more_backwards_that_explain_little_of_the_delay_are_not_blamed(tmp_path: Path) -> None:
    found = alone(accumulated(tmp_path, (2, 3), late=60), "straggler-rank")
    assert "backwards" not in found.summary
    assert found.advice[0].setting.startswith("the node of rank 1")


@pytest.mark.parametrize("more", [0, 1])
def test_steps_that_stick_out_by_more_backwards_are_said_to(tmp_path: Path, more: int) -> None:
    run = accumulated(tmp_path, (1, 1), often=1) if more else accumulated(tmp_path, (1, 1))
    found = [each for each in run.findings if each.rule == "step-spikes"]
    assert len(found) == more
    for each in found:
        assert "In them 2 backwards come before the update, in the others 1: " in each.summary
