"""Communication by operation and message size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dsprof.analysis.collectives import Judged, judged_calls, of_the_job, ranks, told_once
from dsprof.charts import bandwidths, ceiling, comm_sizes, limit_of
from dsprof.charts.comm import LIMITS
from dsprof.page import words
from dsprof.page.model import Among, Cell, Chart, Section, Table, without_empty
from dsprof.page.proofs import among
from dsprof.run.table import where
from dsprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS = 200  #: of the table
_OPTIONAL = (4, 5, 6)  #: columns that some sources have nothing for: exposed, speed, of the ceiling
_TOTAL = 3  #: and one that those have nothing for that tell only what holds a step up
_TITLE = "Communication by operation and size"
_CAPTION = "Communication by operation and message size"
_SUMMARY = "The communication logger's own summary"
_IN_ALL = "since the start"
_SPEEDS = {"busbw": "bus bandwidth", "algbw": "algorithm bandwidth"}


def comm_section(run: Run) -> Section:
    """Operations by message size."""
    if run.comm.empty:
        why = (
            "No line shows single communication calls. DeepSpeed prints them with "
            '"comms_logger": {"enabled": true}; a recording always has them.'
        )
        return Section("communication", _TITLE, why=why)
    comm = of_the_job(run.comm)
    once = told_once(comm)
    told = judged_calls(once, run.steps)
    sizes = comm_sizes(told.calls, told.visits)
    best = ceiling(sizes, run.meta.get("link_bytes_per_second"))
    unit = "per step" if told.steps else _IN_ALL
    tables = [_comm_table(_CAPTION, told.calls, sizes, best, unit)]
    lead: list[str | Cell] = [f"{_what(told, len(once))} {_speed_of(sizes)}".rstrip()]
    if best:
        said = words.rate_column([*sizes["busbw"].head(ROWS), best[0]])[-1]  # as in the table
        lead += [" The link's ceiling is ", _ceiling(told.calls, sizes, best[0], said)]
        lead += [f", {best[1]}."]
    seen = words.calls_seen(run.told)
    lead += [f" The recording {seen}."] if seen else []
    if len(once) < len(comm) and not once["total"].any():
        summary = where(comm, comm["total"])
        tables.append(
            _comm_table(_SUMMARY, summary, comm_sizes(summary, ranks(summary)), best, _IN_ALL)
        )
        lead += [" The logger's own summary, below, counts the calls once more."]
    figure = bandwidths(sizes, best, unit)
    label = "Bus bandwidth of each operation over message size; larger marks cost more time."
    charts = [Chart("communication", figure, label)] if figure else []
    return Section("communication", _TITLE, lead=lead, charts=charts, tables=tables)


def _what(told: Judged, every: int) -> str:
    """What the numbers are sums or means of; `every` call that is told may be more."""
    tables = bool(told.calls["total"].any())
    what = "summary tables, which count from the start" if tables else "single calls"
    if told.steps is None:
        said = f"Sums of one rank since the start, from {what}"
        return f"{said}: no step tells what one step takes."
    said = f"Mean of one rank and one step, over {words.count_of(told.steps, 'step')}"
    if tables:
        return f"{said}, from {what}: calls of set-up and of the first step are among them."
    said += f", {told.warm}" if told.warm else ""
    said += f", from {what}."
    left = every - len(told.calls)
    if not left:
        return said
    return f"{said} {words.count_of(left, 'call')} belong to no such step and are left out."


def _speed_of(sizes: pd.DataFrame) -> str:
    """Which bandwidth the table has, and why."""
    if sizes["seconds"].isna().all() and sizes["exposed"].notna().any():
        return "Only how long calls hold the step up (exposed) is known, not how long they last."
    if sizes["busbw"].notna().any():
        return "Bus bandwidth as nccl-tests defines it, computed from bytes and time."
    if sizes["algbw"].notna().any():
        return (
            "Bus bandwidth is unknown without the number of ranks: algorithm bandwidth is shown "
            "instead."
        )
    return ""


def _ceiling(comm: pd.DataFrame, sizes: pd.DataFrame, best: float, told: str) -> Cell:
    """The ceiling, with the lines of the calls that reach it where calls of this run do."""
    reached = sizes.loc[sizes["busbw"] == best, "rows"]
    if reached.empty:
        return Cell(told)
    return Cell(told, among=among(comm.iloc[reached.iloc[0]].fillna({"seconds": 0.0})))


def _comm_table(
    caption: str,
    comm: pd.DataFrame,
    sizes: pd.DataFrame,
    best: tuple[float, str] | None,
    unit: str,
) -> Table:
    """Operations and sizes, costliest first; `comm` holds the rows that `sizes` sums up."""
    widest = float(sizes["seconds"].fillna(0).max()) or 1.0
    shown, rows = sizes.head(ROWS), []
    speed = "busbw" if sizes["busbw"].notna().any() else "algbw"
    proofs = comm[["seconds", "source", "line"]].fillna({"seconds": 0.0})
    times = words.column([*shown["seconds"], *shown["exposed"]])
    speeds = words.rate_column(shown[speed])
    for (_, row), time, exposed, said in zip(
        shown.iterrows(), times[: len(shown)], times[len(shown) :], speeds, strict=True
    ):
        lines = among(proofs.iloc[row["rows"]])
        rows.append(
            [
                Cell(str(row["op"])),
                Cell(_message(row["bytes"])),
                Cell(format_count(round(row["count"], 4)), among=lines),
                _cost(row, time, widest, lines),
                _proved(exposed, lines),
                _proved(said, lines),
                Cell(words.share(row["busbw"] / best[0]) if best else "–"),
                Cell(limit_of(row, best[0] if best else None)),
            ]
        )
    head = ["operation", "message", f"calls {unit}", f"total {unit}", "exposed"]
    head += [_SPEEDS[speed], "of the ceiling", "limited by"]
    left = len(sizes) - len(rows)
    used = {row[-1].text for row in rows}
    means = "; ".join(f"{word} ({LIMITS[word]})" for word in LIMITS if word in used)
    more = f"{left:,} cheaper rows are not shown. " if left > 0 else ""
    more += f"What limits them: {means}." if means else ""
    table = Table(caption, head, rows, frozenset({1, 2, 3, 4, 5, 6}), more)
    return without_empty(table, *_OPTIONAL, *((_TOTAL,) if sizes["exposed"].notna().any() else ()))


def _message(size: float) -> str:
    return format_bytes(size) if words.known(size) else "–"


def _proved(text: str, lines: Among | None) -> Cell:
    """A number with its lines; nothing where it is not known."""
    return Cell(text) if text == "–" else Cell(text, among=lines)


def _cost(row: pd.Series[Any], time: str, widest: float, lines: Among | None) -> Cell:
    """The time of one row, as wide as its share of the costliest; a doubted one has no width."""
    if not words.known(row["seconds"]):
        return Cell("–")
    bar = float(row["seconds"]) / widest
    return Cell(time, bar=bar, role="communication", among=lines)
