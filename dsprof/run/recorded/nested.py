"""Spans and calls of one process: those of one path and step summed up, each in its parent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsprof.recording.table import distinct
from dsprof.recording.told import Columns
from dsprof.run.recorded import spans
from dsprof.run.recorded.woven import Array, Part, Table, visits_of
from dsprof.run.steps.phases import first_present
from dsprof.run.table import places, runs


def summed(rows: Sequence[Columns], paths: Sequence[str]) -> Part:
    """The phases of one process.

    Args:
        rows: of spans and of calls: `engine`, `step`, `word` (2 x path for a span, one more for a
            call), `seconds`, `count`, `line`, `file`.
        paths: of the words.

    Returns:
        Columns `word`, `parent` (a word or -1), `seconds`, `self_seconds`, `count`, `line`, `file`.
    """
    together = {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}
    visits, visit = places(visits_of(together))
    known, path = places(together["word"] // 2)
    width = max(len(known), 1)
    timer, group = _grouped(visit * width + path, len(visits) * width)
    first = np.empty(len(timer), np.int64)
    first[group[::-1]] = np.arange(len(group) - 1, -1, -1)
    seconds, count = (
        np.bincount(group, together[name], len(timer)) for name in ("seconds", "count")
    )
    word = together["word"][first]
    above = [spans.above(paths[code]) for code in known]
    place = first_present(timer, timer % width, above, {paths[c]: i for i, c in enumerate(known)})
    inside = place >= 0
    explained = np.bincount(place[inside], seconds[inside], minlength=len(word))
    heads = runs(timer // width)
    return Part(
        visits[timer[heads] // width],
        np.diff(heads, append=len(timer)),
        {
            "word": word.astype(_kind(paths)),
            "parent": np.where(inside, word[place], -1).astype(_kind(paths)),
            "seconds": seconds,
            "self_seconds": np.clip(seconds - explained, 0.0, None),
            "count": count.astype(np.float32),
            "line": together["line"][first],
            "file": together["file"][first],
        },
    )


def _grouped(key: Array, size: int) -> tuple[Array, Array]:
    """Each key once, in order, and which of them every row is. Keys are less than `size`."""
    if size > 8 * len(key):
        found, group = np.unique(key, return_inverse=True)
        return found, group
    met = np.zeros(size, bool)
    met[key] = True
    found = np.flatnonzero(met)
    return found, key if len(found) == size else (np.cumsum(met) - 1)[key]


def _kind(paths: Sequence[str]) -> type[np.int16 | np.int32]:
    return np.int16 if len(paths) < 1 << 14 else np.int32


def alike(rows: Sequence[Columns], paths: Sequence[str]) -> Part | None:
    """The same of a process that recorded the same rows in every step, much quicker; else None."""
    there = [one for one in rows if len(one["step"])]
    visits = _visits(there)
    if visits is None:
        return None
    columns = {
        name: [column for one in there for column in one[name].reshape(len(visits), -1).T]
        for name in ("word", "seconds", "count", "line", "file")
    }
    word = np.array([column[0] for column in columns["word"]], _kind(paths))
    known, first, of_path = np.unique(word // 2, return_index=True, return_inverse=True)
    place = {paths[code]: n for n, code in enumerate(known)}
    above = [[place[p] for p in spans.above(path) if p in place][:1] for path in place]
    counts = _sums(columns["count"], of_path)
    if not all(np.isfinite(one[name].sum()) for one in there for name in ("seconds", "count")):
        return None
    seconds = _sums(columns["seconds"], of_path)

    def own(some: slice) -> Array:
        inside = seconds.of(some)
        left = inside.copy()
        for child, parents in enumerate(above):
            for parent in parents:
                left[:, parent] -= inside[:, child]
        return np.clip(left, 0.0, None)

    constant = all((column == column[0]).all() for column in columns["count"])
    count = counts.of(slice(0, 1) if constant else slice(None)).astype(np.float32)
    return Part(
        visits,
        np.full(len(visits), len(known)),
        {
            "word": word[first],
            "parent": np.array([word[first][p[0]] if p else -1 for p in above], word.dtype),
            "seconds": seconds,
            "self_seconds": Table(seconds.dtype, seconds.among, own),
            "count": count.ravel(),
            "line": _beside([columns["line"][n] for n in first]),
            "file": _beside([columns["file"][n] for n in first], codes=True),
        },
    )


def _visits(rows: Sequence[Columns]) -> Array | None:
    """The visits, where all hold the same rows, else None."""
    found = None
    for one in rows:
        engine, step, word = one["engine"], one["step"], one["word"]
        width = int(((step != step[0]) | (engine != engine[0])).argmax()) or len(step)
        if len(step) % width:
            return None
        engine, step, word = (column.reshape(-1, width) for column in (engine, step, word))
        if any((column != column[:, :1]).any() for column in (engine, step)):
            return None
        visits = visits_of({"engine": engine[:, 0], "step": step[:, 0]})
        found = visits if found is None else found
        if (word != word[0]).any() or not np.array_equal(visits, found):
            return None
    return None if found is None or (found[1:] <= found[:-1]).any() else found


def _sums(columns: Sequence[Array], code: Array) -> Table:
    """Sums of the columns of each code."""
    width = int(code.max()) + 1

    def sums(some: slice) -> Array:
        found = np.zeros((len(columns[0][some]), width))
        for column, one in zip(columns, code.tolist(), strict=True):
            found[:, one] += column[some]
        return found

    return Table(np.dtype(float), np.empty(0), sums)


def _beside(columns: Sequence[Array], *, codes: bool = False) -> Table:
    """Columns as they are."""

    def beside(some: slice) -> Array:
        found = np.empty((len(columns[0][some]), len(columns)), columns[0].dtype)
        for n, column in enumerate(columns):
            found[:, n] = column[some]
        return found

    among = [distinct(column) for column in columns if codes]
    return Table(columns[0].dtype, np.concatenate([*among, columns[0][:0]]), beside)
