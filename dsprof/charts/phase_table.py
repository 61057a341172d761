"""Phases of every step as matrices: the mean over ranks, and the slowest rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsprof.charts.figure import Floats, Whole, ratio
from dsprof.charts.palette import MIXED
from dsprof.events import Class
from dsprof.run.steps.stretches import steps_of
from dsprof.run.table import numbers, where, whole


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Phases by step. Seconds are NaN where the source tells nothing.

    Attributes:
        names: names of the phases, parents before their children. [phases]
        parents: index of the parent, -1 for none. [phases]
        rows: the last row of each phase. [phases]
        seconds: mean over the ranks that report any phase of the step: one that lacks this phase
            spent no time in it. [steps, phases]
        slowest: the rank that took longest, -1 if none is known. [steps, phases]
        longest: its seconds. [steps, phases]
        told: all rows that the table is made of.
        last: position in `told` of the last row of a phase in a step, -1 for none. [steps, phases]
        count: number of rows of a phase in a step. [steps, phases]
    """

    names: list[str]
    parents: list[int]
    rows: pd.DataFrame
    seconds: Floats
    slowest: Whole
    longest: Floats
    told: pd.DataFrame
    last: Whole
    count: Whole

    @property
    def classes(self) -> list[str]:
        """Class of each phase's self time; `MIXED` if it holds several. [phases]"""
        words = self.rows["class"].astype("str").fillna("other")
        if "mixed" in self.rows:
            words = words.mask(self.rows["mixed"].astype(bool), MIXED)
        return [str(word) for word in words]

    @property
    def roots(self) -> list[int]:
        return [i for i, parent in enumerate(self.parents) if parent < 0]

    def mean(self, rows: slice | Whole = slice(None)) -> Floats:
        """Mean seconds per step and phase, over some rows of the matrices. [phases]

        Checkpoints are occasional, so their sum is divided by the number of all steps. Other timers
        may be sampled and then stand for the steps in between, so their sums are divided by the
        number of steps that have any.
        """
        part = self.seconds[rows]
        known = np.isfinite(part)
        rare = np.array([word == Class.CHECKPOINT for word in self.classes], dtype=bool)
        told = int(known[:, ~rare].any(axis=1).sum())
        over = np.where(rare, len(part), told)
        return np.asarray(np.where(known, part, 0.0).sum(axis=0) / np.maximum(over, 1))

    @property
    def shared(self) -> list[tuple[int, int]]:
        """Phases whose time two timers measure, as pairs (index of the first timer, index of the
        phase).

        `Run.phases` shows such a stretch once, as `a_in_b` inside b. The seconds of a include it,
        too, although neither its self time nor its children do. A call that is named after the
        phase it is in (`broadcast_in_step`) is no such stretch.
        """
        pairs = [
            (self.names.index(timer), i)
            for i, name in enumerate(self.names)
            for timer, found, _ in [name.partition("_in_")]
            if found and timer in self.names
        ]
        seconds, own = numbers(self.rows["seconds"]), numbers(self.rows["self_seconds"])
        parts = np.bincount(
            [p for p in self.parents if p >= 0],
            [s for s, p in zip(seconds, self.parents, strict=True) if p >= 0],
            len(seconds),
        )
        unexplained = seconds - own - parts
        return [(a, b) for a, b in pairs if unexplained[a] > 0.5 * seconds[b]]

    def drawn(self, totals: Floats) -> Floats:
        """Seconds to draw per phase; time that two timers measure counts only where it is shown.
        [phases]
        """
        once = totals.copy()
        for timer, phase in self.shared:
            above = timer
            while above >= 0:
                once[above] = max(0.0, once[above] - totals[phase])
                above = self.parents[above]
        return once

    def self_time(self, totals: Floats) -> Floats:
        """Seconds of each phase without its children and without time shown elsewhere. [phases]"""
        once = self.drawn(totals)
        own = once.copy()
        for child, parent in enumerate(self.parents):
            if parent >= 0:
                own[parent] -= once[child]
        return np.maximum(own, 0.0)


