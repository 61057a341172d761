"""Sections about communication, ranks, memory, GPUs and the health of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dsprof.analysis.ranks import straggler
from dsprof.charts import (
    bandwidths,
    ceiling,
    comm_sizes,
    limit_of,
    over_steps,
    rank_map,
    rank_phases,
    training,
    unchanged,
)
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table
from dsprof.units import format_bandwidth, format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS = 200  #: of one table in the page
COMPARED = 1000  #: steps in which ranks are compared
_GIB = float(1 << 30)


def comm_section(run: Run) -> Section:
    """Operations by message size."""
    title = "Communication by operation and size"
    if run.comm.empty:
        why = (
            "No line tells of single communication calls. DeepSpeed prints them with "
            '"comms_logger": {"enabled": true}; a recording has them always.'
        )
        return Section("communication", title, why=why)
    sizes = comm_sizes(run.comm, max(1, run.comm["step"].nunique()))
    best = ceiling(sizes, run.meta.get("link_bytes_per_second"))
    table = _comm_table(sizes, best[0] if best else None)
    figure = bandwidths(sizes, best)
    lead = "Mean of one rank and one step. Bus bandwidth as nccl-tests defines it."
    if best:
        lead += f" The link's ceiling is {format_bandwidth(best[0])}, {best[1]}."
    if figure is None:
        return Section("communication", title, lead=lead, tables=[table])
    label = "Bus bandwidth of each operation over message size; larger marks cost more time."
    return Section("communication", title, lead=lead, charts=[Chart("communication", figure, label)], tables=[table])


def _comm_table(sizes: pd.DataFrame, best: float | None) -> Table:
    widest = float(sizes["seconds"].max()) or 1.0
    rows = []
    for _, row in sizes.head(ROWS).iterrows():
        rows.append(
            [
                Cell(str(row["op"])),
                Cell(format_bytes(row["bytes"]) if words.known(row["bytes"]) else "–"),
                Cell(format_count(round(row["count"], 2))),
                Cell(
                    words.seconds(row["seconds"]),
                    Place.of(str(row["source"]), row["line"]),
                    bar=float(row["seconds"]) / widest,
                    role="communication",
                ),
                Cell(words.seconds(row["exposed"])),
                Cell(format_bandwidth(row["busbw"]) if words.known(row["busbw"]) else "–"),
                Cell(words.share(row["busbw"] / best) if best else "–"),
                Cell(limit_of(row, best)),
            ]
        )
    head = ["operation", "message", "calls per step", "total per step", "exposed", "bus bandwidth", "of the ceiling", "limited by"]
    left = len(sizes) - len(rows)
    return Table(
        "Communication by operation and message size",
        head,
        rows,
        numeric=frozenset({1, 2, 3, 4, 5, 6}),
        more=f"{left:,} cheaper rows are not shown." if left > 0 else "",
    )


def rank_section(run: Run) -> Section:
    """Which rank is slow, and where."""
    title = "Ranks"
    table = rank_phases(run.phases)
    if table is None:
        why = f"Ranks cannot be compared: {_lonely(run.phases)}. A recording tells of every rank."
        return Section("ranks", title, why=why)
    chart = Chart("ranks", rank_map(table), "Seconds per step of every rank and phase, against the median rank.", _rank_rows(table))
    return Section("ranks", title, lead=_waiting(run), charts=[chart])


def _lonely(phases: pd.DataFrame) -> str:
    if phases.empty:
        return "no line of the source has phases"
    one = phases["rank"].notna().any()
    return "only one rank prints phases" if one else "lines with phases do not say which rank prints them"


def _waiting(run: Run) -> str:
    """Who the others wait for, in words."""
    slow = straggler(_some_steps(run.phases))
    if slow is None:
        return "No step is told by every rank, so nobody can say who waits for whom."
    return (
        f"Rank {slow.rank:,} arrives last in {format_share(slow.held)} of "
        f"{words.count_of(slow.steps, 'compared step')}; the median rank then waits "
        f"{format_seconds(slow.delay)} per step for it, most of that in {slow.phase}."
    )


def _some_steps(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of at most `COMPARED` steps, those that most ranks tell: more say nothing new."""
    number = phases["step"].to_numpy(dtype=np.int64, na_value=-1)
    rows = np.bincount(number + 1)
    rows[0] = 0
    told = np.flatnonzero(rows == rows.max())
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[told[:: -(-len(told) // COMPARED)]] = True
    return phases if chosen.sum() == np.count_nonzero(rows) else phases[chosen[number + 1]]


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


_MEMORY = {
    "max_allocated": ("peak allocated, GiB", _GIB),
    "allocated": ("allocated, GiB", _GIB),
    "max_reserved": ("peak reserved, GiB", _GIB),
    "reserved": ("reserved, GiB", _GIB),
    "host_used": ("host memory, GiB", _GIB),
    "cache_flushes": ("allocator cache flushes", 1.0),
}


def memory_section(run: Run) -> Section:
    """Memory over steps, and its peaks."""
    if run.memory.empty:
        why = "No line of the source tells of memory (MemAllocated=, MA and CA, or allocator warnings)."
        return Section("memory", "Memory", why=why)
    figure = over_steps(run.memory, _MEMORY)
    table = _peaks(run.memory)
    limit = run.meta.get("gpu_memory_bytes")
    lead = f"One GPU has {format_bytes(limit)}." if limit else "The source does not say how much memory a GPU has."
    if figure is None:
        return Section("memory", "Memory", lead=lead, tables=[table])
    if limit:
        _draw_limit(figure, float(limit) / _GIB)
    return Section("memory", "Memory", lead=lead, charts=[Chart("memory", figure, "Memory over optimizer steps, in GiB.", table)])


def _draw_limit(figure: dict[str, object], limit: float) -> None:
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": limit, "y1": limit}
    layout = figure["layout"]
    assert isinstance(layout, dict)
    layout["shapes"] = [line | {"line": {"color": layout["yaxis"]["tickfont"]["color"], "width": 1, "dash": "dash"}}]


def _peaks(memory: pd.DataFrame) -> Table:
    rows = []
    told = memory[memory["bytes"].notna()]
    for (name, rank), part in told.groupby(["name", "rank"], observed=True, dropna=False):
        top = part.loc[part["bytes"].idxmax()]
        rows.append(
            [
                Cell(str(name).replace("_", " ")),
                Cell(str(int(rank)) if words.known(rank) else "–"),
                Cell(format_bytes(float(part["bytes"].iloc[0]))),
                Cell(format_bytes(float(top["bytes"])), Place.of(str(top["source"]), top["line"])),
                Cell(f"{int(top['step']):,}" if words.known(top["step"]) else "–"),
            ]
        )
    head = ["memory", "rank", "first", "highest", "at step"]
    return Table("Memory by rank", head, rows[:ROWS], numeric=frozenset({1, 2, 3, 4}))


def gpu_section(run: Run) -> Section:
    """Counters of the GPUs themselves."""
    names = [str(n) for n in run.gpu["name"].dropna().unique()] if len(run.gpu) else []
    if not names:
        why = "Logs have no GPU counters (clocks, temperature, power, use). A recording has them."
        return Section("gpu", "GPU counters", why=why)
    titles = {name: (name.replace("_", " "), 1.0) for name in names[:6]}
    figure = over_steps(run.gpu, titles)
    charts = [Chart("gpu", figure, "GPU counters over optimizer steps.")] if figure else []
    return Section("gpu", "GPU counters", charts=charts, tables=[_counters(run.gpu)])


def _counters(gpu: pd.DataFrame) -> Table:
    rows = []
    for (name, rank), part in gpu.groupby(["name", "rank"], observed=True, dropna=False):
        values = part["value"].where(part["value"].notna(), part["bytes"]).astype(float)
        if values.notna().any():
            spread = [f"{v:,.4g}" for v in np.nanpercentile(values, [0, 50, 100])]
            label = str(int(rank)) if words.known(rank) else "–"
            rows.append([Cell(str(name).replace("_", " ")), Cell(label), *map(Cell, spread)])
    head = ["counter", "rank", "lowest", "median", "highest"]
    return Table("GPU counters by rank", head, rows[:ROWS], numeric=frozenset({1, 2, 3, 4}))


def training_section(steps: pd.DataFrame) -> Section:
    """Learning rate, loss scale, gradient norm and skipped steps."""
    title = "Learning rate, loss scale, skipped steps"
    figure, flat = training(steps), unchanged(steps)
    if figure is None and not flat:
        return Section("training", title, why="No line of the source tells the learning rate or the loss scale.")
    lead = ". ".join(f"{name.capitalize()}: {value:.4g} throughout" for name, value in flat.items())
    charts = [Chart("training", figure, title + " over optimizer steps.")] if figure else []
    return Section("training", title, lead=lead and lead + ".", charts=charts)
