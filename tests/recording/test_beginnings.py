"""Where ranks stood that never began to train, of files made by hand."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dsprof.recording.beginnings import begins, file_of, forget, is_over, write
from dsprof.recording.launches import FOLDER

SECOND = 10**9
WAIT, LOAD = "wait (torch/work.py) < main (./train.py:7)", "load (./data.py:30) < main (./a.py:1)"


def stands(folder: Path, rank: int, stack: str = WAIT, ago: float = 1.0, **more: Any) -> None:
    at = time.time_ns() - int(ago * SECOND)
    told = {"rank": rank, "host": "w0", "pid": 7, "launch": "one", "stack": stack, "seconds": 20.0}
    (folder / FOLDER).mkdir(exist_ok=True)
    file = folder / FOLDER / f"rank-{rank:05}.{more.get('pid', 7)}.begins"
    file.write_text(json.dumps(told | {"at": at} | more), "utf-8")


def over(folder: Path, launch: str, ago: float) -> None:
    at = time.time_ns() - int(ago * SECOND)
    (folder / FOLDER / f"{launch}.ended").write_text(f"{at} 1", "ascii")


def ranks(folder: Path, launch: str | None = None) -> list[int]:
    return [one.rank for one in begins(folder, launch)]


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPROF_LAUNCH", "mine")
    (tmp_path / FOLDER).mkdir()
    for seconds in (10.0, 20.0):
        write(file_of(tmp_path, 3), 3, WAIT, seconds)
    (one,) = begins(tmp_path)
    assert (one.rank, one.launch, one.stack, one.seconds) == (3, "mine", WAIT, 20.0)
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == [file_of(tmp_path, 3).name]


def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER).mkdir()

    def refuses(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", refuses)
    with pytest.raises(OSError, match="no"):
        write(file_of(tmp_path, 3), 3, WAIT, 10.0)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_only_ranks_of_one_launch_are_told_the_last_or_that_which_is_asked_for(
    tmp_path: Path,
) -> None:
    stands(tmp_path, 0, launch="one", ago=10.0)
    stands(tmp_path, 1, launch="two", ago=5.0)
    assert (ranks(tmp_path), ranks(tmp_path, "one"), ranks(tmp_path, "none")) == ([1], [0], [])


@pytest.mark.parametrize(("seconds", "holds"), [(20.0, 20.0), (300.0, 40.0)])
def test_what_was_not_told_again_until_the_launch_ended_no_longer_held_then(
    tmp_path: Path, seconds: float, holds: float
) -> None:
    stands(tmp_path, 0, ago=1000.0, seconds=seconds)
    assert ranks(tmp_path) == []
    over(tmp_path, "one", ago=1000.0 - holds)
    assert ranks(tmp_path) == [0]
    over(tmp_path, "one", ago=995.0 - holds)
    assert ranks(tmp_path) == []


def test_of_a_rank_that_was_started_again_the_last_counts(tmp_path: Path) -> None:
    stands(tmp_path, 0, pid=8)
    stands(tmp_path, 0, LOAD, pid=9, ago=9.0)
    assert [one.stack for one in begins(tmp_path)] == [WAIT]


def test_what_launches_told_that_are_over_is_forgotten_as_another_one_begins(
    tmp_path: Path,
) -> None:
    stands(tmp_path, 0, launch="ended")
    over(tmp_path, "ended", ago=1.0)
    stands(tmp_path, 1, launch="killed", ago=100.0)
    stands(tmp_path, 2, launch="beside")
    forget(tmp_path, partial(is_over, tmp_path))
    assert [file.name for file in (tmp_path / FOLDER).glob("*.begins")] == ["rank-00002.7.begins"]
    forget(tmp_path, lambda one: one.launch == "beside")
    assert list((tmp_path / FOLDER).glob("*.begins")) == []
