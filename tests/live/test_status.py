"""What is said of a job's state."""

from __future__ import annotations

import pytest

from dsprof.live.status import Sources, status_of


@pytest.mark.parametrize("exited", [True, False])
def test_how_to_see_what_is_not_read_is_whole_in_80_columns(*, exited: bool) -> None:
    found = Sources((), (), (), logs=1, closed=exited, failure="", exited=exited, idle=1.0)
    _, note = status_of(found, None, None, begun=False)
    assert "`dsprof parsers --unknown`" in note
    assert len(note) <= 78  # the head has a blank at both ends
