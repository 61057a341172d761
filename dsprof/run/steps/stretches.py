"""Rows of one step that stand together, and sums over them.

Recordings tell hundreds of rows a step, and mostly the same ones in every step: then a sum over
those of each step is a product with a small matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.run.table import STEP, Codes, Numbers, plain, stretches, visits


@dataclass(frozen=True)
class Stretches:
    """Rows in stretches, each of a row of some table.

    Attributes:
        heads: where each stretch begins.
        place: row of the table that it belongs to, -1 for none.
        rows: how many rows all stretches have.
        size: rows of the table.
    """

    heads: Codes
    place: Codes
    rows: int
    size: int

    @cached_property
    def lengths(self) -> Codes:
        return np.diff(self.heads, append=self.rows)

    @cached_property
    def of_rows(self) -> Codes:
        """Row of the table for each row, -1 for none."""
        return np.repeat(self.place, self.lengths)

    def once(self, *columns: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """The columns in one stretch alone where all others hold the same, else in all rows."""
        if all(map(self._alike, columns)):
            return [column[: self._even] for column in columns]
        return list(columns)

    def sums(self, code: npt.NDArray[Any], width: int, values: Numbers | None = None) -> Numbers:
        """Sums of `values`, or numbers of rows, by row of the table and code. [size, width]

        Args:
            code: of each row, or of those of one stretch (see `once`), less than `width`; rows of
                -1 are left out.
        """
        found = np.zeros((self.size + 1, width + 1))  # behind the last ones: what is left out
        alike = 0 < len(code) == self._even
        if alike and (values is None or bool(np.isfinite(values.sum()))):
            matrix = np.zeros((len(code), width + 1))
            matrix[np.arange(len(code)), code] = 1.0
            each = matrix.sum(axis=0) if values is None else values.reshape(-1, len(code)) @ matrix
            found[self.place] = each
        else:
            code = np.tile(code, len(self.heads)) if alike else code
            cell = self.of_rows % len(found) * (width + 1) + code % (width + 1)
            found = np.bincount(cell, values, found.size).reshape(found.shape).astype(float)
        return found[:-1, :-1]

    def lasts(self, code: npt.NDArray[Any], width: int) -> Codes:
        """Position of the last row by row of the table and code, -1 for none. [size, width]"""
        found = np.full((self.size + 1, width + 1), -1)
        if 0 < len(code) == self._even:
            last = np.full(width + 1, -1)
            last[code] = np.arange(len(code))
            found[self.place] = np.where(last < 0, -1, self.heads[:, None] + last)
        else:
            found[self.of_rows, code] = np.arange(self.rows)  # of the rows of a cell the last stays
        return found[:-1, :-1]

    def ranks(self, column: pd.Series[Any]) -> Numbers:
        """How many ranks the rows of each row of the table are of. [size]"""
        (rank,) = self.once(plain(column))
        if 0 < len(rank) == self._even:
            found = np.zeros(self.size + 1)
            found[self.place] = max(1, len(np.unique(rank[rank >= 0])))
            return found[:-1]
        place = visits(self.of_rows, rank)
        return np.bincount(place[place >= 0], minlength=self.size).astype(float)

    @cached_property
    def _even(self) -> int:
        """Rows of each stretch; 0 where they differ, or several are of one row of the table."""
        alike = len(self.lengths) > 0 and bool((self.lengths == self.lengths[0]).all())
        alone = bool((np.bincount(self.place + 1, minlength=1)[1:] < 2).all())
        return int(self.lengths[0]) if alike and alone else 0

    def _alike(self, column: npt.NDArray[Any]) -> bool:
        """Whether a column holds the same in every stretch."""
        if not self._even:
            return False
        return bool((column.reshape(-1, self._even) == column[: self._even]).all())


def steps_of(table: pd.DataFrame, rows: pd.DataFrame) -> Stretches:
    """Rows by the step of `table` (sorted, each once) that they are of."""
    return Stretches(*stretches(table, rows, *STEP), len(rows), len(table))
