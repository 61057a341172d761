"""A bar is drawn where somebody waits and looks."""

from __future__ import annotations

from io import StringIO

import pytest

from dsprof.text.progress import reading


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "pieces", "drawn"),
    [(Terminal, 70, True), (Terminal, 3, False), (StringIO, 70, False)],
)
def test_a_bar_is_drawn_for_long_reads_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, file: type[StringIO], pieces: int, drawn: bool
) -> None:
    errors = file()
    monkeypatch.setattr("sys.stderr", errors)
    with reading(100 << 20) as progress:
        for _ in range(pieces):
            progress(1 << 20)
    assert ("reading" in errors.getvalue()) is drawn
