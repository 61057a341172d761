"""Lines that a log holds several times over: two handlers of one logger, copies one behind another.

Read as they stand, they would be engines that take turns, or launches that never were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.kinds import Source
from dsprof.logs.scanning.rows import MEASURES, Rows

_MOST: Final = 0.9  #: of the marks and of the timer lines, that must have their like
_FEWEST: Final = 4  #: marks, of which so much is seen

#: Of a record; with its rows they tell it from any other.
_TOLD: Final = ("pattern", "step", "rank", "host", "signature", "at")

_MISSING: Final = np.full(1, np.nan)  # a measure that no row of a batch has
_NO_TEXT: Final = np.full(1, -1)

Flags = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.uint64]


def doubled(source: Source, own: Flags, batches: Sequence[Rows]) -> Flags:
    """Which records only say again what another one said.

    Nearly every mark of a step stands there as often, number by number, those that have a time
    with the same one, and so do the timer lines. Without either time or timers two launches may
    say the same. Hardly two timer lines say the same by chance, so where nothing marks a step they
    tell alone.

    Args:
        own: which records mark a step.
        batches: the rows of all records.
    """
    none = np.zeros(len(own), bool)
    timers = np.flatnonzero(source.signature >= 0)
    marks = np.flatnonzero(own) if own.any() else timers
    stamped = (source.at[marks] != UNKNOWN).sum() >= _FEWEST
    if len(marks) < _FEWEST or not (stamped or len(timers)):
        return none
    if _stand_alone(_of_records(source, marks)):
        return none  # whatever their rows say
    said = _of_records(source, slice(None)) + _of_rows(batches, len(own))
    if _stand_alone(said[marks]):
        return none
    which, size = _like(said)
    times = int(np.median(size[which[marks]]))
    exact, alike = size[which] == times, size[which] % times == 0
    told = (exact[marks], alike[timers])  # timers of few digits may read the same more often
    few = not own.any() and len(np.unique(which[marks])) < _FEWEST  # as those that read 0 each time
    few |= 2 * exact[timers].sum() < len(timers)  # others repeat within a printing
    if times < 2 or few or any(some.mean() < _MOST for some in told if len(some)):
        return none
    turn = _turn(which, size, times, beside=_stand_beside(which[marks]))
    again: Flags = alike & (turn > 0)
    return again


def _stand_alone(marks: Marks) -> bool:
    """Whether too many have no like for all to be there several times."""
    ordered = np.sort(marks)
    like = np.concatenate([[False], ordered[1:] == ordered[:-1], [False]])
    return bool((~like[1:] & ~like[:-1]).mean() > 1 - _MOST)


def _like(said: Marks) -> tuple[np.ndarray, np.ndarray]:
    """A number for each, the same for like ones, and how many are like the first, second, ..."""
    _, which, size = np.unique(said, return_inverse=True, return_counts=True)
    return which, size


def _stand_beside(marks: np.ndarray) -> bool:
    """Whether like marks follow each other, and no copy of all of them."""
    return bool((np.diff(marks) == 0).mean() > 1 - _MOST)


def _turn(which: np.ndarray, size: np.ndarray, times: int, *, beside: bool) -> np.ndarray:
    """Which of the `times` printings of the log each record is of."""
    order = np.argsort(which, kind="stable")
    first = np.cumsum(size) - size
    nth = np.empty(len(which), np.int64)
    nth[order] = np.arange(len(which)) - first[which[order]]
    turn: np.ndarray = nth % times if beside else nth // np.maximum(size[which] // times, 1)
    return turn


def _of_records(source: Source, places: np.ndarray | slice) -> Marks:
    return _told(np.asarray(getattr(source, name))[places].astype(np.int64) for name in _TOLD)


def _of_rows(batches: Sequence[Rows], count: int) -> Marks:
    """A number a record that is the same for those of the same rows."""
    total = np.zeros(count, np.uint64)
    for rows in batches:
        text = _NO_TEXT if rows.text is None else rows.text.astype(np.int64)
        measures = (rows.measures.get(name, _MISSING) for name in MEASURES)
        np.add.at(total, rows.record, _told([rows.key.astype(np.int64), text, *measures]))
    return total


def _told(columns: Iterable[np.ndarray]) -> Marks:
    """One number for what columns of 8 bytes hold side by side: other values, another number."""
    total = np.zeros(1, np.uint64)
    for column, weight in zip(columns, _WEIGHTS, strict=False):
        total = total + column.view(np.uint64) * weight
    return _mixed(total)


def _mixed(numbers: Marks) -> Marks:
    """Spreads each number over all 64 bits (the finaliser of splitmix64, Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


#: Odd, so that no bit of what they are multiplied with is lost.
_WEIGHTS: Final = _mixed(np.arange(1, 10, dtype=np.uint64)) | np.uint64(1)
