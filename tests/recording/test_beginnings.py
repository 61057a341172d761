"""Where ranks stood that never began to train, of files made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsprof.recording.beginnings import begins, file_of, write
from dsprof.recording.launches import FOLDER

SECOND = 10**9
WAIT, LOAD = "wait (torch/work.py) < main (./train.py:7)", "load (./data.py:30) < main (./a.py:1)"


def stands(folder: Path, rank: int, stack: str = WAIT, **more: Any) -> None:
    told = {"rank": rank, "host": "w0", "pid": 7, "stack": stack, "seconds": 20.0, "at": SECOND}
    (folder / FOLDER).mkdir(exist_ok=True)
    file = folder / FOLDER / f"rank-{rank:05}.{more.get('pid', 7)}.begins"
    file.write_text(json.dumps(told | more), "utf-8")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for seconds in (10.0, 20.0):
        write(file_of(tmp_path, 3), 3, WAIT, seconds)
    (one,) = begins(tmp_path)
    assert (one.rank, one.stack, one.seconds) == (3, WAIT, 20.0)
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == [file_of(tmp_path, 3).name]


def test_what_was_seen_long_before_was_of_another_launch(tmp_path: Path) -> None:
    stands(tmp_path, 0, LOAD)
    stands(tmp_path, 1, at=400 * SECOND)
    assert [one.rank for one in begins(tmp_path)] == [1]
    assert begins(tmp_path, since=500 * SECOND) == []


def test_of_a_rank_that_was_started_again_the_last_counts(tmp_path: Path) -> None:
    stands(tmp_path, 0, pid=8, at=2 * SECOND)
    stands(tmp_path, 0, LOAD, pid=9)
    assert [one.stack for one in begins(tmp_path)] == [WAIT]
