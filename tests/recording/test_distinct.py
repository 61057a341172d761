"""Whole numbers, each once."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.recording.table import distinct
from dsprof.run.table import places

COLUMNS = {
    "none": np.empty(0, np.int32),
    "in order": np.array([3, 3, 4, 7], np.int32),
    "out of order, missing ones": np.array([9, -1, 9, 2], np.int64),
    "far apart": np.array([1 << 40, 5, 1 << 40], np.int64),
    "the ends of a narrow type": np.array([127, -128, 127], np.int8),
}


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_each_number_is_there_once_and_every_row_says_which(values: np.ndarray) -> None:
    assert distinct(values).tolist() == np.unique(values).tolist()
    assert distinct(values).dtype == values.dtype
    known, codes = places(values)
    assert known[codes].tolist() == values.tolist()
