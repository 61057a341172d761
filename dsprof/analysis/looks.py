"""Which code a recording saw the training thread in where phases do not tell what it does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.quotes import quoted
from dsprof.run.batches import COUNTABLE
from dsprof.run.table import Numbers, among, numbers, of_kind, where

AFTER: Final = "looks_after"  #: a metric: looks behind the end of a phase, where none is open
INSIDE: Final = "looks"  #: a metric: looks into a phase
BETWEEN: Final = " < "  #: from a frame to the one that called it
MOST: Final = (
    0.5  #: of all looks at a place, more of which what is named was seen at, beyond chance
)

#: Seconds of one pause whose looks count (`hook.looks`).
LOOKED_AT: Final = 1.0

_CHANCE: Final = 1.96  #: standard deviations that hold in 95 of 100 cases
_LONG: Final = 60  #: letters of a name that a sentence has room for
_DIGITS: Final = 10  #: of the number of a line
_MODULE: Final = "<module>"
#: PyTorch's loader itself, and its functions that wait for workers, whatever they call.
_LOADER: Final = "torch/utils/data/"
_WAITS: Final = ("_try_get_data", "_get_data")


@dataclass(frozen=True, slots=True)
class Code:
    """A function in which the training thread was seen at most looks at a place.

    Attributes:
        function: its name, with that of its class.
        file: where it is; of the job's own code, a path, else from its library's name on.
        line: the line of it that was seen most.
        caller: the innermost function of the job's own code that calls it, with its line; "" for
            one of these, and if only the script itself does, by way of a trainer perhaps.
        seen: looks at which the thread was in it.
        looks: all looks at the place.
        row: the event that counts most of those.
    """

    function: str
    file: str
    line: int
    caller: str
    seen: int
    looks: int
    row: pd.Series[Any]

    @property
    def name(self) -> str:
        """As a title has it: what its reader may know."""
        return self.caller or _told(_Frame(self.function, self.file, self.line))

    @property
    def stack(self) -> str:
        """Its calls, the innermost first, as the row of most looks has them."""
        return str(self.row["text"])

    @property
    def seen_there(self) -> int:
        """Looks of that row."""
        return int(self.row["count"])

    @property
    def often(self) -> str:
        many = f"{self.seen:,} of {self.looks:,}"
        return f"all {self.looks:,}" if self.seen == self.looks else many


@dataclass(frozen=True, slots=True)
class _Frame:
    function: str
    file: str
    line: int

    @property
    def is_own(self) -> bool:
        return self.file.startswith(("/", "./"))


def code_at(
    told: pd.DataFrame,
    phase: str = "",
    *,
    inside: bool = False,
    ranks: Sequence[int] = (),
    since: pd.Timestamp | None = None,
) -> Code | None:
    """The innermost function in which the training thread was at more than half of the looks at a
    place; None if there is none, or chance may have made it seem so.

    Args:
        told: `Run.told`.
        phase: behind whose end, or `inside` of which; of any phase if that is "".
        ranks: of these alone.
        since: only what was seen later.
    """
    rows = of_kind(told, "metric", INSIDE if inside else AFTER)
    if phase:
        rows = where(rows, among(rows["raw"], [f"{phase}/{INSIDE if inside else AFTER}"]))
    elif inside:  # of others than those of data only how often
        rows = where(rows, among(rows["raw"], set(rows["raw"][rows["text"].notna()])))
    if ranks:
        rows = where(rows, rows["rank"].isin(ranks))
    if since is not None:
        rows = where(rows, rows["at"] > since)
    if rows.empty:
        return None
    return _most(rows)


def share_after(told: pd.DataFrame, phase: str = "", ranks: Sequence[int] = ()) -> float:
    """The part of all looks that found no phase open, behind the end of one, or of any: how much of
    its time the host spends there. NaN where nobody looked.
    """
    rows = of_kind(told, "metric", INSIDE, AFTER)
    if ranks:
        rows = where(rows, rows["rank"].isin(ranks))
    counts = _counts(rows)
    there = among(rows["raw"], [f"{phase}/{AFTER}"]) if phase else among(rows["name"], [AFTER])
    return float(counts[there].sum() / counts.sum()) if counts.any() else math.nan


def _counts(rows: pd.DataFrame) -> Numbers:
    counts = numbers(rows["count"])
    return np.where((counts >= 1) & (counts < COUNTABLE), counts, 0.0)


def _most(rows: pd.DataFrame) -> Code | None:
    counts = _counts(rows)
    stacks = [list(_frames(text)) for text in rows["text"].astype("object")]
    looks = int(counts.sum())
    if not looks:
        return None
    chosen = _innermost(stacks, counts, looks, by_line=True) or _innermost(
        stacks, counts, looks, by_line=False
    )
    if chosen is None:
        return None
    held = [any(_same(one, chosen) for one in stack) for stack in stacks]
    lines: Counter[tuple[int, str]] = Counter()
    for stack, count, mine in zip(stacks, counts, held, strict=True):
        if mine:
            place = next(i for i, one in enumerate(stack) if _same(one, chosen))
            caller = (
                "" if chosen.is_own else next(map(_told, filter(_may_be_known, stack[place:])), "")
            )
            lines[stack[place].line, caller] += int(count)
    ((line, caller), _), *_ = lines.most_common(1)
    seen = counts * held
    return Code(
        chosen.function, chosen.file, line, caller, int(seen.sum()), looks,
        rows.iloc[int(seen.argmax())],
    )  # fmt: skip


def _innermost(
    stacks: Sequence[Sequence[_Frame]], counts: Any, looks: int, *, by_line: bool
) -> _Frame | None:
    """The frame, or function, seen at most looks, that is nearest to what runs.

    What only calls all the rest, the script itself, says nothing unless it runs by itself.
    """
    seen: Counter[Any] = Counter()
    depth: Counter[Any] = Counter()
    first: dict[Any, _Frame] = {}
    for stack, count in zip(stacks, counts, strict=True):
        met = set()
        for place, frame in list(enumerate(stack))[_waiting(stack) :]:
            key = frame if by_line else (frame.function, frame.file)
            if key in met or _says_nothing(frame, place):
                continue
            met.add(key)
            first.setdefault(key, frame)
            seen[key] += int(count)
            depth[key] += int(count) * place
    often = [key for key, count in seen.items() if _at_least(count, looks) > MOST]
    return first[min(often, key=lambda key: depth[key] / seen[key])] if often else None


def _waiting(stack: Sequence[_Frame]) -> int:
    """How many of the innermost frames are those of a loader that waits for its workers."""
    waits = [frame.function.rpartition(".")[2] in _WAITS and _is_loader(frame) for frame in stack]
    return max((place for place, one in enumerate(waits, 1) if one), default=0)


def _says_nothing(frame: _Frame, place: int) -> bool:
    return (place > 0 and frame.function == _MODULE) or _is_loader(frame)


def _is_loader(frame: _Frame) -> bool:
    return frame.file.startswith(_LOADER)


def _at_least(count: int, total: int) -> float:
    """The share that such a count shows at least, with 95 % (Wilson's interval)."""
    share, z = count / total, _CHANCE**2 / total
    margin = _CHANCE * math.sqrt(share * (1 - share) / total + z / 4 / total)
    return (share + z / 2 - margin) / (1 + z)


def _frames(text: Any) -> Iterator[_Frame]:
    """The frames of a stack, the innermost first; none if it was not kept."""
    for one in text.split(BETWEEN) if isinstance(text, str) else ():
        function, _, place = one.rpartition(" ") if " " in one else ("", "", "")
        file, _, line = place.rpartition(":")
        if function and file and line.isdecimal() and len(line) < _DIGITS:
            yield _Frame(function, file, int(line))


def _same(one: _Frame, other: _Frame) -> bool:
    return (one.function, one.file) == (other.function, other.file)


def _may_be_known(frame: _Frame) -> bool:
    return frame.is_own and frame.function != _MODULE


def _told(frame: _Frame) -> str:
    file = frame.file.rpartition("/")[2] if frame.is_own else frame.file
    return f"{quoted(frame.function, _LONG)} ({quoted(file, _LONG)}:{frame.line})"
