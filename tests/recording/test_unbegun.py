"""Where ranks stood that never began to train, in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsprof.recording.launches import FOLDER
from dsprof.recording.unbegun import said_of
from tests.recording.test_beginnings import LOAD, stands


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


def test_the_lock_of_an_extension_that_is_never_built_is_named(tmp_path: Path) -> None:
    stands(tmp_path, 0, "FileBaton.wait (torch/utils/file_baton.py) < main (./train.py:3)")
    assert "remove the files named lock" in said_of(tmp_path)


def test_of_many_places_a_few_are_told(tmp_path: Path) -> None:
    for rank in range(30):
        stands(tmp_path, rank, f"f{rank} (./a.py:1)")
    said = said_of(tmp_path)
    assert (said.count(" stood in "), said.endswith("; 26 more elsewhere")) == (4, True)


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


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    os.mkfifo(tmp_path / FOLDER / "rank-00000.7.begins")
    assert said_of(tmp_path) == ""
