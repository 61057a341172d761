"""Ranks side by side, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from dsprof.analysis.ranks import straggler
from dsprof.charts import rank_map, rank_phases
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Section, Table
from dsprof.units import format_seconds, format_share

if TYPE_CHECKING:
    from dsprof.run import Run


def rank_section(run: Run) -> Section:
    """Which rank is slow, and where."""
    title = "Ranks"
    table = rank_phases(run.phases)
    if table is None:
        why = f"Ranks cannot be compared: {_lonely(run.phases)}. A recording tells of every rank."
        return Section("ranks", title, why=why)
    chart = Chart(
        "ranks",
        rank_map(table),
        "Seconds per step of every rank and phase, against the median rank.",
        _rank_rows(table),
    )
    return Section("ranks", title, lead=_waiting(run), charts=[chart])


def _lonely(phases: pd.DataFrame) -> str:
    if phases.empty:
        return "no line of the source has phases"
    one = phases["rank"].notna().any()
    return (
        "only one rank prints phases"
        if one
        else "lines with phases do not say which rank prints them"
    )


def _waiting(run: Run) -> str:
    """Who the others wait for, in words."""
    slow = straggler(run.phases)
    if slow is None:
        return "No step is told by every rank, so nobody can say who waits for whom."
    return (
        f"Rank {slow.rank:,} arrives last in {format_share(slow.held)} of "
        f"{words.count_of(slow.steps, 'compared step')}; the median rank then waits "
        f"{format_seconds(slow.delay)} per step for it, most of that in {slow.phase}."
    )


def _rank_rows(table: pd.DataFrame) -> Table:
    """Per phase: the median, and the slowest and fastest rank."""
    rows = []
    for name, values in table.iterrows():
        told = values.dropna()
        if told.empty:
            continue
        rows.append(
            [
                Cell(str(name)),
                Cell(format_seconds(float(told.median()))),
                Cell(f"{format_seconds(float(told.max()))}, rank {told.idxmax()}"),
                Cell(f"{format_seconds(float(told.min()))}, rank {told.idxmin()}"),
            ]
        )
    head = ["phase", "median rank", "slowest", "fastest"]
    return Table("Seconds per step by rank", head, rows, numeric=frozenset({1, 2, 3}))
