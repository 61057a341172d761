"""Memory, GPU counters and the health of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsprof.charts import Figure, over_steps, training, unchanged
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table
from dsprof.page.proofs import among
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
    told = memory[memory["bytes"].notna()]
    parts = list(told.groupby(["name", "rank"], observed=True, dropna=False))[:ROWS]
    ends = [(part.iloc[0], part.iloc[int(part["bytes"].argmax())]) for _, part in parts]
    said = words.byte_column(row["bytes"] for both in ends for row in both)
    rows = [
        [
            Cell(str(name).replace("_", " ")),
            Cell(_rank(rank)),
            Cell(first, Place.of(str(start["source"]), start["line"])),
            Cell(highest, Place.of(str(top["source"]), top["line"])),
            Cell(f"{int(top['step']):,}" if words.known(top["step"]) else "not told"),
        ]
        for ((name, rank), _), (start, top), first, highest in zip(
            parts, ends, said[::2], said[1::2], strict=True
        )
    ]
    head = ["memory", "rank", "first", "highest", "at step"]
    return Table("Memory by rank", head, rows, numeric=frozenset({1, 2, 3, 4}))


def _rank(rank: Any) -> str:
    return str(int(rank)) if words.known(rank) else "not told"


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
            rows.append(
                [Cell(str(name).replace("_", " ")), Cell(_rank(rank)), *_spread(part, values)]
            )
    head = ["counter", "rank", "lowest", "median", "highest"]
    return Table("GPU counters by rank", head, rows[:ROWS], numeric=frozenset({1, 2, 3, 4}))


def _spread(part: pd.DataFrame, values: pd.Series[Any]) -> list[Cell]:
    """Lowest, median and highest value, each with the line nearest to it."""
    known = values.to_numpy(dtype=float, na_value=np.nan)
    cells = []
    for quantile in (0, 50, 100):
        value = float(np.nanpercentile(known, quantile))
        row = part.iloc[int(np.nanargmin(np.abs(known - value)))]
        cells.append(Cell(f"{value:,.4g}", Place.of(str(row["source"]), row["line"])))
    return cells


#: Metrics that a source may tell although no step is known to have ended.
_ALONE = {
    "lr": "learning rate",
    "loss_scale": "loss scale",
    "grad_norm": "gradient norm",
    "overflow": "steps skipped by an overflow",
}


def training_section(run: Run) -> Section:
    """Learning rate, loss scale, gradient norm and skipped steps."""
    title = "Learning rate, loss scale, skipped steps"
    steps = run.steps
    figure, flat = training(steps), unchanged(steps)
    if figure is None and not flat:
        return _training_alone(title, run.told)
    lead = ". ".join(f"{name.capitalize()}: {value:.4g} throughout" for name, value in flat.items())
    charts = [Chart("training", figure, title + " over optimizer steps.")] if figure else []
    return Section("training", title, lead=lead and lead + ".", charts=charts)


def _training_alone(title: str, events: pd.DataFrame) -> Section:
    """What lines outside any optimizer step tell."""
    metrics = events[events["kind"] == "metric"]
    rows = []
    for name, label in _ALONE.items():
        told = metrics[(metrics["name"] == name) & metrics["value"].notna()]
        if told.empty:
            continue
        ends = [f"{told['value'].sum():,.6g}"] if name == "overflow" else _ends(told["value"])
        lines = among(told, "value")
        rows.append([Cell(label), Cell(" to ".join(ends), among=lines), Cell(f"{len(told):,}")])
    if not rows:
        why = "No line of the source tells the learning rate or the loss scale."
        return Section("training", title, why=why)
    head = ["what", "value", "lines"]
    table = Table("Told outside of any optimizer step", head, rows, numeric=frozenset({1, 2}))
    lead = "No optimizer step is known to have ended; these lines stand by themselves."
    return Section("training", title, lead=lead, tables=[table])


def _ends(values: pd.Series[Any]) -> list[str]:
    """The first and the last value; one where they are equal."""
    return list(dict.fromkeys(f"{values.iloc[i]:.6g}" for i in (0, -1)))
