"""Rows of each screen's table, from the picture. Pure."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from dsprof.live.grid import Cell, Column, Row
from dsprof.live.look import HEAT
from dsprof.live.picture import GpuRow, MemoryRow, Picture, RankRow, Sighting, Tail
from dsprof.text.words import PROBLEM
from dsprof.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
)

Table = tuple[Sequence[Column], Sequence[Row]]

_SPARK = "▁▂▃▄▅▆▇█"
_KIND = 32  # cells for what a problem is
_SPARKS = 20  # values of a trail that are shown


def findings(picture: Picture) -> Table:
    """What is wrong, now and before; those that have gone stay for a while."""
    columns = [Column("severity", 8), Column("seen", 9), Column("finding", 0)]
    return columns, [Row(seen.key, tuple(_finding(seen, picture.at))) for seen in picture.findings]


def _finding(seen: Sighting, at: float) -> Iterator[Cell]:
    role = "gone" if seen.gone is not None else str(seen.finding.severity)
    yield Cell("gone" if seen.gone is not None else str(seen.finding.severity), role)
    if seen.gone is not None:
        yield Cell(f"{_ago(at - seen.gone)} ago", "muted")
    else:
        yield Cell(f"for {_ago(at - seen.since)}" if seen.now else "earlier", "muted")
    yield Cell(seen.finding.title, role)


def _ago(seconds: float) -> str:
    """`5 s`, `3 min`, `2 h`: one unit is enough."""
    for size, word in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {word}"
    return f"{int(max(0, seconds))} s"


def ranks(picture: Picture, width: int, *, colour: bool) -> Table:
    """Rank by phase, the shade how far a rank lies above the median one."""
    table = picture.ranks
    room = (width - _FIXED) // max(1, len(table.phases)) - 1
    longest = max(_NARROW, min(_WIDE, room))
    host = max((len(row.host) for row in table.rows), default=0)
    columns = [
        Column("rank", 5, right=True),
        Column("host", max(4, min(14, host))),
        Column("state", 7),
        Column("late by", 8, right=True),
        Column("waits", 8, right=True),
        *(
            Column(title, max(8, min(longest, len(title))), right=True)
            for title in _apart(table.phases, longest)
        ),
        Column("at step", 9, right=True),
    ]
    usual = sum(table.medians) or math.inf
    rows = [
        Row(row.rank, tuple(_rank(row, table.medians, usual, colour=colour))) for row in table.rows
    ]
    return _without_empty(columns, rows) if rows else (columns, rows)


def _apart(names: Sequence[str], cells: int) -> Iterator[str]:
    """Names; of those whose beginnings are all that fits and alike, the ends are left, too."""
    heads = Counter(name[: cells - 1] for name in names)
    for name in names:
        alike = len(name) > cells and heads[name[: cells - 1]] > 1
        yield f"{name[: cells // 2]}…{name[cells // 2 + 1 - cells :]}" if alike else name


_FIXED = 60  # cells of the columns beside the phases
_NARROW, _WIDE = 12, 30  # cells of a phase's name


def _rank(row: RankRow, medians: Sequence[float], usual: float, *, colour: bool) -> Iterator[Cell]:
    late = _heat(row.late_by, 0.0, usual)
    yield Cell(str(row.rank), "strong" if late > 0.3 else "")
    yield Cell(row.host, "muted")
    yield Cell(row.state, row.state if row.state in {"died", "silent"} else "muted")
    yield Cell(_seconds(row.late_by, signed=True), "", late)
    yield Cell(row.operation or _seconds(row.waits), "muted")
    for seconds, median in zip(row.phases, medians, strict=True):
        heat = _heat(seconds, median, usual)
        shade = "" if colour else HEAT[min(len(HEAT) - 1, round(heat * (len(HEAT) - 1)))] + " "
        yield Cell((shade if heat > 0.1 else "") + _seconds(seconds), "", heat)
    yield Cell("" if row.step is None else f"{row.step:,}", "muted")


def _heat(seconds: float | None, median: float, usual: float) -> float:
    """0 at the median rank, 1 half a step above it."""
    return 0.0 if seconds is None else max(0.0, (seconds - median) / usual * 2)


def _seconds(seconds: float | None, *, signed: bool = False) -> str:
    if seconds is None:
        return "-"
    sign = "" if not signed or not seconds else "+" if seconds > 0 else "-"
    return sign + format_seconds(abs(seconds) if signed else seconds)


def communication(picture: Picture) -> Table:
    counts = [format_count(round(row.count, 4)) for row in picture.comm.rows]
    columns = [
        Column("operation", 24),
        Column("size", 8, right=True),
        Column("calls", max(6, max(map(len, counts), default=0)), right=True),
        Column("time", 8, right=True),
        Column("exposed", 8, right=True),
        Column("bus", 9, right=True),
        Column("of link", 7, right=True),
    ]
    rows = [
        Row(
            (row.op, row.bytes),
            (
                Cell(row.op),
                Cell("?" if row.bytes is None else format_bytes(row.bytes)),
                Cell(count),
                Cell(_seconds(row.seconds)),
                Cell(_seconds(row.exposed), "communication" if row.exposed else ""),
                Cell("-" if row.busbw is None else format_bandwidth(row.busbw)),
                Cell("-" if row.link is None else format_share(row.link)),
            ),
        )
        for row, count in zip(picture.comm.rows, counts, strict=True)
    ]
    return columns, rows


def moved(picture: Picture) -> str:
    """What was spent on communication, in a sentence."""
    rows = picture.comm.rows
    exposed = [row.exposed for row in rows if row.exposed is not None]
    times = [row.seconds for row in rows if row.seconds is not None]
    of = "per step and rank" if picture.comm.steps else "of one rank since the start"
    if exposed:
        return f"{of}, {format_seconds(sum(exposed))} of communication is exposed"
    if times:
        return f"{of}, {format_seconds(sum(times))} in calls"
    return f"{of}: how long calls take is unknown, or cannot be trusted" if rows else ""


#: Counters of a GPU that have a column: its title and unit.
_GAUGES: Final = {
    "utilization": ("busy", " %"),
    "power": ("power", " W"),
    "clock_sm": ("clock", " MHz"),
    "temperature": ("heat", " °C"),
    "nvlink_sent": ("NVLink out", "B/s"),
    "nvlink_received": ("NVLink in", "B/s"),
    "pcie_sent": ("PCIe out", "B/s"),
    "pcie_received": ("PCIe in", "B/s"),
    "ecc_uncorrected": ("ECC errors", ""),
}


def memory(picture: Picture) -> Table:
    """Memory of each rank and whether it lasts, then what its GPU last said of itself."""
    hosts = [*(row.host for row in picture.memory), *(gpu.host for gpu in picture.gpus)]
    host = max(map(len, hosts), default=0)
    columns = [
        Column("rank", 5, right=True),
        Column("host", max(4, min(12, host))),
        *(Column(name, 9, right=True) for name in (*_SIZES[:3], "limit", "a step")),
        Column("full in", 11, right=True),
        *(Column(name.replace("_", " "), 9, right=True) for name in _SIZES[3:]),
        Column("trail", 20),
        Column("throttled by", 14),
        *(Column(title, max(8, len(title)), right=True) for title, _ in _GAUGES.values()),
    ]
    gpus: dict[int | None, GpuRow]
    gpus = {gpu.rank: gpu for gpu in picture.gpus if gpu.rank is not None}
    told = [(row.rank, row, gpus.get(row.rank)) for row in picture.memory]
    known = {row.rank for row in picture.memory if row.rank is not None}
    alone = [(gpu.rank, None, gpu) for gpu in picture.gpus if gpu.rank not in known]
    rows = [
        Row(("nobody", nth) if rank is None else rank, tuple(_memory(rank, row, gpu)))
        for nth, (rank, row, gpu) in enumerate([*told, *alone])
    ]
    return _without_empty(columns, rows)


_SOON: Final = 86_400.0  # seconds: what is further away is no reason to look up
_SIZES: Final = ("allocated", "reserved", "peak", "device", "process", "host_used")


def safe(picture: Picture) -> str:
    """Whether memory lasts, in a sentence: the rank that is nearest to its limit."""
    full = [row for row in picture.memory if row.full is not None and row.full < _SOON]
    if full:
        row = min(full, key=lambda row: row.full or 0.0)
        return f"{_of(row)} is full in {format_seconds(row.full or 0.0)} if it grows on as now"
    known = [(_used(row) / row.limit, row) for row in picture.memory if row.limit and _used(row)]
    if known:
        share, row = max(known, key=lambda one: one[0])
        limit = format_bytes(row.limit or 0.0)
        return f"{_of(row)} is fullest: {format_share(share)} of {limit}"
    on_gpu = any(map(_used, picture.memory))  # else the memory of processes alone is known
    return "the size of a GPU's memory is unknown" if on_gpu else ""


def _of(row: MemoryRow) -> str:
    return "one rank" if row.rank is None else f"rank {row.rank}"


def _used(row: MemoryRow) -> float:
    return row.device or row.reserved or row.allocated or 0.0


def _without_empty(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """Without the columns that say nothing in any row."""
    keep = [
        at for at in range(len(columns)) if any(row.cells[at].text not in {"", "-"} for row in rows)
    ]
    return [columns[at] for at in keep], [
        Row(row.key, tuple(row.cells[at] for at in keep)) for row in rows
    ]


def _memory(rank: int | None, row: MemoryRow | None, gpu: GpuRow | None) -> Iterator[Cell]:
    def size(name: str) -> Cell:
        value: float | None = getattr(row, name) if row else None
        if name == "device" and gpu:
            value = gpu.values.get("memory_used")
        return Cell("-" if value is None else format_bytes(value))

    yield Cell("?" if rank is None else str(rank))
    yield Cell((row and row.host) or (gpu.host if gpu else ""), "muted")
    yield from map(size, (*_SIZES[:3], "limit"))
    slope = row.per_step if row else None
    grows = slope is not None and slope > 0
    words = "-" if slope is None else ("+" if grows else "") + format_bytes(slope)
    yield Cell(words, "communication" if grows else "")
    full = row.full if row else None
    soon = full is not None and full < _SOON
    yield Cell("-" if full is None else format_seconds(full), "critical" if soon else "muted")
    yield from map(size, _SIZES[3:])
    yield Cell(spark(row.trail if row else ()), "compute")
    yield Cell(gpu.reasons if gpu else "", "critical")
    for name, (_, unit) in _GAUGES.items():
        value = gpu.values.get(name) if gpu else None
        yield Cell("-" if value is None else _gauge(value, unit))


def _gauge(value: float, unit: str) -> str:
    return format_bandwidth(value) if unit == "B/s" else f"{value:,.4g}{unit}"


def spark(trail: Sequence[float]) -> str:
    """The last values as a line of blocks between their least and greatest."""
    shown = trail[-_SPARKS:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(_SPARK[round((value - low) / span * (len(_SPARK) - 1))] for value in shown)


def problems(picture: Picture) -> Table:
    steps = ["" if row.step is None else f"{row.step:,}" for row in picture.problems]
    ranks = ["" if row.rank is None else str(row.rank) for row in picture.problems]
    kinds = [PROBLEM.get(row.kind, row.kind) for row in picture.problems]
    columns = [
        Column("severity", 8),
        Column("problem", max(8, min(_KIND, max(map(len, kinds), default=0)))),
        Column("rank", max(4, max(map(len, ranks), default=0)), right=True),
        Column("step", max(4, max(map(len, steps), default=0)), right=True),
        Column("what was said", 0),
    ]
    rows = [
        Row(
            number,
            (
                Cell("first" if row.first else row.severity, "critical" if row.first else "muted"),
                Cell(kind, row.severity),
                Cell(rank),
                Cell(step),
                Cell(row.text),
            ),
        )
        for number, (row, kind, rank, step) in enumerate(
            zip(picture.problems, kinds, ranks, steps, strict=True)
        )
    ]
    return columns, rows


def log(lines: Sequence[tuple[int, bytes]], tail: Tail, wide: int, find: str) -> Table:
    """Lines of a log; those that were read as metrics stand out, and those searched for."""
    digits = max((len(f"{number}") for number, _ in lines), default=1)
    columns = [Column("line", max(4, digits), right=True), Column("text", max(4, wide))]
    return columns, [
        Row(
            number,
            (
                Cell(str(number) if tail.counted else "", "muted"),
                Cell(text, _role(number, text, tail.metrics, find)),
            ),
        )
        for number, text in ((n, line.decode("utf-8", "replace")) for n, line in lines)
    ]


def _role(number: int, text: str, metrics: frozenset[int], find: str) -> str:
    if find and find.casefold() in text.casefold():
        return "communication"
    return "compute" if number in metrics else ""


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
