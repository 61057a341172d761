"""Phases of every step as one matrix: the mean over ranks, and the slowest rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsprof.charts.figure import Floats, Whole, ratio


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """`seconds[step, phase]`, NaN where the source says nothing.

    Attributes:
        names: of the phases; a parent stands before its children.
        parents: index of the parent, -1 for none.
        classes: class of a phase's self time.
        seconds: mean over the ranks that tell. [steps, phases]
        slowest: rank that took longest, -1 if none is known. [steps, phases]
        longest: its seconds. [steps, phases]
    """

    names: list[str]
    parents: list[int]
    classes: list[str]
    seconds: Floats
    slowest: Whole
    longest: Floats

    @property
    def roots(self) -> list[int]:
        return [i for i, parent in enumerate(self.parents) if parent < 0]

    def mean(self, rows: slice | Whole = slice(None)) -> Floats:
        """Seconds of one step per phase, over some rows. [phases]"""
        part = self.seconds[rows]
        known = np.isfinite(part)
        told = max(int(known.any(axis=1).sum()), 1)
        return np.asarray(np.where(known, part, 0.0).sum(axis=0) / told)

    def self_time(self, totals: Floats) -> Floats:
        """What the children of every phase do not explain. [phases]"""
        own = totals.copy()
        for child, parent in enumerate(self.parents):
            if parent >= 0:
                own[parent] -= totals[child]
        return np.maximum(own, 0.0)


def phase_table(
    phases: pd.DataFrame, steps: pd.DataFrame, *, slowest: bool = True
) -> PhaseTable | None:
    """The phases of `steps` (one engine); None if there are none.

    `slowest`: whether the slowest rank of every phase and step is wanted as well.
    """
    row = _rows_of(phases, steps)
    here = row >= 0
    if not here.any():
        return None
    code, names, parents, classes = _tree(phases)
    shape = (len(steps), len(names))
    seconds = phases["seconds"].to_numpy(dtype=float, na_value=np.nan)
    told = here & np.isfinite(seconds)
    everything = bool(told.all())
    cell = row * shape[1] + code
    cell, seconds = (cell, seconds) if everything else (cell[told], seconds[told])
    longest, whose = np.full(shape, np.nan), np.full(shape, -1, dtype=np.int64)
    if slowest:
        rank = phases["rank"].to_numpy(dtype=np.int64, na_value=-1)
        longest, whose = _longest(cell, seconds, rank if everything else rank[told], shape)
    return PhaseTable(names, parents, classes, _mean(cell, seconds, shape), whose, longest)


def codes_of(column: pd.Series[Any]) -> tuple[Whole, list[str]]:
    """Words of a column and which of them each row is, -1 for none."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = np.asarray(column.cat.codes, dtype=np.int64)
        return codes, [str(w) for w in column.cat.categories]
    found, words = pd.factorize(column)
    return np.asarray(found, dtype=np.int64), [str(w) for w in words]


def _rows_of(phases: pd.DataFrame, steps: pd.DataFrame) -> Whole:
    """Position in `steps` of the step each phase belongs to, -1 if it is not there."""
    if steps.empty or phases.empty:
        return np.full(len(phases), -1, dtype=np.int64)
    number = [f["step"].to_numpy(dtype=np.int64, na_value=-1) for f in (steps, phases)]
    launch = [_launch(f) for f in (steps, phases)]
    low, span = int(number[0].min()), int(np.ptp(number[0])) + 1
    launches = int(launch[0].max()) + 1
    place = np.full(launches * span + 1, -1, dtype=np.int64)  # the last one is for strangers
    place[launch[0] * span + number[0] - low] = np.arange(len(steps))
    known = (number[1] >= low) & (number[1] < low + span) & (launch[1] < launches)
    return place[np.where(known, launch[1] * span + number[1] - low, -1)]


def _launch(frame: pd.DataFrame) -> Whole:
    """A number for segment and engine together."""
    segment = frame["segment"].to_numpy(dtype=np.int64, na_value=0)
    engine = frame["engine"].to_numpy(dtype=np.int64, na_value=0)
    return np.asarray(segment * _ENGINES + engine)


_ENGINES = 16


def _tree(phases: pd.DataFrame) -> tuple[Whole, list[str], list[int], list[str]]:
    """Code of every row, and the phases in an order that has parents first.

    A phase is a name below a parent: the same word may stand below two of them.
    """
    name_code, name_words = codes_of(phases["name"])
    parent_code, parent_words = codes_of(phases["parent"])
    class_code, class_words = codes_of(phases["class"])
    width = len(parent_words) + 1
    pair = name_code * width + parent_code + 1
    distinct = np.flatnonzero(np.bincount(pair))
    class_of = np.full(len(name_words) * width, -1, dtype=np.int64)
    class_of[pair] = class_code
    names = [name_words[p // width] for p in distinct]
    above = [parent_words[p % width - 1] if p % width else "" for p in distinct]
    parent_of = [
        names.index(w) if w in names and w != n else -1 for w, n in zip(above, names, strict=True)
    ]
    classes = [class_words[c] if c >= 0 else "other" for c in class_of[distinct]]
    order = _parents_first(parent_of)
    position = np.argsort(order)
    code = np.zeros(len(class_of), dtype=np.int64)
    code[distinct] = position
    parents = [int(position[parent_of[i]]) if parent_of[i] >= 0 else -1 for i in order]
    return code[pair], [names[i] for i in order], parents, [classes[i] for i in order]


def _parents_first(parents: list[int]) -> list[int]:
    order: list[int] = []

    def visit(parent: int) -> None:
        for child, above in enumerate(parents):
            if above == parent and child not in order:
                order.append(child)
                visit(child)

    visit(-1)
    return order + [i for i in range(len(parents)) if i not in order]


def _mean(cell: Whole, seconds: Floats, shape: tuple[int, int]) -> Floats:
    size = shape[0] * shape[1]
    total = np.bincount(cell, weights=seconds, minlength=size)
    count = np.bincount(cell, minlength=size)
    return ratio(total, count).reshape(shape)


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
