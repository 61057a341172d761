"""Counters of the GPUs themselves: which device, whose it is, and what its phases are timed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from dsprof.charts import measured, over_steps
from dsprof.events import Kind
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table, without, without_empty
from dsprof.page.proofs import among
from dsprof.run.table import of_kind
from dsprof.units import format_bandwidth, format_bytes, format_share

if TYPE_CHECKING:
    from dsprof.run import Run

ROWS: Final = 400  #: of the table
_GIB: Final = float(1 << 30)
_TITLE: Final = "GPU counters"

#: Counters that are drawn: what one reads first on a panel of a GPU.
_DRAWN: Final = {
    "utilization": ("utilisation, %", 1.0),
    "power": ("power, W", 1.0),
    "temperature": ("temperature, °C", 1.0),
    "clock_sm": ("clock of the multiprocessors, MHz", 1.0),
    "memory_used": ("memory in use, by all processes, GiB", _GIB),
}

#: What each counter is called in the table, and its unit.
_NAMED: Final = {
    "utilization": ("utilisation", "%"),
    "memory_utilization": ("memory utilisation", "%"),
    "power": ("power", "W"),
    "temperature": ("temperature", "°C"),
    "temperature_memory": ("temperature of the memory", "°C"),
    "clock_sm": ("clock of the multiprocessors", "MHz"),
    "clock_memory": ("clock of the memory", "MHz"),
    "memory_used": ("memory in use, by all processes", "B"),
    "memory_total": ("total memory", "B"),
    "memory_process": ("memory of one process", "B"),
    "nvlink_sent": ("sent over NVLink", "B/s"),
    "nvlink_received": ("received over NVLink", "B/s"),
    "pcie_sent": ("sent over PCIe", "B/s"),
    "pcie_received": ("received over PCIe", "B/s"),
    "ecc_corrected": ("memory errors, corrected", ""),
    "ecc_uncorrected": ("memory errors, not corrected", ""),
}

#: Why a clock was held down: a sample says yes or no.
_HELD: Final = {
    "throttled_power": "power limit",
    "throttled_thermal": "heat",
    "throttled_hardware": "power brake or slowdown of the hardware",
}


def gpu_section(run: Run) -> Section:
    """Use, power, temperature and clocks of each GPU, and how long its clock was held down."""
    gpu = run.gpu
    if gpu.empty:
        return Section("gpu", _TITLE, why=_why(run))
    used = gpu[gpu["rank"].notna()]  # lines are told apart by their ranks
    figure = over_steps(used if len(used) else gpu, _DRAWN, run.steps)
    charts = [Chart("gpu", figure, "GPU counters over optimizer steps.")] if figure else []
    held = _held_down(gpu)
    lead = f"{_lead(gpu, run.told)} {_never_held(gpu) if held is None else ''}".rstrip()
    tables = [_counters(gpu), *([held] if held else [])]
    return Section("gpu", _TITLE, lead=lead, charts=charts, tables=tables)


def _why(run: Run) -> str:
    told = _config(run.told, "gpu_counters")["text"].dropna()
    if len(told):
        return f"The recording has none. It says why: {told.iloc[0]}."
    if run.is_recording:
        return f"The recording has no sample of a GPU. {_timed_on(run.told)}".rstrip()
    return "No counter of a GPU (use, clocks, temperature, power) was read. A recording has them."


def _config(events: pd.DataFrame, name: str) -> pd.DataFrame:
    return of_kind(events, Kind.CONFIG, name)


def _lead(gpu: pd.DataFrame, events: pd.DataFrame) -> str:
    devices = gpu[["text", "rank"]].drop_duplicates()
    free = int(devices["rank"].isna().sum())
    count = words.count_of(int(devices["text"].nunique(dropna=False)), "GPU")
    said = f"{count} sampled" + (f", {free:,} of them used by no rank of this run" if free else "")
    return f"{said}. {_timed_on(events)}".strip()


def _timed_on(events: pd.DataFrame) -> str:
    """Whether the phases of this page are time on the GPU."""
    told = _config(events, "phases_on")
    ranks = {
        clock: sorted({int(r) for r in part["rank"].dropna()})
        for clock, part in told.groupby("text")
    }
    where = {"gpu": "on the GPU's own stream", "host": "on the host"}
    if len(ranks) == 1:
        (clock,) = ranks
        return f"Phases of all ranks are timed {where.get(str(clock), str(clock))}."
    return " ".join(
        f"Phases of ranks {words.ranges(of)} are timed {where.get(str(clock), str(clock))}."
        for clock, of in ranks.items()
    )


def _whose(part: pd.DataFrame) -> list[Cell]:
    """Which GPU some rows are of, and which rank uses it."""
    row = part.iloc[0]
    name = str(row["text"]).removeprefix("GPU-")[:8] if words.known(row["text"]) else "–"
    rank = f"{int(row['rank']):,}" if words.known(row["rank"]) else "–"
    return [Cell(name), Cell(str(row["host"]) if words.known(row["host"]) else "–"), Cell(rank)]


def _parts(gpu: pd.DataFrame, names: set[str]) -> list[tuple[str, pd.DataFrame]]:
    """Rows of these counters, by counter and GPU."""
    rows = gpu.assign(_value=measured(gpu))  # of all: an empty frame would take their index
    rows = rows[rows["name"].isin(names) & rows["_value"].notna()]
    groups = rows.groupby(["name", "text", "rank", "raw"], observed=True, dropna=False)
    return [(str(key[0]), part) for key, part in groups]


def _counters(gpu: pd.DataFrame) -> Table:
    order = list(_NAMED)
    parts = sorted(_parts(gpu, set(order)), key=lambda part: order.index(part[0]))
    rows = [
        [Cell(_name(name, part)), *_whose(part), *_spread(part, _NAMED[name][1])]
        for name, part in parts
    ]
    head = ["counter", "GPU", "host", "rank", "lowest", "median", "highest"]
    left = len(rows) - ROWS
    more = f"{left:,} more rows are not shown." if left > 0 else ""
    table = Table("Counters of each GPU", head, rows[:ROWS], frozenset({3, 4, 5, 6}), more)
    return _of_hosts(table)


def _of_hosts(table: Table) -> Table:
    """The table without the column of hosts where there is one."""
    return without_empty(
        table if len({row[2].text for row in table.rows}) > 1 else without(table, 2)
    )


def _name(name: str, part: pd.DataFrame) -> str:
    """A counter; that of one process with its id, which the source's own word begins with."""
    process = str(part["raw"].iloc[0]).partition("/")[0]
    return f"memory of {process}" if name == "memory_process" else _NAMED[name][0]


