"""Several ranks print their timers into one stream."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.joining.sheet import one_of_each_rank
from dsprof.logs.sources.source import Source

MICRO = "[Rank {r}] time (ms) | fwd_microstep: {a} | bwd_microstep: 2.00 | step_microstep: 1.00"
WHOLE = "[Rank {r}] time (ms) | fwd: {a} | bwd: 2.00 | step: 1.00"
MARK = (
    "[2026-11-21 05:52:{s:02},231] [INFO] [logging.py:123:log_dist] [Rank 0] "
    "step={s}, skipped=0, lr=[0.001], mom=[0.9]"
)


def steps_of(lines: list[str]) -> set[tuple[int, int, float]]:
    """(step, rank, milliseconds) of every forward timer of a whole step."""
    reader = Reader(grammar.builtin(), Source("all.log"))
    reader.feed("\n".join(lines).encode() + b"\n")
    reader.finish()
    return {
        (row["step"], row["rank"], round(row["seconds"] * 1e3))
        for row in reader.log().events.to_pylist()
        if row["raw"] in ("fwd", "fwd_microstep")
    }


def lines_of(ranks: int, steps: int, *, marks: bool) -> list[str]:
    lines = []
    for step in range(1, steps + 1):
        for rank in range(ranks):
            a = f"{step * 100 + rank}.00"
            lines.append(MICRO.format(r=rank, a=a))
            if marks and rank == 0:
                lines.append(MARK.format(s=step))
            lines.append(WHOLE.format(r=rank, a=a))
    return lines


def expected(ranks: int, steps: int) -> set[tuple[int, int, int]]:
    return {(s, r, s * 100 + r) for s in range(1, steps + 1) for r in range(ranks)}


def test_each_rank_closes_its_own_steps() -> None:
    assert steps_of(lines_of(4, 5, marks=True)) == expected(4, 5)


def test_steps_are_counted_once_for_all_ranks() -> None:
    assert steps_of(lines_of(4, 5, marks=False)) == expected(4, 5)


@pytest.mark.parametrize("marks", [True, False])
def test_a_rank_whose_lines_lost_the_label_of_their_host_in_part_is_one_process(
    marks: bool,
) -> None:
    """Timers were closed twice over otherwise: those with the label, and those without."""
    lines = lines_of(2, 20, marks=marks)
    hosts = ["node0: " if "[Rank 0]" in line else "node1: " for line in lines]
    for lost in range(0, len(lines), 3):
        hosts[lost] = ""
    assert steps_of([*map(str.__add__, hosts, lines)]) == expected(2, 20)


def test_a_rank_that_goes_on_under_another_name_of_its_host_closes_steps_of_its_own() -> None:
    """Or on another host. Its first steps were those of both in one otherwise."""
    lines = lines_of(2, 20, marks=False)
    hosts = ["10.0.0.1: " if n < len(lines) // 2 else "node1: " for n in range(len(lines))]
    assert steps_of([*map(str.__add__, hosts, lines)]) == expected(2, 20)


def test_lines_of_a_rank_that_two_hosts_print_by_turns_stay_as_they_are() -> None:
    """Nobody knows of which of two jobs they are."""
    rank = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, -1])
    host = np.array([-1, 4, 5, 4, -1, 4, 5, -1, 4, -1])
    assert one_of_each_rank(rank, host).tolist() == [-1, 4, 5, 4, 4, 4, 5, 5, 5, -1]
