"""Where ranks stood that never began to train, of files made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsprof.recording.beginnings import begins, file_of, said_of, write
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


def test_ranks_at_one_place_are_told_together_behind_those_that_stand_alone(
    tmp_path: Path,
) -> None:
    for rank in range(3):
        stands(tmp_path, rank, seconds=20.0 + rank)
    stands(tmp_path, 3, LOAD)
    assert said_of(tmp_path) == (
        "Rank 3 stood in load (data.py:30), for 20.0 s; ranks 0, 1 and 2 stood in wait "
        "(torch/work.py), called by main (train.py:7), for 22.0 s"
    )


def test_what_was_seen_long_before_was_of_another_launch(tmp_path: Path) -> None:
    stands(tmp_path, 0, LOAD)
    stands(tmp_path, 1, at=400 * SECOND)
    assert [one.rank for one in begins(tmp_path)] == [1]
    assert begins(tmp_path, since=500 * SECOND) == []


def test_of_a_rank_that_was_started_again_the_last_counts(tmp_path: Path) -> None:
    stands(tmp_path, 0, pid=8, at=2 * SECOND)
    stands(tmp_path, 0, LOAD, pid=9)
    assert [one.stack for one in begins(tmp_path)] == [WAIT]


def test_the_lock_of_an_extension_that_is_never_built_is_named(tmp_path: Path) -> None:
    stands(tmp_path, 0, "FileBaton.wait (torch/utils/file_baton.py) < main (./train.py:3)")
    assert "remove the files named lock" in said_of(tmp_path)


def test_of_many_places_a_few_are_told(tmp_path: Path) -> None:
    for rank in range(30):
        stands(tmp_path, rank, f"f{rank} (./a.py:1)")
    assert said_of(tmp_path).count(" stood in ") == 4


@pytest.mark.parametrize(
    "odd",
    [b"", b"[]", b"null", b"\xff\xfe", b"{" * 9999, b'{"rank": "x"}', b"9" * 99999,
     b'{"rank": 1, "host": "w", "stack": "f (./a.py:1)", "seconds": NaN, "at": 1}',
     b'{"rank": 1, "host": "w", "stack": "f (./a.py:1)", "seconds": 1, "at": Infinity}',
     b'{"rank": 1, "host": "w", "stack": "f (./a.py:1)", "seconds": Infinity, "at": 1}',
     b"[" * 9999,
     b'{"rank": -1, "host": "w", "stack": "", "seconds": 1, "at": 1}'],
)  # fmt: skip
def test_what_is_no_such_file_tells_nothing(tmp_path: Path, odd: bytes) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "rank-00000.7.begins").write_bytes(odd)
    assert said_of(tmp_path) == ""


def test_a_folder_without_any_tells_nothing(tmp_path: Path) -> None:
    assert said_of(tmp_path) == said_of(tmp_path / "absent") == ""
