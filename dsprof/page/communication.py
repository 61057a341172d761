"""Communication by operation and message size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dsprof.analysis.collectives import covered_steps, told_once, trusted
from dsprof.charts import bandwidths, ceiling, comm_sizes, limit_of
from dsprof.page import words
from dsprof.page.model import Among, Cell, Chart, Section, Table, without_empty
from dsprof.page.proofs import among
from dsprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS = 200  #: of the table
_OPTIONAL = (4, 6)  #: columns that most sources have nothing for: exposed, of the ceiling
_OWN = "log_summary_barrier"  #: what DeepSpeed's logger of calls adds for its own summary


def comm_section(run: Run) -> Section:
    """Operations by message size."""
    title = "Communication by operation and size"
    if run.comm.empty:
        why = (
            "No line tells of single communication calls. DeepSpeed prints them with "
            '"comms_logger": {"enabled": true}; a recording has them always.'
        )
        return Section("communication", title, why=why)
    comm = told_once(run.comm)
    comm = comm[comm["op"] != _OWN].reset_index(drop=True)
    every = len(comm)
    comm, steps = _inside(comm, run.steps)
    left = every - len(comm)
    unit = "per step" if steps else "since the start"
    sizes = comm_sizes(comm, steps or 1)
    best = ceiling(sizes, run.meta.get("link_bytes_per_second"))
    table = _comm_table(comm, sizes, best[0] if best else None, unit)
    figure = bandwidths(sizes, best, unit)
    lead: list[str | Cell] = [
        f"{_covers(comm, steps, run.steps)} Bus bandwidth as nccl-tests defines it."
    ]
    if left:
        lead.append(
            f" {words.count_of(left, 'call')} before the first step or behind the last: left out."
        )
    if best:
        told = words.rate_column([*sizes["busbw"].head(ROWS), best[0]])[-1]  # as in the table
        lead += [" The link's ceiling is ", _ceiling(comm, sizes, best[0], told), f", {best[1]}."]
    if figure is None:
        return Section("communication", title, lead=lead, tables=[table])
    label = "Bus bandwidth of each operation over message size; larger marks cost more time."
    return Section(
        "communication",
        title,
        lead=lead,
        charts=[Chart("communication", figure, label)],
        tables=[table],
    )


def _ceiling(comm: pd.DataFrame, sizes: pd.DataFrame, best: float, told: str) -> Cell:
    """The ceiling, with the lines of the calls that reach it where calls of this run do."""
    reached = sizes.loc[sizes["busbw"] == best, "rows"]
    if reached.empty:
        return Cell(told)
    return Cell(told, among=among(comm.iloc[reached.iloc[0]].fillna({"seconds": 0.0})))


def _inside(comm: pd.DataFrame, steps: pd.DataFrame) -> tuple[pd.DataFrame, int | None]:
    """Calls that steps made, and how many steps; all calls where no step is known.

    None of set-up is among them, and none behind the last step. Tables are sums of all.
    """
    number = comm["step"].astype("float64")
    last = float(steps["step"].max()) if len(steps) else float("inf")
    kept = comm["total"].astype(bool) | (number <= last)
    inside = comm[kept.to_numpy(dtype=bool)].reset_index(drop=True)
    for calls in (inside, comm):
        sure = trusted(calls)
        count = covered_steps(sure if len(sure) else calls, steps)
        if count:
            return (inside if len(inside) else comm), count
    return comm, None


def _covers(comm: pd.DataFrame, steps: int | None, known: pd.DataFrame) -> str:
    """What the numbers are sums or means of."""
    tables = bool(comm["total"].any())
    what = "summary tables, which count from the start" if tables else "single calls"
    if steps is None:
        return f"Sums of one rank since the start, from {what}: no step tells what one step takes."
    first = len(known) and (tables or (comm["step"] == known["step"].iloc[0]).any())
    which = ", the first one, which also warms up, among them" if steps > 1 and first else ""
    count = words.count_of(steps, "step")
    return f"Mean of one rank and one step, over {count}{which}, from {what}."


def _comm_table(comm: pd.DataFrame, sizes: pd.DataFrame, best: float | None, unit: str) -> Table:
    widest = float(sizes["seconds"].fillna(0).max()) or 1.0
    shown, rows = sizes.head(ROWS), []
    times = words.column([*shown["seconds"], *shown["exposed"]])
    speeds = words.rate_column(shown["busbw"])
    for (_, row), time, exposed, speed in zip(
        shown.iterrows(), times[: len(shown)], times[len(shown) :], speeds, strict=True
    ):
        lines = among(comm.iloc[row["rows"]].fillna({"seconds": 0.0}))
        rows.append(
            [
                Cell(str(row["op"])),
                Cell(_message(row["bytes"])),
                Cell(format_count(round(row["count"], 4)), among=lines),
                _cost(row, time, widest, lines),
                _proved(exposed, lines),
                _proved(speed, lines),
                Cell(words.share(row["busbw"] / best) if best else "–"),
                Cell(limit_of(row, best)),
            ]
        )
    head = [
        "operation",
        "message",
        f"calls {unit}",
        f"total {unit}",
        "exposed",
        "bus bandwidth",
        "of the ceiling",
        "limited by",
    ]
    left = len(sizes) - len(rows)
    return without_empty(
        Table(
            "Communication by operation and message size",
            head,
            rows,
            numeric=frozenset({1, 2, 3, 4, 5, 6}),
            more=f"{left:,} cheaper rows are not shown." if left > 0 else "",
        ),
        *_OPTIONAL,
    )


def _message(size: float) -> str:
    """Size of one message; bytes are counted whole."""
    if not words.known(size):
        return "–"
    return f"{size:,.0f} B" if size < 1024 else format_bytes(size)


def _proved(text: str, lines: Among | None) -> Cell:
    """A number with its lines; nothing where it is not known."""
    return Cell(text) if text == "–" else Cell(text, among=lines)


def _cost(row: pd.Series[Any], time: str, widest: float, lines: Among | None) -> Cell:
    """The time of one row, as wide as its share of the costliest; a doubted one has no width."""
    if not words.known(row["seconds"]):
        return Cell("–")
    bar = float(row["seconds"]) / widest
    return Cell(time, bar=bar, role="communication", among=lines)
