"""Timers that were never cleared: DeepSpeed 0.18.3 and later, communication and MoE.

Each value is then the total since the process started, and the true one is its increase
over the line before. A series shows the defect by never falling.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.comm import of_a_table
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import Codes, Numbers, among, keys, numbers, of_kind, where

SINCE: Final = "0.18.3"
CALLS: Final = 5  # of one operation, before its series says anything
FALLS: Final = 0.02  # of a series that restarts of a process explain


def cumulative_comm_latency(events: pd.DataFrame, source: Source) -> Outcome:
    """Verbose lines of the communication logger, one call each."""
    rows = of_kind(events, Kind.COMM)
    single = rows["pattern"].notna() & ~of_a_table(rows) & rows["seconds"].notna()
    rows = where(rows, single)
    if rows.empty:
        return events, None
    text = (
        "each latency is the total of all calls so far (DeepSpeed 0.18.3 and later); it was "
        "replaced by its increase over the call before, and bandwidths follow from that"
    )
    series = keys(
        rows.assign(text=rows["text"].astype("category")),
        "segment",
        "source",
        "rank",
        "name",
        "text",
    )
    fixed = _increases(events, rows, series, source)
    if fixed is None:
        return events, None
    return fixed, met("cumulative-comm-latency", "repair", text, rows)


def cumulative_moe_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """The all-to-all timers of MoE layers."""
    timed = among(events["kind"], [Kind.PHASE]) & events["seconds"].notna()
    rows = where(events, timed & among(events["timers"], ["moe"]))
    if rows.empty:
        return events, None
    text = (
        "MoE timers are totals since the start (DeepSpeed 0.18.3 and later); each was "
        "replaced by its increase over the line before"
    )
    series = keys(rows, "segment", "source", "rank", "name")
    fixed = _increases(events, rows, series, source)
    if fixed is None:
        return events, None
    return fixed, met("moe-a2a-cumulative", "repair", text, rows)


def summary_table(events: pd.DataFrame, source: Source) -> Outcome:
    """The logger's table adds up totals: nothing can bring the latencies back."""
    rows = _tables(events) if table_is_suspect(events, source) else events[:0]
    text = (
        "latencies of the communication summary add up totals (DeepSpeed 0.18.3 and later): "
        "their times are far too long, their bandwidths too low; counts and sizes are right"
    )
    return events, met("cumulative-comm-latency", "doubt", text, rows)


def table_is_suspect(events: pd.DataFrame, source: Source) -> bool:
    """The version is about one with the defect, or one rank's calls exceed the log's own time.

    The logger waits for each call to end, so their sum cannot exceed the time since the
    launcher's first line.
    """
    if source.version.surely("0.18.0") or not source.version.maybe(SINCE):
        return source.version.maybe(SINCE)
    tables = _tables(events)
    if not len(tables):
        return False
    longest = tables.groupby(["segment", "record"])["seconds"].sum().max()
    launched = events.loc[events["pattern"].astype("str").str.startswith("launcher."), "at"].min()
    ended = events.loc[events["name"] != "exited_well", "at"].max()  # the launcher looks rarely
    return bool(longest > (ended - launched).total_seconds() > 0)


def _tables(events: pd.DataFrame) -> pd.DataFrame:
    return where(events, among(events["kind"], [Kind.COMM]) & of_a_table(events))


def _increases(
    events: pd.DataFrame, rows: pd.DataFrame, series: Codes, source: Source
) -> pd.DataFrame | None:
    """The events with `rows` as increases within their series; None if they are no totals."""
    seconds = numbers(rows["seconds"])
    increase = seconds - pd.Series(seconds).groupby(series).shift().to_numpy()
    sure = source.version.surely(SINCE)
    if not source.version.maybe(SINCE) or not _grows(increase, series, sure=sure):
        return None
    fixed = numbers(events["seconds"]).copy()
    true = np.where(increase >= 0, increase, seconds)  # else the first call, or a new process
    fixed[events.index.get_indexer(rows.index)] = true
    return events.assign(seconds=fixed)


def _grows(increase: Numbers, series: Codes, *, sure: bool) -> bool:
    """No series falls, and unless the version is known to be at fault one rises five times."""
    steps = np.isfinite(increase)
    if not steps.any() or np.mean(increase[steps] < 0) > FALLS:
        return False
    rises = np.bincount(series[steps & (increase > 0)], minlength=1)
    return sure or bool(rises.max() >= CALLS - 1)
