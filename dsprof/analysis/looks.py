"""Which code a recording saw the training thread in where phases do not tell what it does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.recording.frames import Frame, frames_of
from dsprof.run.steps.batches import COUNTABLE
from dsprof.run.table import Numbers, among, numbers, of_kind, where

AFTER: Final = "looks_after"  #: a metric: looks behind the end of a phase, where none is open
INSIDE: Final = "looks"  #: a metric: looks into a phase
MOST: Final = (
    0.5  #: of all looks at a place, more of which what is named was seen at, beyond chance
)

_CHANCE: Final = 1.96  #: standard deviations that hold in 95 of 100 cases
#: PyTorch's loader itself, and its functions that wait for workers, whatever they call.
_LOADER: Final = "torch/utils/data/"
_WAITS: Final = ("_try_get_data", "_get_data")


@dataclass(frozen=True, slots=True)
class Code:
    """A function in which the training thread was seen at most looks at a place.

    Attributes:
        function: its name, with that of its class.
        file: where it is; of the job's own code, a path, else from its library's name on.
        line: the line of it that was seen at most looks, too; 0 if none was, and in libraries.
        caller: the function of the job's own that called it at most looks; "" if several did.
        seen: looks at which the thread was in it.
        unknown: those that came late, and saw nothing.
        looks: all looks at the place.
        row: the event that counts most of those.
    """

    function: str
    file: str
    line: int
    caller: str
    seen: int
    unknown: int
    looks: int
    row: pd.Series[Any]

    @property
    def name(self) -> str:
        """As a title has it."""
        return Frame(self.function, self.file, self.line).told

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


def code_at(
    told: pd.DataFrame,
    phase: str = "",
    *,
    inside: bool = False,
    ranks: Sequence[int] = (),
    since: pd.Timestamp | None = None,
) -> Code | None:
    """The innermost function in which the training thread was at more than half of the looks at a
    place; None if there is none, or chance may have made it seem so. Looks that came late, and saw
    nothing, are looks, too.

    Args:
        told: `Run.told`.
        phase: behind whose end, or `inside` of which; of any phase if that is "".
        ranks: of these alone.
        since: only what was told then or later.
    """
    rows = of_kind(told, "metric", INSIDE if inside else AFTER)
    if phase:
        rows = where(rows, among(rows["raw"], [f"{phase}/{INSIDE if inside else AFTER}"]))
    elif inside:  # of others than those of data only how often
        rows = where(rows, among(rows["raw"], set(rows["raw"][rows["text"].notna()])))
    if ranks:
        rows = where(rows, rows["rank"].isin(ranks))
    if since is not None:
        rows = where(rows, rows["at"] >= since)
    return None if rows.empty else _most(rows)


def share_of_looks(
    told: pd.DataFrame, phase: str = "", *, inside: bool = False, ranks: Sequence[int] = ()
) -> float:
    """The part of all looks, of some ranks or all, that found the thread behind the end of a phase
    or `inside` it, or of any: how much of its time the host spends there. NaN where nobody looked.
    """
    rows = of_kind(told, "metric", INSIDE, AFTER)
    if ranks:
        rows = where(rows, rows["rank"].isin(ranks))
    counts, name = _counts(rows), INSIDE if inside else AFTER
    there = among(rows["raw"], [f"{phase}/{name}"]) if phase else among(rows["name"], [name])
    return float(counts[there].sum() / counts.sum()) if counts.any() else math.nan


def _counts(rows: pd.DataFrame) -> Numbers:
    counts = numbers(rows["count"])
    return np.where((counts >= 1) & (counts < COUNTABLE), counts, 0.0)


def _most(rows: pd.DataFrame) -> Code | None:
    counts = _counts(rows)
    stacks = [frames_of(text) for text in rows["text"].astype("object")]
    looks = int(counts.sum())
    key = _innermost(stacks, counts, looks) if looks else None
    if key is None:
        return None
    lines: Counter[int] = Counter()
    callers: Counter[str] = Counter()
    seen = np.zeros(len(counts))
    for row, (stack, count) in enumerate(zip(stacks, counts, strict=True)):
        place = next((n for n, one in enumerate(stack) if one[:2] == key), None)
        if place is not None:
            seen[row] = count
            lines[stack[place].line] += int(count)
            callers[next((one.told for one in stack[place + 1 :] if _is_known(one)), "")] += int(
                count
            )
    total = int(seen.sum())
    line = next((one for one, many in lines.items() if _at_least(many, total) > MOST), 0)
    caller = next((one for one, many in callers.items() if _at_least(many, total) > MOST), "")
    unknown = int(counts[rows["text"].isna()].sum())
    return Code(*key, line, caller, total, unknown, looks, rows.iloc[int(seen.argmax())])


def _innermost(
    stacks: Sequence[Sequence[Frame]], counts: Numbers, looks: int
) -> tuple[str, str] | None:
    """The function seen at most looks that is nearest to what runs."""
    seen: Counter[tuple[str, str]] = Counter()
    depth: Counter[tuple[str, str]] = Counter()
    for stack, count in zip(stacks, counts, strict=True):
        met = set()
        for place, frame in list(enumerate(stack))[_waiting(stack) :]:
            key = frame[:2]
            if key not in met and not _is_loader(frame) and not (place and frame.is_script):
                met.add(key)
                seen[key] += int(count)
                depth[key] += int(count) * place
    often = [key for key, count in seen.items() if _at_least(count, looks) > MOST]
    return min(often, key=lambda key: depth[key] / seen[key]) if often else None


def _waiting(stack: Sequence[Frame]) -> int:
    """How many of the innermost frames are those of a loader that waits for its workers."""
    waits = [frame.function.rpartition(".")[2] in _WAITS and _is_loader(frame) for frame in stack]
    return max((place for place, one in enumerate(waits, 1) if one), default=0)


def _is_known(frame: Frame) -> bool:
    return frame.is_own and not frame.is_script


def _is_loader(frame: Frame) -> bool:
    return frame.file.startswith(_LOADER)


def _at_least(count: int, total: int) -> float:
    """The share that such a count shows at least, with 95 % (Wilson's interval)."""
    share, z = count / total, _CHANCE**2 / total
    margin = _CHANCE * math.sqrt(share * (1 - share) / total + z / 4 / total)
    return (share + z / 2 - margin) / (1 + z)
