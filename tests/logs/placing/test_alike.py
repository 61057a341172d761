"""Files of ranks that name no step take it from the one that does, where it is certain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dsprof.logs.placing.alike import File, shifts_of
from dsprof.run import Run, load

STEP = "[Rank 0] step={step}, skipped=0, lr=[0.001], mom=[0.9]\n"
TIMERS = (
    "[Rank {rank}] time (ms) | fwd: 100.00 | bwd: 200.00 | bwd_inner: 150.00 | "
    "bwd_allreduce: 50.00 | step: 20.00\n"
)
STEPS = range(101, 121)


def stamp(seconds: float) -> str:
    return f"[2024-05-06 12:00:{seconds:06.3f}] [INFO] [logging.py:96:log_dist] ".replace(
        ".", ",", 1
    )


def leading(steps: Sequence[int] = STEPS, *, timed: bool = True, pace: float = 2.0) -> str:
    return "".join(
        (stamp(pace * n) if timed else "") + line.format(step=step, rank=0)
        for n, step in enumerate(steps)
        for line in (STEP, TIMERS)
    )


def other(
    count: int,
    *,
    rank: int = 1,
    first: int = 0,
    late: float | None = 0.1,
    pace: float = 2.0,
) -> str:
    """Timers of a rank from the `first` of the other's steps on; `late` seconds behind it."""
    return "".join(
        ("" if late is None else stamp(pace * n + late)) + TIMERS.format(rank=rank)
        for n in range(first, first + count)
    )


def run_of(folder: Path, *texts: str) -> Run:
    for rank, text in enumerate(texts):
        (folder / f"train_rank{rank}.log").write_text(text)
    return load([folder])


def steps_of(run: Run, rank: int) -> list[int]:
    rows = run.phases[(run.phases["name"] == "forward") & (run.phases["rank"] == rank)]
    return [int(step) for step in rows["step"]]


@pytest.mark.parametrize("late", [None, 0.1, 7.0], ids=["untimed", "timed", "clocks differ"])
def test_as_many_closing_lines_are_of_the_same_steps(tmp_path: Path, late: float | None) -> None:
    text = other(20, late=late) if late != 7.0 else other(20, late=0.0).replace(" 12:", " 20:")
    run = run_of(tmp_path, leading(timed=late is not None), text)
    assert steps_of(run, 1) == list(STEPS)
    assert not run.counted
    assert "steps-untold" not in set(run.repairs["name"])


@pytest.mark.parametrize(("first", "count"), [(0, 12), (5, 15), (3, 10)])
def test_lines_of_the_same_times_are_of_the_same_steps(
    tmp_path: Path, first: int, count: int
) -> None:
    run = run_of(tmp_path, leading(), other(count, first=first))
    assert steps_of(run, 1) == list(STEPS)[first : first + count]
    assert not run.counted


@pytest.mark.parametrize("late", [None, 0.9], ids=["untimed", "half a step late"])
def test_where_neither_tells_the_steps_are_unknown_and_said_to_be(
    tmp_path: Path, late: float | None
) -> None:
    run = run_of(tmp_path, leading(timed=late is not None), other(12, late=late), other(20, rank=2))
    assert steps_of(run, 1) == []
    assert steps_of(run, 0) == steps_of(run, 2) == list(STEPS)
    said = run.repairs.set_index("name").loc["steps-untold"]
    assert said["source"] == str(tmp_path / "train_rank1.log")


@pytest.mark.parametrize(("first", "told"), [(0, list(range(101, 111))), (4, [])])
def test_times_of_short_steps_tell_only_where_both_files_begin_with_the_same(
    tmp_path: Path, first: int, told: list[int]
) -> None:
    """Clocks of two hosts may be some such steps apart."""
    quick = other(10, first=first, late=0.01, pace=0.2)
    run = run_of(tmp_path, leading(pace=0.2), quick)
    assert steps_of(run, 1) == told


@pytest.mark.parametrize("late", [None, 0.9], ids=["untimed", "half a step late"])
def test_a_file_with_fewer_closing_lines_may_begin_late_so_its_steps_are_unknown(
    tmp_path: Path, late: float | None
) -> None:
    """A count begins at 1 wherever the file begins: an equal start proves nothing."""
    steps = range(1, 21)
    text = leading(steps, timed=late is not None)
    run = run_of(tmp_path, text, other(12, first=8, late=late), other(20, rank=2, late=late))
    assert steps_of(run, 1) == []
    assert steps_of(run, 0) == steps_of(run, 2) == list(steps)
    assert not run.counted
    assert "steps-untold" in set(run.repairs["name"])


def test_marks_and_timers_in_two_files_are_of_the_same_steps(tmp_path: Path) -> None:
    (tmp_path / "err.log").write_text("".join(STEP.format(step=step) for step in STEPS))
    (tmp_path / "out.log").write_text(other(20, rank=0, late=None))
    run = load([tmp_path])
    assert steps_of(run, 0) == list(STEPS)


def test_a_step_that_a_line_names_itself_stays_what_it_says(tmp_path: Path) -> None:
    saved = "  successfully saved checkpoint at iteration     104 to /checkpoints\n"
    run = run_of(tmp_path, leading(timed=False), other(4, late=None) + saved + other(16, late=None))
    assert run.events.loc[run.events["pattern"] == "megatron.checkpoint_end", "step"].eq(104).all()
    assert steps_of(run, 1) == list(STEPS)


def test_of_thousands_of_files_each_is_compared_with_those_that_tell_steps_alone() -> None:
    """One among them names its steps: as many comparisons as files, and no more."""
    compared = 0

    class Counted(File):
        def __getattribute__(self, name: str) -> object:
            nonlocal compared
            compared += name == "marked"
            return super().__getattribute__(name)

    steps = np.arange(1, 5)
    files = {(n, 0): Counted(n == 0, steps + (7 if n == 0 else 0), steps) for n in range(1_000)}
    shifts, lost, left = shifts_of(files)
    assert len(shifts) == 999
    assert not lost
    assert not left
    assert set(map(tuple, (by.items() for by in shifts.values()))) == {((0, 7),)}
    assert compared < 3_000


def test_losses_that_were_counted_stay_records_beside_a_file_that_tells_no_step(
    tmp_path: Path,
) -> None:
    """The Trainer's standard output and error: the bar that would number the losses is on the
    other stream."""
    losses = "".join(f"{{'loss': {3 - n / 10}, 'epoch': {n / 5}}}\n" for n in range(1, 6))
    (tmp_path / "job-7.out").write_text(losses)
    (tmp_path / "job-7.err").write_text(" 10%|#  | 50/50 [02:30<00:00,  3.00s/it]\n")
    assert load([tmp_path]).counted
