"""Memory, GPU counters and the health of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsprof.charts import Figure, over_steps, training, unchanged
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table
from dsprof.units import format_bytes

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS = 200  #: of one table
_GIB = float(1 << 30)

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
        why = "No line of the source tells of memory (MemAllocated=, MA, allocator warnings)."
        return Section("memory", "Memory", why=why)
    figure = over_steps(run.memory, _MEMORY)
    table = _peaks(run.memory)
    limit = run.meta.get("gpu_memory_bytes")
    lead = (
        f"One GPU has {format_bytes(limit)}."
        if limit
        else "The source does not say how much memory a GPU has."
    )
    if figure is None:
        return Section("memory", "Memory", lead=lead, tables=[table])
    if limit:
        _draw_limit(figure, float(limit) / _GIB)
    return Section(
        "memory",
        "Memory",
        lead=lead,
        charts=[Chart("memory", figure, "Memory over optimizer steps, in GiB.", table)],
    )


def _draw_limit(figure: Figure, limit: float) -> None:
    layout = figure["layout"]
    line = {"color": layout["yaxis"]["tickfont"]["color"], "width": 1, "dash": "dash"}
    ends = {"xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": limit, "y1": limit}
    layout["shapes"] = [{"type": "line", **ends, "line": line}]


def _peaks(memory: pd.DataFrame) -> Table:
    rows = []
    told = memory[memory["bytes"].notna()]
    for (name, rank), part in told.groupby(["name", "rank"], observed=True, dropna=False):
        top = part.iloc[int(part["bytes"].argmax())]
        rows.append(
            [
                Cell(str(name).replace("_", " ")),
                Cell(_rank(rank)),
                Cell(format_bytes(float(part["bytes"].iloc[0]))),
                Cell(format_bytes(float(top["bytes"])), Place.of(str(top["source"]), top["line"])),
                Cell(f"{int(top['step']):,}" if words.known(top["step"]) else "–"),
            ]
        )
    head = ["memory", "rank", "first", "highest", "at step"]
    return Table("Memory by rank", head, rows[:ROWS], numeric=frozenset({1, 2, 3, 4}))


def _rank(rank: Any) -> str:
    return str(int(rank)) if words.known(rank) else "–"


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
            rows.append([Cell(str(name).replace("_", " ")), Cell(_rank(rank)), *map(Cell, spread)])
    head = ["counter", "rank", "lowest", "median", "highest"]
    return Table("GPU counters by rank", head, rows[:ROWS], numeric=frozenset({1, 2, 3, 4}))


def training_section(steps: pd.DataFrame) -> Section:
    """Learning rate, loss scale, gradient norm and skipped steps."""
    title = "Learning rate, loss scale, skipped steps"
    figure, flat = training(steps), unchanged(steps)
    if figure is None and not flat:
        return Section(
            "training",
            title,
            why="No line of the source tells the learning rate or the loss scale.",
        )
    lead = ". ".join(f"{name.capitalize()}: {value:.4g} throughout" for name, value in flat.items())
    charts = [Chart("training", figure, title + " over optimizer steps.")] if figure else []
    return Section("training", title, lead=lead and lead + ".", charts=charts)
