"""Which lines prove a number that many lines give together."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.page.model import Among, Place

SHOWN: Final = 24  #: lines shown of a mean: the first, the longest and the last, a third each
_ENDS: Final = SHOWN // 3


def among(rows: pd.DataFrame, measure: str = "seconds", of: int | None = None) -> Among | None:
    """The lines of `rows` in their order; of many the first, the largest and the last.

    Args:
        rows: with `source`, `line` and the measure.
        of: how many numbers they stand for, if not one each.
    """
    size = rows[measure].to_numpy(dtype=float, na_value=np.nan)
    told = np.flatnonzero(rows["line"].notna() & rows["source"].notna() & np.isfinite(size))
    if not len(told):
        return None
    largest = told[np.argsort(-size[told], kind="stable")]
    chosen = told
    if len(told) > SHOWN:
        chosen = np.unique(np.concatenate([told[:_ENDS], largest[:_ENDS], told[-_ENDS:]]))
    words = _words(told, size, int(largest[0]))
    shown = rows.iloc[chosen]
    lines = [
        (words.get(int(at), ""), Place(str(source), int(line)))
        for at, source, line in zip(chosen, shown["source"], shown["line"], strict=True)
    ]
    return Among(tuple(lines), len(told) if of is None else of)


def _words(told: npt.NDArray[Any], size: npt.NDArray[Any], largest: int) -> dict[int, str]:
    """What is to be said of the ends and of the largest, where there are several."""
    if len(told) == 1:
        return {}
    words = {int(told[0]): "first", int(told[-1]): "last"}
    if size[largest] > np.nanmin(size[told]):
        words[largest] = ", ".join(filter(None, [words.get(largest), "longest"]))
    return words


def rows_of(frame: pd.DataFrame, positions: npt.NDArray[Any]) -> pd.DataFrame:
    """`source`, `line` and `seconds` of the rows at `positions`; -1 is none."""
    return frame.iloc[positions[positions >= 0]][["source", "line", "seconds"]]
