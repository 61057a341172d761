"""Sources in which nothing was understood: what they are, and what to do."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from dsprof.errors import DsprofError
from dsprof.run import load
from dsprof.run.nothing import nothing_read


@pytest.mark.parametrize("packed", [False, True])
def test_bytes_that_are_no_text_are_called_binary(tmp_path: Path, *, packed: bool) -> None:
    noise = random.Random(0).randbytes(100_000)
    path = tmp_path / "run.log"
    path.write_bytes(gzip.compress(noise) if packed else noise)
    with pytest.raises(DsprofError, match="is a binary file, not a log"):
        load(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gbk"])
def test_text_that_says_nothing_is_text_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "run.log").write_bytes("\x1b[31m没有 nothing\x1b[0m\r\n".encode(encoding) * 99)
    with pytest.raises(DsprofError, match="no metric, timer or failure"):
        load(tmp_path / "run.log")


def test_the_first_file_is_named_and_the_others_counted() -> None:
    told = nothing_read(["a.log", "b.log", "c.log"], None, ())
    assert (told.where, told.what) == ("a.log and 2 more", "nothing is recorded yet")


def test_an_empty_file_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "run.log").touch()
    with pytest.raises(DsprofError, match="is empty"):
        load(tmp_path / "run.log")


def test_an_only_line_that_looks_like_metrics_is_spoken_of_as_one(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("gizmo turn 1: loss 2.5, heat: 1.5\n")
    with pytest.raises(DsprofError, match="its only line looks like metrics, and is not under"):
        load(tmp_path / "run.log")
