"""The lines above the tables."""

from __future__ import annotations

from dsprof.live.head import _marked
from dsprof.live.picture import Verdict
from dsprof.text.parts import BLENT, UNTIMED, Part


def part(name: str, share: float | None) -> Part:
    return Part(name, "", share, share)


def test_the_legend_names_the_largest_part_first_so_that_none_but_the_least_is_cut() -> None:
    parts = tuple(part(name, share) for name, share in (("data", 0.02), ("compute", 0.45)))
    verdict = Verdict("", "info", 3, 1.0, {"compute": 0.45, "data": 0.02, "wait": 0.0}, parts)
    assert [one.name for one, _ in _marked(verdict)] == ["compute", "data"]
    assert _marked(Verdict("", "info", 0, None, {})) == []


def test_what_no_class_is_known_of_has_the_colour_that_the_bars_give_it() -> None:
    parts = (part(BLENT, 0.6), part("communication", 0.2), part(UNTIMED, 0.1), part("wait", None))
    verdict = Verdict("", "info", 3, 1.0, {"other": 0.9, "optimizer": 0.1}, parts)
    assert [class_ for _, class_ in _marked(verdict)] == ["other", "other", "other"]
