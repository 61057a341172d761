"""Collectives that time out behind a save: one rank may still write, or save alone."""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from dsprof.events import Kind
from dsprof.findings.facts import Facts
from dsprof.findings.failures.mismatched import SAVES
from dsprof.findings.finding import Advice
from dsprof.quotes import quoted
from dsprof.run.table import among, where
from dsprof.units import format_seconds

_WORDS: Final = (
    "checkpoint_begin", "checkpoint_saving", "checkpoint_saved", "checkpoint_model",
    "checkpoint_zero_saved", "checkpoint_ready", "checkpoint_end", "checkpoint_told",
)  # fmt: skip
_WAITED: Final = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_USUAL: Final = 1800.0  #: seconds that a collective waits, where its line does not tell
_LONGEST: Final = 1800.0  #: seconds between a save's line and the wait behind it
_SLOW: Final = Advice(
    "timeout of the process group",
    "",
    "longer than a save takes (ddp_timeout of the Trainer), or a faster storage",
    "ranks that are done wait for the one that still writes",
)
OF_SAVES: Final = (SAVES, _SLOW)


def last_save(facts: Facts, row: pd.Series[Any]) -> pd.Series[Any] | None:
    """What the source of a timeout tells of a save in front of it, where no step, bar or
    evaluation stands between the two, and no more time than a save may take: training that shows
    no step may have gone on for hours.
    """
    told = facts.run.told
    mine = (told["segment"] == row["segment"]) & (told["source"] == row["source"])
    rows = where(told, mine & (told["line"] < row["line"]).fillna(value=False))
    rows = rows[~among(rows["kind"], [Kind.PROBLEM, Kind.CONFIG])]
    are_of_saves = among(rows["name"], _WORDS)
    saves = rows[are_of_saves]
    if saves.empty:
        return None
    last = saves.iloc[-1]
    evaluated = rows["name"].astype("str").str.startswith("eval_")
    moved = rows["step"].notna() | among(rows["name"], ["bar_position"]) | evaluated
    behind = rows[(rows["line"] > last["line"]) & ~are_of_saves & moved]
    waited = _WAITED.search(str(row["text"]))
    since = _seconds_since(last, row) - (int(waited[1]) / 1000 if waited else _USUAL)
    return last if behind.empty and since <= _LONGEST else None


def _seconds_since(save: pd.Series[Any], row: pd.Series[Any]) -> float:
    """0 where time stamps do not tell."""
    known = pd.notna(save["at"]) and pd.notna(row["at"])
    return float((row["at"] - save["at"]).total_seconds()) if known else 0.0


def said_of_save(save: pd.Series[Any] | None, row: pd.Series[Any]) -> str:
    """When it was, and what it may have to do with the timeout."""
    if save is None:
        return ""
    seconds = _seconds_since(save, row)
    earlier = f", {format_seconds(seconds)} earlier" if seconds > 0 else ""
    name = f" ({quoted(save['text'], 60)})" if pd.notna(save["text"]) else ""
    return (
        f" The last that is told of training before is a save{name}{earlier}: ranks may wait "
        "for one that still writes, or save while others do not."
    )
