"""Of files without steps, times and names tell of which launch a failure is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.run import load

STEP = "[2024-05-06 {at},000] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0\n"
ENGINE = (
    "[2024-05-06 {at},000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: "
    "version=0.14.2, git-hash=unknown, git-branch=unknown\n"
)
BEGUN = "[2024-05-06 {at},500] [INFO] [comm.py:637:init_distributed] cdb=None\n"
ACCELERATOR = (
    "[2024-05-06 {at},500] [INFO] [real_accelerator.py:203:get_accelerator] "
    "Setting ds_accelerator to cuda (auto detect)\n"
)
DIED = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nValueError: bad\n'
KILLED = "[2024-05-06 {at},000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 411\n"


def launch(hour: int, first: int, steps: int = 9) -> str:
    """Of rank 0: a minute until the first step, then one a second."""
    marks = (STEP.format(at=f"{hour}:01:{n:02d}", step=first + n) for n in range(steps))
    return ENGINE.format(at=f"{hour}:00:00") + "".join(marks)


def died_in(folder: Path, **files: str) -> list[int]:
    """The launches in which something failed, of those of a run; the last one is 1."""
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    run = load(folder)
    assert set(run.steps["segment"]) == {0, 1}
    failed = run.problems[run.problems["kind"] == "exception"]
    return [int(segment) for segment in failed["segment"]]


@pytest.mark.parametrize(
    ("text", "launches"),
    [
        (BEGUN.format(at="10:00:00") + BEGUN.format(at="12:00:00") + DIED, [1]),
        (BEGUN.format(at="10:00:00") + DIED + BEGUN.format(at="12:00:00"), [0]),
        (BEGUN.format(at="10:00:00") + DIED + BEGUN.format(at="12:00:00") + DIED, [0, 1]),
        (BEGUN.format(at="10:00:00") + DIED + KILLED.format(at="12:01:20"), [1]),
        (BEGUN.format(at="10:00:00") + DIED + KILLED.format(at="11:30:00"), [0]),
        (ACCELERATOR.format(at="11:59:50") + DIED, [1]),
        (DIED, [1]),
    ],
)
def test_a_failure_of_a_rank_that_tells_no_step_is_of_the_launch_that_its_time_says(
    tmp_path: Path, text: str, launches: list[int]
) -> None:
    rank0 = launch(10, 1) + launch(12, 5)
    assert died_in(tmp_path, x_rank0=rank0, x_rank1=text) == launches


def test_a_failure_without_time_is_of_the_launch_of_the_files_beside_it(tmp_path: Path) -> None:
    files = {"a_rank0": launch(10, 1), "a_rank1": DIED, "b_rank0": launch(12, 5), "b_rank1": ""}
    assert died_in(tmp_path, **files) == [0]
    assert died_in(tmp_path, **files | {"a_rank1": "", "b_rank1": DIED}) == [1]


def test_a_failure_of_which_nothing_tells_the_launch_is_not_past(tmp_path: Path) -> None:
    files = {"first": launch(10, 1), "second": launch(12, 5), "errors": DIED}
    assert died_in(tmp_path, **files) == [1]


@pytest.mark.parametrize("attempt", [0, 1])
def test_folders_that_torchrun_makes_of_a_launch_belong_together(
    tmp_path: Path, attempt: int
) -> None:
    for number, text in enumerate((launch(10, 1), launch(12, 5))):
        folder = tmp_path / f"attempt_{number}"
        for rank in "01":
            (folder / rank).mkdir(parents=True)
        (folder / "0" / "stdout.log").write_text(text)
    (tmp_path / f"attempt_{attempt}" / "1" / "stderr.log").write_text(DIED)
    assert died_in(tmp_path) == [attempt]


def test_a_log_of_one_launch_keeps_its_own_count(tmp_path: Path) -> None:
    """Nothing beside it says that there were two."""
    (tmp_path / "x_rank0.log").write_text(launch(10, 1))
    (tmp_path / "x_rank1.log").write_text(DIED)
    assert load(tmp_path).problems["segment"].tolist() == [0]
