"""What may be named, and a log beside recordings: the launches of both are the same ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsprof.errors import DsprofError
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.recording.recorded import MS, header, write_steps

START = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
APART = dt.timedelta(hours=1)


Record = Callable[[Path, int], None]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    """Makes a recording of three steps that begins `launch` hours after the first one."""

    def made(folder: Path, launch: int) -> None:
        wall = int((START + launch * APART).timestamp()) * 1000 * MS
        monkeypatch.setattr("dsprof.recording.writer.clocks", lambda: (0, wall, 0))
        writer = Writer.create(folder, header(0, restart=launch))
        write_steps(writer, 1, 3)
        writer.close()

    return made


def log(path: Path, *launches: int, ahead: float = 0.0) -> Path:
    """What those launches print, by a clock that is `ahead` hours of the recordings'."""
    lines = []
    for launch in launches:
        for step in (1, 2, 3):
            at = START + launch * APART + dt.timedelta(hours=ahead, milliseconds=100 * step)
            lines.append(
                f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}] [INFO] "
                f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, "
                f"lr=[0.{launch + 1}], mom=[(0.9, 0.999)]\n"
            )
    path.write_text("".join(lines))
    return path


def rates(run: Run) -> dict[int, float]:
    """Launch → learning rate that its lines say."""
    told = run.steps.dropna(subset="lr")
    return {int(launch): float(lr) for launch, lr in zip(told["segment"], told["lr"], strict=True)}


@pytest.mark.parametrize("ahead", [0.0, 5.5])
@pytest.mark.parametrize("recorded", [(0, 1), (1,)])
def test_the_launches_of_a_log_are_those_of_the_recordings(
    tmp_path: Path, record: Record, recorded: tuple[int, ...], ahead: float
) -> None:
    for launch in recorded:
        record(tmp_path / "run", launch)
    run = load([tmp_path / "run", log(tmp_path / "job.log", 1, ahead=ahead)])
    assert run.steps["segment"].unique().tolist() == list(range(len(recorded)))
    assert rates(run) == {len(recorded) - 1: 0.2}


def test_a_log_of_more_launches_than_were_recorded_has_those_before_too(
    tmp_path: Path, record: Record
) -> None:
    record(tmp_path / "run", 1)
    run = load([tmp_path / "run", log(tmp_path / "job.log", 0, 1)])
    assert rates(run) == {0: 0.1, 1: 0.2}
    assert set(run.steps.loc[run.steps["seconds_from"] == "logged", "segment"]) == {1}
    assert run.phases["segment"].unique().tolist() == [1]
    assert set(run.events.loc[run.events["pattern"].isna(), "segment"]) == {1}


def test_the_log_of_an_earlier_launch_alone_is_known_by_its_clock(
    tmp_path: Path, record: Record
) -> None:
    for launch in (0, 1):
        record(tmp_path / "run", launch)
    run = load([tmp_path / "run", log(tmp_path / "job.log", 0)])
    assert rates(run) == {0: 0.1}


@pytest.mark.parametrize("paths", [None, 3, [None], b"run.log", ["run.log", 3]])
def test_what_is_no_path_is_told_which_types_are_read(paths: Any) -> None:
    with pytest.raises(TypeError, match="paths must be a str, a Path, or several of them, not"):
        load(paths)


def test_no_path_at_all_is_an_error() -> None:
    with pytest.raises(DsprofError, match="no path is given"):
        load([])


def test_a_recording_is_judged_alike_with_and_without_its_log(
    record: Record, tmp_path: Path
) -> None:
    """The log adds what it says; the phases, what they mean and what is advised stay the same."""
    record(tmp_path / "run", 0)
    text = log(tmp_path / "run.log", 0)
    with text.open("a") as file:
        file.write("[Rank 0] time (ms) | fwd: 9.00 | bwd: 30.00 | step: 8.00\n")
    alone, both = load(tmp_path / "run"), load([tmp_path / "run", text])
    assert both.is_recording
    assert not both.is_recorded_alone
    assert rates(both)
    assert [(one.rule, one.title, one.advice) for one in both.findings] == [
        (one.rule, one.title, one.advice) for one in alone.findings
    ]
