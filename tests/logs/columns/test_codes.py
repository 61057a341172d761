"""Codes, and where each of them stands."""

from __future__ import annotations

import numpy as np

from dsprof.logs.columns.codes import groups_of


def test_one_code_is_grouped_in_order_wherever_it_stands() -> None:
    assert [rows.tolist() for rows in groups_of(np.array([3, -1, 3, 0]))] == [[1], [3], [0, 2]]
    assert groups_of(np.zeros(0, np.int64)) == []
