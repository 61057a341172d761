"""The lines above the tables."""

from __future__ import annotations

from dsprof.live.head import _shares
from dsprof.live.picture import Verdict


def test_the_legend_names_the_largest_class_first_so_that_none_but_the_least_is_cut() -> None:
    classes = {"communication": 0.2, "compute": 0.45, "data": 0.02, "wait": 0.0, "other": 0.33}
    shares = _shares(Verdict("", "info", 3, 1.0, classes))
    assert [name for name, _ in shares] == ["compute", "other", "communication", "data"]
    assert _shares(Verdict("", "info", 0, None, classes)) == []
