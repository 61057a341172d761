"""Failures and warnings, and which of them came first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import of_kind

COLUMNS: Final = (
    "segment", "kind", "severity", "rank", "host", "at", "step", "text", "root_cause",
    "value", "source", "line",
)  # fmt: skip


def problems(events: pd.DataFrame, severities: Mapping[str, str]) -> pd.DataFrame:
    rows = of_kind(events, Kind.PROBLEM)
    found = rows.assign(
        kind=rows["name"],
        severity=rows["pattern"].astype("str").map(dict(severities)).fillna("warning"),
        root_cause=np.zeros(len(rows), bool),
    )
    return found[list(COLUMNS)].reset_index(drop=True)
