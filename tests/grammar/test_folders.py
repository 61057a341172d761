"""Where dialects are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.grammar import builtin, load


def test_a_home_that_is_not_ours_to_read_holds_no_dialects_for_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    known = builtin()
    with monkeypatch.context() as home:
        home.setattr(Path, "is_dir", refused)
        assert load() is known
