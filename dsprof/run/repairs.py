"""Known defects of the sources: corrected where they can be, doubted where they cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.run.phases import Flavour

COLUMNS: Final = ("name", "kind", "rows", "text", "source", "line", "lines")


@dataclass(frozen=True)
class Repair:
    """One defect: `kind` is "repair" if the numbers were corrected, "doubt" if they stand."""

    name: str
    kind: str
    text: str  # what was wrong and why
    rows: int
    places: tuple[tuple[str, int], ...]  # source and line of the first rows


def repair(
    events: pd.DataFrame, flavours: Mapping[str, Flavour], facts: Mapping[str, Any]
) -> tuple[pd.DataFrame, list[Repair]]:
    """The events with known defects corrected, and what was found."""
    return events, []


def table_of(repairs: list[Repair]) -> pd.DataFrame:
    return pd.DataFrame([], columns=list(COLUMNS))
