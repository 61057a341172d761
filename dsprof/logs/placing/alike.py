"""Steps of files that tell none, from the file of another rank of the same launch.

DeepSpeed prints the number of a step on rank 0 alone; where each rank has a file of its own, the
others hold timers only, and their closing lines could but be counted. Ranks close the same steps:
as many closing lines, or the same times, tell which ones. Where neither does, the steps of such a
file are unknown: every count begins at 1, that of a file which began late as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from dsprof.grammar import Grammar
from dsprof.logs.columns.arrow import numbers, numpy_of
from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.kinds import NONE

_FEWEST: Final = 3  # closing lines whose times tell
_MOST: Final = 0.9  # of them, that must tell the same
_NEAR: Final = 0.25  # of a step, by which times may differ
_CLOCKS_DIFFER: Final = 1_000_000  # microseconds, clocks of hosts that are kept in step


@dataclass(slots=True)
class File:
    """What one file says of one launch: its closing lines, else its marks; those without a number
    only where they were counted.

    Attributes:
        marked: a line tells the number of its step.
        steps, times: of those lines, of the rank that has most of them.
    """

    marked: bool = False
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    times: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def with_steps_of_others(
    table: pa.Table, grammar: Grammar, *, counted: bool
) -> tuple[pa.Table, bool, tuple[str, ...]]:
    """The table with the steps of files that counted theirs; whether some are counted still; and
    the files whose steps are unknown."""
    chunks = _chunks(table) if counted else {}
    if len(chunks) < 2:
        return table, counted, ()
    ends, own, told = _kinds(grammar)
    bare = np.array([*(p.place == "own" for p in grammar.patterns), False]) & ~told
    files = {
        (source, segment): one
        for source, places in chunks.items()
        for segment, one in _files_of(table, places, ends, own, bare)
    }
    shifts, lost, left = shifts_of(files)
    steps = list(table["step"].chunks)
    for source, places in chunks.items():
        mine, gone = shifts[source], lost[source]
        for i in places if mine or gone else ():
            steps[i] = _moved(steps[i], _column(table, "segment", i), mine, gone,
                              told[_column(table, "pattern", i)])  # fmt: skip
    at = table.column_names.index("step")
    made = table.set_column(at, table.schema.field(at), pa.chunked_array(steps, pa.int64()))
    names = table["source"].chunk(0).dictionary
    return made, left, tuple(sorted(names[source].as_py() for source, gone in lost.items() if gone))


def _chunks(table: pa.Table) -> dict[int, list[int]]:
    """Parts of the table for each source; none is of two."""
    chunks: dict[int, list[int]] = {}
    for i, codes in enumerate(table["source"].chunks):
        if len(codes):
            chunks.setdefault(int(numpy_of(codes.indices)[0][0]), []).append(i)
    return chunks


def _kinds(grammar: Grammar) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which flavours close a step, which patterns mark one, and which of them name it; the last
    place is for rows of none."""
    ends = [t.place == "end" and t.sums != "once" for t in grammar.timers.values()]
    named = [p.regex is not None and "step" in p.regex.names for p in grammar.patterns]
    own = [
        p.place == "own" and is_named for p, is_named in zip(grammar.patterns, named, strict=True)
    ]
    return np.array([*ends, False]), np.array([*own, False]), np.array([*named, False])


def _column(table: pa.Table, name: str, chunk: int) -> np.ndarray:
    """Values or codes of a part of a column; -1 where null."""
    part = table[name].chunk(chunk)
    values, missing = numpy_of(part.indices if pa.types.is_dictionary(part.type) else part)
    return np.where(missing, NONE, values)


