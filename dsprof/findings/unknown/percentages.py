"""DeeperSpeed's own percentages of its windows of steps, where nothing better is known."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.findings.thresholds import COMMUNICATION_WARNING
from dsprof.units import format_share

_PERCENT: Final = {
    "communication_percent": "communication",
    "optimizer_percent": "optimizer",
    "forward_percent": "forward",
    "backward_percent": "backward",
}


def percentages(events: pd.DataFrame) -> str:
    """The last ones, whichever steps they are of, the largest first; "" if there are none."""
    last = _last(events).sort_values(ascending=False)
    return ", ".join(f"{_PERCENT[name]} {format_share(last[name] / 100)}" for name in last.index)


def said_of_percentages(events: pd.DataFrame) -> str:
    said = percentages(events)
    return f"Its last percentages, which overlap: {said}. " if said else ""


def counts_communication(events: pd.DataFrame) -> str | None:
    """Says so if much of a step is communication by them."""
    share = _last(events).get("communication_percent", 0.0) / 100
    if not COMMUNICATION_WARNING <= share <= 1:
        return None
    said = f"{format_share(share)} of a step is communication"
    return f"{said} by the log's own count; no step is printed"


def _last(events: pd.DataFrame) -> pd.Series[float]:
    told = events[events["name"].isin(list(_PERCENT)) & events["value"].notna()]
    return told.drop_duplicates("name", keep="last").set_index("name")["value"]
