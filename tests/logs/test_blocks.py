"""Lines that belong to an opening line."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsprof

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in step\n    go()\n'


@pytest.mark.parametrize("length", [1, 599, 600, 601, 10_000, 100_000])
def test_an_exception_is_told_however_long_its_message(tmp_path: Path, length: int) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"{TRACEBACK}ValueError: {'m' * length}\nnext\n", encoding="utf-8")
    (told,) = dsprof.load(str(log)).problems["text"]
    assert told.startswith("ValueError: m")
