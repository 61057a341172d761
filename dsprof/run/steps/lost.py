"""Timer lines that a step lacks although most steps of its rank have one: lost, not zero.

A line may be gone whole: torn by another process, or dropped on its way. Its timers lie inside
those of other lines (`optimizer_allgather` in `step`), which then would seem to have no parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.logs.columns.codes import groups_of
from dsprof.run.steps.words import Word
from dsprof.run.table import Codes, Numbers, keys, known_rank, numbers, whole

#: Part of a rank's steps, from the first one that shows a timer on, that must show it.
USUAL: Final = 0.5

Flags = npt.NDArray[np.bool_]


def lost_lines(
    rows: pd.DataFrame, words: Sequence[Word], which: Codes, span: Codes
) -> tuple[Codes, Codes]:
    """A row of each step that lacks a line, and a timer that the line would hold: parallel.

    Args:
        rows: timers; `which` of `words` each is.
        span: segment, engine, step and rank of each row as one code that rises with the step.
    """
    who = keys(known_rank(rows), "segment", "engine", "rank")
    flavour, seconds = whole(rows["timers"]), numbers(rows["seconds"])
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for mine in groups_of(who):
        one = _Rank(words, which[mine], flavour[mine], seconds[mine], span[mine])
        found += [(mine[place], word) for place, word in one.lost()]
    place, word = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return place, word


class _Rank:
    """Timers of one rank, segment and engine."""

    def __init__(
        self, words: Sequence[Word], which: Codes, flavour: Codes, seconds: Numbers, span: Codes
    ) -> None:
        self.words, self.which, self.flavour, self.seconds = words, which, flavour, seconds
        self.spans, self.first, self.step = np.unique(span, return_index=True, return_inverse=True)

    def lost(self) -> list[tuple[Codes, Codes]]:
        found = []
        for one in np.unique(self.flavour[self.flavour >= 0]):
            lines = self.flavour == one
            has = np.bincount(self.step[lines], minlength=len(self.spans)) > 0
            later = np.arange(len(has)) >= has.argmax()
            if has[later].all() or has[later].mean() < USUAL:
                continue
            held = np.flatnonzero(np.bincount(self.which[lines]) >= USUAL * has.sum())
            lost = np.flatnonzero(later & ~has & ~self._shorter(lines, held, has))
            found.append((np.repeat(self.first[lost], len(held)), np.tile(held, len(lost))))
        return found

    def _shorter(self, lines: Flags, held: Codes, has: Flags) -> Flags:
        """Steps in which the timer around such lines is as much shorter as what they time: the
        optimizer prints none of a step that it skips."""
        inside = {self.words[w].name for w in held}
        outer = [w for w in held if not inside & {*self.words[w].parents}]
        around = self._around([parent for w in outer for parent in self.words[w].parents])
        if around is None:
            return np.zeros(len(has), bool)
        total, parts = self._total(around), self._total(lines & np.isin(self.which, outer))
        shorter: Flags = total <= np.median(total[has]) - np.median(parts[has]) / 2
        return shorter

    def _around(self, parents: Sequence[str]) -> Flags | None:
        """Rows of the first of `parents` that there is, in its best spelling."""
        for parent in parents:
            named = [w for w, word in enumerate(self.words) if word.name == parent]
            rows = np.isin(self.which, named)
            if rows.any():
                best = min(self.words[w].spelling for w in np.unique(self.which[rows]))
                return rows & np.isin(
                    self.which, [w for w in named if self.words[w].spelling == best]
                )
        return None

    def _total(self, rows: Flags) -> Numbers:
        total = np.bincount(self.step[rows], self.seconds[rows], len(self.spans))
        return np.asarray(total, np.float64)
