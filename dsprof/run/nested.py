"""Spans and calls of one process: those of one path and step summed up, each in its parent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsprof.recording.told import Columns
from dsprof.run import spans
from dsprof.run.phases import first_present
from dsprof.run.table import places, runs
from dsprof.run.woven import Array, Part


def summed(rows: Sequence[Columns], paths: Sequence[str]) -> Part:
    """The phases of one process.

    Args:
        rows: of spans and of calls: `visit`, `word` (2 x path for a span, one more for a call),
            `seconds`, `count`, `line`, `file`.
        paths: of the words.

    Returns:
        Columns `word`, `parent` (a word or -1), `seconds`, `self_seconds`, `count`, `line`, `file`.
    """
    together = {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}
    visits, visit = places(together["visit"])
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
    tables = _tables([one for one in rows if len(one["visit"])])
    if tables is None:
        return None
    visits, table = tables
    known, first, of_path = np.unique(table["word"][0] // 2, return_index=True, return_inverse=True)
    place = {paths[code]: n for n, code in enumerate(known)}
    above = [[place[p] for p in spans.above(path) if p in place] for path in place]
    seconds, count = (_sums(table[name], of_path, len(known)) for name in ("seconds", "count"))
    own = seconds.copy()
    for child, parents in enumerate(above):
        if parents:
            own[:, parents[0]] -= seconds[:, child]
    if not (np.isfinite(seconds.sum()) and np.isfinite(count.sum())):
        return None
    word = table["word"][0][first].astype(_kind(paths))
    return Part(
        visits,
        np.full(len(visits), len(known)),
        {
            "word": word,
            "parent": np.array([word[p[0]] if p else -1 for p in above], word.dtype),
            "seconds": seconds.ravel(),
            "self_seconds": np.clip(own, 0.0, None).ravel(),
            "count": _once(count.astype(np.float32)),
            "line": table["line"][:, first].ravel(),
            "file": table["file"][:, first].ravel(),
        },
    )


def _once(table: Array) -> Array:
    """One row of it where all others hold the same, else all."""
    return np.asarray(table[0] if (table == table[0]).all() else table.ravel())


def _sums(table: Array, code: Array, width: int) -> Array:
    """Sums of the columns of each code."""
    found = np.zeros((len(table), width))
    for column, one in enumerate(code):
        found[:, one] += table[:, column]
    return found


def _tables(rows: Sequence[Columns]) -> tuple[Array, Columns] | None:
    """Visits, and columns as tables of a row a visit; None where visits hold different rows."""
    if not rows:
        return None
    visits = rows[0]["visit"][runs(rows[0]["visit"])]
    if (visits[1:] <= visits[:-1]).any() or any(len(one["visit"]) % len(visits) for one in rows):
        return None
    parts = [{name: one[name].reshape(len(visits), -1) for name in one} for one in rows]
    for part in parts:
        if (part["visit"] != visits[:, None]).any() or (part["word"] != part["word"][0]).any():
            return None
    return visits, {name: np.hstack([part[name] for part in parts]) for name in parts[0]}
