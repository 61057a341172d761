"""Real logs: each is read once, and judged once, whatever is asked of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import dsprof
from dsprof.run import from_events
from tests.logs.reading import read

SAMPLES = Path(__file__).parents[1] / "sample_logs"


@cache
def loaded(path: Path) -> dsprof.Run:
    """Tests share it: they may not change it."""
    return dsprof.load(path)


def sample(name: str) -> dsprof.Run:
    """The run of a sample log by its name."""
    return loaded(SAMPLES / f"{name}.log")


def run_of_text(*lines: str) -> dsprof.Run:
    """The run of a log that holds just this."""
    return from_events(read("".join(lines).encode()).events.to_pandas())
