"""What all tests of a watched job need."""

from __future__ import annotations

import pytest

from dsprof.recording import alive


@pytest.fixture(autouse=True)
def no_silence_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may stop a test for longer than a job may be silent; who tests silence
    sets clocks back by a minute."""
    monkeypatch.setattr(alive, "_QUIET", 50.0)
