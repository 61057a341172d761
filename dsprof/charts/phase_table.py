"""Phases of every step as one matrix: the mean over ranks, and the slowest rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.charts.figure import Floats, Whole


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

    def mean(self, first: int = 0, stop: int | None = None) -> Floats:
        """Seconds of one step per phase over a range of rows. [phases]"""
        part = self.seconds[first:stop]
        known = np.isfinite(part)
        told = np.maximum(known.any(axis=1).sum(), 1)
        return np.asarray(np.where(known, part, 0.0).sum(axis=0) / told)

    def self_time(self, totals: Floats) -> Floats:
        """What the children of every phase do not explain. [phases]"""
        own = totals.copy()
        for child, parent in enumerate(self.parents):
            if parent >= 0:
                own[parent] -= totals[child]
        return np.maximum(own, 0.0)


def phase_table(phases: pd.DataFrame, steps: pd.DataFrame) -> PhaseTable | None:
    """The phases of `steps` (one engine); None if there are none."""
    row = _rows_of(phases, steps)
    here = row >= 0
    if not here.any():
        return None
    phases, row = phases[here], row[here]
    code, names, parents, classes = _tree(phases)
    shape = (len(steps), len(names))
    cell = row * shape[1] + code
    seconds = phases["seconds"].to_numpy(dtype=float, na_value=np.nan)
    rank = phases["rank"].to_numpy(dtype=np.int64, na_value=-1)
    longest, slowest = _longest(cell, seconds, rank, shape)
    return PhaseTable(names, parents, classes, _mean(cell, seconds, shape), slowest, longest)


def _rows_of(phases: pd.DataFrame, steps: pd.DataFrame) -> Whole:
    """Position in `steps` of the step each phase belongs to, -1 if it is not there."""
    if steps.empty or phases.empty:
        return np.full(len(phases), -1, dtype=np.int64)
    have, want = _keys(steps), _keys(phases)
    order = np.argsort(have, kind="stable")
    place = np.minimum(np.searchsorted(have[order], want), len(have) - 1)
    found = order[place]
    return np.where(have[found] == want, found, -1)


def _keys(frame: pd.DataFrame) -> Whole:
    segment = frame["segment"].to_numpy(dtype=np.int64, na_value=0)
    engine = frame["engine"].to_numpy(dtype=np.int64, na_value=0)
    step = frame["step"].to_numpy(dtype=np.int64, na_value=-1)
    return np.asarray(((segment * 64 + engine) << 40) + step)


def _tree(phases: pd.DataFrame) -> tuple[Whole, list[str], list[int], list[str]]:
    """Code of every row, and the phases in an order that has parents first."""
    name_code, name_words = _factor(phases["name"])
    parent_code, parent_words = _factor(phases["parent"])
    pair = name_code * (len(parent_words) + 1) + parent_code + 1
    distinct, first, code = np.unique(pair, return_index=True, return_inverse=True)
    names = [name_words[p // (len(parent_words) + 1)] for p in distinct]
    above = [p % (len(parent_words) + 1) - 1 for p in distinct]
    parent_of = [names.index(parent_words[p]) if p >= 0 and parent_words[p] in names else -1 for p in above]
    parent_of = [-1 if p == i else p for i, p in enumerate(parent_of)]
    classes = [str(c) for c in phases["class"].to_numpy()[first]]
    order = _parents_first(parent_of)
    position = np.argsort(order)
    parents = [int(position[parent_of[i]]) if parent_of[i] >= 0 else -1 for i in order]
    return position[code], [names[i] for i in order], parents, [classes[i] for i in order]


def _factor(column: pd.Series[Any]) -> tuple[Whole, list[str]]:
    codes, words = pd.factorize(column)
    named = [str(w) for w in words]
    if "" in named:
        codes = np.where(codes == named.index(""), -1, codes)
    return codes.astype(np.int64), named


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
    known = np.isfinite(seconds)
    size = shape[0] * shape[1]
    total = np.bincount(cell[known], weights=seconds[known], minlength=size)
    count = np.bincount(cell[known], minlength=size)
    mean = np.divide(total, count, out=np.full(size, np.nan), where=count > 0)
    return mean.reshape(shape)


def _longest(
    cell: Whole, seconds: Floats, rank: Whole, shape: tuple[int, int]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    size = shape[0] * shape[1]
    longest = np.full(size, -np.inf)
    np.maximum.at(longest, cell, np.nan_to_num(seconds, nan=-np.inf))
    holds = seconds == longest[cell]
    slowest = np.full(size, -1, dtype=np.int64)
    slowest[cell[holds]] = rank[holds]
    longest[np.isneginf(longest)] = np.nan
    return longest.reshape(shape), slowest.reshape(shape)