def _spread(part: pd.DataFrame, unit: str) -> list[Cell]:
    """Lowest, median and highest value, each with the line nearest to it."""
    values = part["_value"].to_numpy(dtype=float)
    cells = []
    for quantile in (0, 50, 100):
        value = float(np.percentile(values, quantile))
        row = part.iloc[int(np.abs(values - value).argmin())]
        cells.append(Cell(_said(value, unit), Place.of(str(row["source"]), row["line"])))
    return cells


def _said(value: float, unit: str) -> str:
    if unit == "B":
        return format_bytes(value)
    if unit == "B/s":
        return format_bandwidth(value)
    return f"{value:,.0f} {unit}".rstrip()


def _held_down(gpu: pd.DataFrame) -> Table | None:
    """In how many of its samples the clock of a GPU was held down, by reason."""
    rows = [
        [Cell(_HELD[name]), *_whose(part), *_share(part)]
        for name, part in _parts(gpu, set(_HELD))
        if (part["_value"] > 0).any()
    ]
    head = ["clock held down by", "GPU", "host", "rank", "of its samples", "samples"]
    numeric = frozenset({3, 4, 5})
    return _of_hosts(Table("Clocks held down", head, rows, numeric)) if rows else None


def _never_held(gpu: pd.DataFrame) -> str:
    told = [why for name, why in _HELD.items() if (gpu["name"] == name).any()]
    return f"No sample shows a clock held down ({', '.join(told)})." if told else ""


def _share(part: pd.DataFrame) -> list[Cell]:
    held = part[part["_value"] > 0]
    lines = among(held, "_value", largest="")
    return [Cell(format_share(len(held) / len(part)), among=lines), Cell(f"{len(part):,}")]
