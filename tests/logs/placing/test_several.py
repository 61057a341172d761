"""Files are of one launch or of several, whatever order they are given in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing import several
from dsprof.logs.placing.several import Extent, rivals
from dsprof.run import Run, load

DAY = "[2024-05-{day:02d} 12:00:{second:02d},000] [INFO] "
STEP = DAY + "[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], mom=[0.9]\n"
TIMERS = (
    DAY + "[logging.py:96:log_dist] [Rank {rank}] time (ms) | fwd: {fwd}.00 | bwd: 200.00 | "
    "bwd_inner: 150.00 | bwd_allreduce: 50.00 | step: 20.00\n"
)
LAUNCH = DAY + "[launch.py:152:main] WORLD INFO DICT: {{'localhost': [0, 1]}}\n"


def log(day: int, fwd: int, first: int = 1, start: str = "", rank: int = 0) -> str:
    """Nine steps of a rank, a second each."""
    lines = [LAUNCH.format(day=day, second=0)] if start else []
    for n in range(9):
        at = {"day": day, "second": n + 1}
        if rank == 0:
            lines.append(STEP.format(step=first + n, **at))
        lines.append(TIMERS.format(fwd=fwd, rank=rank, **at))
    return "".join(lines)


def run_of(folder: Path, **files: str) -> Run:
    """Of files in the order in which they are named."""
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    return load([folder / f"{name}.log" for name in files])


def forwards(run: Run) -> list[tuple[int, float]]:
    rows = run.phases[run.phases["name"] == "forward"]
    seen = rows.groupby("segment")["seconds"].mean().round(3)
    return [(int(segment), float(seconds)) for segment, seconds in seen.items()]  # type: ignore[call-overload]


@pytest.mark.parametrize("turned", [False, True])
def test_files_of_two_days_are_two_launches_in_order_of_time(tmp_path: Path, turned: bool) -> None:
    files = {"monday": log(6, 100), "tuesday": log(7, 300)}
    order = reversed(files.items()) if turned else files.items()
    run = run_of(tmp_path, **dict(order))
    assert forwards(run) == [(0, 0.1), (1, 0.3)]
    assert run.repairs.empty or "files-clash" not in set(run.repairs["name"])


def test_a_rotated_log_goes_on_in_the_next_file(tmp_path: Path) -> None:
    run = run_of(tmp_path, first=log(6, 100), second=log(7, 300, first=10))
    assert run.steps["segment"].unique().tolist() == [0]
    assert run.steps["step"].tolist() == list(range(1, 19))


def test_a_launch_that_resumes_in_a_file_of_its_own_is_another_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, first=log(6, 100), second=log(7, 300, first=10, start="launch"))
    assert run.steps["segment"].unique().tolist() == [0, 1]


def test_files_of_ranks_stay_with_their_launch(tmp_path: Path) -> None:
    files = {
        f"day{day}_rank{rank}": log(day, 100 * day + rank, rank=rank)
        for rank in (0, 1)
        for day in (1, 2)
    }
    run = run_of(tmp_path, **files)
    rows = run.phases[run.phases["name"] == "forward"]
    seen = rows.groupby(["segment", "rank"])["seconds"].mean().round(3)
    assert seen.to_dict() == {(0, 0): 0.1, (0, 1): 0.101, (1, 0): 0.2, (1, 1): 0.201}


def test_a_rank_that_prints_its_steps_at_two_times_is_of_two_jobs(tmp_path: Path) -> None:
    """They ran at the same time: the second began before the first had ended."""
    later = log(6, 300).replace(":00:", ":01:").replace("12:01:01", "12:00:05")
    run = run_of(tmp_path, one=log(6, 100), other=later)
    assert forwards(run) == [(0, 0.1)]
    assert [Path(name).stem for [name] in run.meta["jobs"]] == ["one", "other"]


def test_of_copies_of_a_log_one_is_read(tmp_path: Path) -> None:
    run = run_of(tmp_path, one=log(6, 100), other=log(6, 100))
    assert forwards(run) == [(0, 0.1)]
    assert [Path(name).stem for [name] in run.meta["jobs"]] == ["one", "other"]
    assert "copies" in str(run.repairs.set_index("name").loc["other-jobs", "text"])


def test_files_without_times_that_tell_the_same_steps_are_not_mixed(tmp_path: Path) -> None:
    stamp = len(DAY.format(day=1, second=1)) - len("[INFO] ")
    bare = {
        name: "".join(line[stamp:] + "\n" for line in log(6, fwd).splitlines())
        for name, fwd in (("one", 100), ("other", 300))
    }
    run = run_of(tmp_path, **bare)
    assert forwards(run) == [(0, 0.1)]


def test_a_rank_that_prints_its_timers_in_two_files_without_steps_or_times_is_of_two_jobs(
    tmp_path: Path,
) -> None:
    def timers(fwd: int, rank: int) -> str:
        return TIMERS[len(DAY) :].format(fwd=fwd, rank=rank) * 9

    run = run_of(tmp_path, lr1=timers(100, 0), lr2=timers(300, 0))
    assert forwards(run) == [(0, 0.1)]
    assert [Path(name).stem for [name] in run.meta["jobs"]] == ["lr1", "lr2"]
    ranks = run_of(tmp_path, one=timers(100, 0), other=timers(300, 1))
    assert "jobs" not in ranks.meta or not ranks.meta["jobs"]


def trainer(loss: float, *, ends: bool, at: str = "") -> str:
    """Nine losses of the Hugging Face Trainer, behind its banner if it tells `at` what time."""
    lines = [f"[INFO|trainer.py:2134] 2025-03-04 {at},123 >> ***** Running training *****"] * bool(
        at
    )
    lines += [f"{{'loss': {loss}, 'learning_rate': 1e-05, 'epoch': {n / 9:.2f}}}" for n in range(9)]
    if ends:
        lines.append("{'train_runtime': 20.5, 'train_steps_per_second': 0.4, 'epoch': 1.0}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("hours", [("", ""), ("10:00:00", "12:00:00")])
def test_two_whole_trainings_of_the_trainer_are_two_jobs(
    tmp_path: Path, hours: tuple[str, str]
) -> None:
    one, other = (
        trainer(loss, ends=True, at=at) for loss, at in zip((2.5, 1.5), hours, strict=True)
    )
    run = run_of(tmp_path, lora8=one, lora64=other)
    assert [Path(name).stem for [name] in run.meta["jobs"]] == ["lora8", "lora64"]
    assert set(run.steps["loss"]) == {2.5}
    ranks = run_of(tmp_path, x_rank0=one, x_rank1=other)
    assert "jobs" not in ranks.meta or not ranks.meta["jobs"]


def test_a_training_that_goes_on_in_a_second_file_is_one_job_of_two_launches(
    tmp_path: Path,
) -> None:
    run = run_of(
        tmp_path,
        first=trainer(2.5, ends=False, at="10:00:00"),
        second=trainer(1.5, ends=True, at="12:00:00"),
    )
    assert run.steps.groupby("segment")["loss"].mean().to_dict() == {0: 2.5, 1: 1.5}


def test_files_of_one_job_by_their_names_that_tell_the_same_steps_are_doubted(
    tmp_path: Path,
) -> None:
    """Each calls itself rank 0: whose numbers are which is unknown."""
    files = {f"job_rank{n}": log(6, 100).replace("[Rank 0]", "[Rank 5]") for n in (0, 1)}
    told = run_of(tmp_path, **files).repairs.set_index("name").loc["files-clash"]
    assert told["kind"] == "doubt"
    assert "job_rank0.log" in str(told["text"])


def test_of_thousands_of_files_each_is_compared_with_its_like_alone() -> None:
    class Counted(frozenset[int]):
        """Patterns; how often two files were compared by them."""

        compared = 0

        def __and__(self, other: object) -> frozenset[int]:
            Counted.compared += 1
            return super().__and__(other)  # type: ignore[operator]

    def of_rank(rank: int) -> Extent:
        steps, who = np.arange(1, 5), frozenset([(rank, None)])
        return Extent(rank, 2_000 + rank, steps, steps, False, who, Counted([1]))

    files = [of_rank(rank) for rank in range(1_000)] + [of_rank(7)]
    assert list(rivals(files)) == [(7, 1_000)]
    assert Counted.compared < 100


def test_steps_that_many_files_tell_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def share(*pair: Extent) -> bool:
        compared.append(pair)
        return True

    monkeypatch.setattr(several, "_share_steps", share)
    steps, who = np.arange(1, 5), frozenset([(0, None)])
    files = [Extent(UNKNOWN, UNKNOWN, steps, steps, False, who, frozenset([1]))] * 30
    assert len(list(rivals(files))) == 30 * 29 // 2
    assert len(compared) == 1
