"""Which lines prove a number that many lines give together."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.charts.figure import Floats, Whole
from dsprof.page.model import Among, Place

SHOWN: Final = 36  #: lines shown of a mean: the first, the longest and the last, a third each
_ENDS: Final = SHOWN // 3


def among(rows: pd.DataFrame, measure: str = "seconds", of: int | None = None) -> Among | None:
    """The lines of `rows` in their order; of many the first, the largest and the last.

    Args:
        rows: with `source`, `line` and the measure.
        of: how many numbers they stand for, if not one each.
    """
    size = rows[measure].to_numpy(dtype=float, na_value=np.nan)
    told = np.flatnonzero(rows["line"].notna() & rows["source"].notna() & np.isfinite(size))
    return among_at(rows, told, size[told], of)


def among_at(rows: pd.DataFrame, at: Whole, size: Floats, of: int | None = None) -> Among | None:
    """The same of the rows at some positions, whose numbers are `size`."""
    if not len(at):
        return None
    chosen = chosen_of(size)
    shown = rows[["source", "line"]].iloc[at[list(chosen)]]
    lines = [
        (word, place)
        for word, source, line in zip(chosen.values(), shown["source"], shown["line"], strict=True)
        for place in [Place.of(source, line)]
        if place
    ]
    return Among(tuple(lines), len(at) if of is None else of) if lines else None


def chosen_of(size: Floats) -> dict[int, str]:
    """Which of some numbers to show, in their order, and what is to be said of each."""
    count = len(size)
    largest = np.argsort(-size, kind="stable")
    shown = np.arange(count)
    if count > SHOWN:
        shown = np.unique(np.concatenate([shown[:_ENDS], largest[:_ENDS], shown[-_ENDS:]]))
    words = dict.fromkeys(shown.tolist(), "")
    if count == 1:
        return words
    words |= {0: "first", count - 1: "last"}
    top = int(largest[0])
    if size[top] > size[largest[-1]]:
        words[top] = ", ".join(filter(None, [words[top], "longest"]))
    return words