def phase_table(
    phases: pd.DataFrame, steps: pd.DataFrame, *, slowest: bool = True
) -> PhaseTable | None:
    """The phases of `steps` (of one engine); None if there are none.

    `slowest`: whether to fill `slowest` and `longest`, which takes more time.
    """
    phases = where(phases, phases["seconds"].notna())
    at = steps_of(steps, phases)
    if (at.place < 0).any():
        phases = where(phases, at.of_rows >= 0)
        at = steps_of(steps, phases)
    if not len(phases):
        return None
    name, parent = _narrow(phases["name"]), _narrow(phases["parent"])
    name_code, parent_code = at.once(name[0], parent[0])
    code, names, parents, last = _tree(name_code, name[1], parent_code, parent[1])
    shape, seconds = (len(steps), len(names)), numbers(phases["seconds"])
    longest, whose = np.full(shape, np.nan), np.full(shape, -1, dtype=np.int64)
    if slowest:
        of_rows = np.resize(code, len(phases))
        cell = at.of_rows * shape[1] + of_rows
        longest, whose = _longest(cell, seconds, whole(phases["rank"]), shape)
    count = at.sums(code, len(names)).astype(np.int64)
    over = np.where(count > 0, np.maximum(count, at.ranks(phases["rank"])[:, None]), 0)
    mean = ratio(at.sums(code, len(names), seconds).ravel(), over.ravel()).reshape(shape)
    rows = phases.iloc[len(phases) - len(code) + last]
    of_cell = at.lasts(code, len(names))
    return PhaseTable(names, parents, rows, mean, whose, longest, phases, of_cell, count)


def codes_of(column: pd.Series[Any]) -> tuple[Whole, list[str]]:
    """For each row of a column the index of its word, -1 for none; and the words."""
    codes, words = _narrow(column)
    return codes.astype(np.int64), words


def _narrow(column: pd.Series[Any]) -> tuple[np.ndarray[Any, np.dtype[Any]], list[str]]:
    """Like `codes_of`, but with the column's own, narrow integer type."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), [str(w) for w in column.cat.categories]
    found, words = pd.factorize(column)
    return np.asarray(found), [str(w) for w in words]


def _tree(
    name_code: Whole, name_words: list[str], parent_code: Whole, parent_words: list[str]
) -> tuple[Whole, list[str], list[int], Whole]:
    """The index of each row's phase; names, parents and last rows of the phases, parents first.

    A phase is a name together with its parent, because a name may occur below two parents.
    """
    width = len(parent_words) + 1
    pair = name_code.astype(np.int64) * width + parent_code + 1
    last = np.full(len(name_words) * width, -1, dtype=np.int64)
    last[pair] = np.arange(len(pair), dtype=np.int32)  # the last row of a phase wins
    distinct = np.flatnonzero(last >= 0)
    names = [name_words[p // width] for p in distinct]
    above = [parent_words[p % width - 1] if p % width else "" for p in distinct]
    parent_of = [
        names.index(w) if w in names and w != n else -1 for w, n in zip(above, names, strict=True)
    ]
    order = _parents_first(parent_of)
    position = np.argsort(order)
    code = np.zeros(len(last), dtype=np.int64)
    code[distinct] = position
    parents = [int(position[parent_of[i]]) if parent_of[i] >= 0 else -1 for i in order]
    return code[pair], [names[i] for i in order], parents, last[distinct[order]]


def _parents_first(parents: list[int]) -> list[int]:
    """The order. Of phases that lie inside each other, as damaged rows say, the first loses its
    parent.
    """
    order: list[int] = []

    def visit(parent: int) -> None:
        for child, above in enumerate(parents):
            if above == parent and child not in order:
                order.append(child)
                visit(child)

    visit(-1)
    for one in range(len(parents)):
        if one not in order:
            parents[one] = -1
            order.append(one)
            visit(one)
    return order


def _longest(
    cell: Whole, seconds: Floats, rank: Whole, shape: tuple[int, int]
) -> tuple[Floats, Whole]:
    size = shape[0] * shape[1]
    longest = np.full(size, -np.inf)
    np.maximum.at(longest, cell, seconds)
    holds = seconds == longest[cell]
    slowest = np.full(size, -1, dtype=np.int64)
    slowest[cell[holds]] = rank[holds]
    longest[np.isneginf(longest)] = np.nan
    return longest.reshape(shape), slowest.reshape(shape)
