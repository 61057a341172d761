"""Memory and GPU rows as the source gives them."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import of_kind

COLUMNS: Final = (
    "segment", "engine", "step", "rank", "host", "at", "name", "bytes", "count", "value",
    "text", "source", "line",
)  # fmt: skip


def memory(events: pd.DataFrame) -> pd.DataFrame:
    """Bytes by name (`dsprof.events.MEMORY`); `text` is what the source said about the moment."""
    return of_kind(events, Kind.MEMORY)[list(COLUMNS)].reset_index(drop=True)


def gpu(events: pd.DataFrame) -> pd.DataFrame:
    """Samples of the GPU itself: clocks, temperature, power, utilisation (column value)."""
    columns = [*COLUMNS[:-2], "seconds", *COLUMNS[-2:]]
    return of_kind(events, Kind.GPU)[columns].reset_index(drop=True)