def _files_of(
    table: pa.Table, places: Sequence[int], ends: np.ndarray, own: np.ndarray, bare: np.ndarray
) -> Iterator[tuple[int, File]]:
    """What a file says of each launch that it holds."""
    names = ("segment", "step", "steps", "rank", "timers", "pattern", "record")
    rows = {n: np.concatenate([_column(table, n, i) for i in places]) for n in names}
    rows["at"] = np.concatenate([_times(table, i) for i in places])
    first = np.diff(rows["record"], prepend=NONE) != 0
    closes = first & ends[rows["timers"]] & (rows["step"] != NONE)
    marks = first & own[rows["pattern"]] & (rows["step"] > 0)
    unnumbered = first & bare[rows["pattern"]] & (rows["step"] > 0)
    for segment in np.unique(rows["segment"]).tolist():
        here = rows["segment"] == segment
        marked = bool((here & marks).any())
        mine = np.flatnonzero(here & (closes if (here & closes).any() else marks))
        if not len(mine) and (rows["steps"][here & unnumbered] == NONE).all():
            mine = np.flatnonzero(here & unnumbered)  # of a bar's numbers the distances are known
        if len(mine):
            ranks, which = np.unique(rows["rank"][mine], return_inverse=True)
            mine = mine[which == np.argmax(np.bincount(which, minlength=len(ranks)))]
        yield segment, File(marked, rows["step"][mine], rows["at"][mine])


def _times(table: pa.Table, chunk: int) -> np.ndarray:
    values, missing = numpy_of(table["at"].chunk(chunk).cast(pa.int64()))
    return np.where(missing, UNKNOWN, values)


def shifts_of(
    files: Mapping[tuple[int, int], File],
) -> tuple[defaultdict[int, dict[int, int]], defaultdict[int, list[int]], bool]:
    """By how much the counted steps of each source's launches move; those whose steps are
    unknown; and whether counted ones are left."""
    shifts: defaultdict[int, dict[int, int]] = defaultdict(dict)
    lost: defaultdict[int, list[int]] = defaultdict(list)
    left = False
    telling: defaultdict[int, list[File]] = defaultdict(list)
    for (_, segment), one in files.items():
        if one.marked and len(one.steps):
            telling[segment].append(one)
    for (source, segment), one in files.items():
        if one.marked or not len(one.steps):
            continue
        leading = telling[segment]
        told = (by for other in leading if (by := _between(one, other)) is not None)
        by = next(told, None)
        if by is not None:
            shifts[source][segment] = by
        elif leading:
            lost[source].append(segment)
        else:
            left = True
    return shifts, lost, left


def _between(one: File, other: File) -> int | None:
    """How many steps a file's count is behind what another file tells; None if that is unsure."""
    alike = _by_count(one, other)
    return _by_time(one, other) if alike is None else alike


def _by_count(one: File, other: File) -> int | None:
    """As many lines close the same steps."""
    if len(one.steps) != len(other.steps):
        return None
    apart = np.unique(other.steps - one.steps)
    return int(apart[0]) if len(apart) == 1 else None


def _by_time(one: File, other: File) -> int | None:
    """Lines of the same times close the same steps, if clocks cannot be a whole step apart, or
    both files begin with the same one."""
    here, there = (file.times != UNKNOWN for file in (one, other))
    order = np.argsort(other.times[there], kind="stable")
    times, steps = other.times[there][order], other.steps[there][order]
    if min(here.sum(), len(times)) < _FEWEST:
        return None
    mine = one.times[here]
    behind = np.clip(np.searchsorted(times, mine), 1, len(times) - 1)
    nearest = behind - (mine - times[behind - 1] < times[behind] - mine)
    apart, counts = np.unique(steps[nearest] - one.steps[here], return_counts=True)
    by = int(apart[np.argmax(counts)])
    agree = steps[nearest] - one.steps[here] == by
    passed = np.median(np.diff(times))
    off = np.abs(mine - times[nearest])[agree].max(initial=0)
    if agree.mean() < _MOST or off > _NEAR * passed:
        return None
    return by if passed >= _CLOCKS_DIFFER or by == other.steps[0] - one.steps[0] else None


def _moved(
    steps: pa.Array, segment: np.ndarray, by: dict[int, int], gone: Sequence[int], told: np.ndarray
) -> pa.Array:
    """Steps that were counted, moved or unknown; those that a line names itself stay."""
    values, missing = numpy_of(steps)
    values = values.copy()
    for one, distance in by.items():
        values[(segment == one) & ~told] += distance
    return numbers(values, missing | (np.isin(segment, gone) & ~told))
