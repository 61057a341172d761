"""What each rank did at every moment of one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pandas as pd

from dsprof.run.recorded.moments import STEP, UNKNOWN, at_unknown_times, ends

#: The class of time that no phase and no call covers.
UNTIMED: Final = "unknown"

_NS: Final = 1e-9


class Stretch(NamedTuple):
    """A time in which a rank was in the same innermost phase or call; ns.

    `parts` is how many shorter ones it stands for: `path` and `class_` are then those that took
    most of it. `is_open`: it had not ended.
    """

    begin: int
    end: int
    path: str
    class_: str
    parts: int = 1
    is_open: bool = False


def lanes(moments: pd.DataFrame, *, each_from_its_own: bool = False) -> dict[int, list[Stretch]]:
    """For each rank what it did, in order and without holes, ns since the first rank began the
    step; empty if it is not known when a phase was or when calls held a rank up (they may share
    rows), or if all that a rank did is deleted.

    Args:
        moments: of one step, see `Run.moments`.
        each_from_its_own: count from each rank's own beginning, because clocks cannot be compared.
    """
    steps = moments[moments["what"] == STEP].set_index("rank").sort_index()
    if at_unknown_times(moments).any() or steps.empty or steps.index.has_duplicates:
        return {}
    zero = int(steps["begin"].min())
    found = {}
    parts = moments[moments["what"] != STEP]
    for rank, begin, seconds in zip(steps.index, steps["begin"], steps["seconds"], strict=True):
        rows = parts[parts["rank"] == rank]
        if rows.empty:
            return {}
        end = begin + round(seconds / _NS)
        since = begin if each_from_its_own else zero
        found[int(rank)] = [
            one._replace(begin=one.begin - since, end=one.end - since)
            for one in _innermost(_intervals(rows), begin, end)
        ]
    return found


class Left(NamedTuple):
    """What is known of a rank in a step that it did not end; ns since 1970.

    Attributes:
        begin: when the step before ended.
        until: when the rank was last known to be there.
        open: phases and calls that had not ended, outer ones first, until `until`.
        lost: what was before that and is not recorded was not written any more.
    """

    begin: int
    until: int
    open: tuple[Stretch, ...] = ()
    lost: int = 0


def unfinished(moments: pd.DataFrame, left: Mapping[int, Left]) -> dict[int, list[Stretch]]:
    """For each rank what it did in a step that did not end, ns since the first rank began it; with
    a hole where nothing of it is known.

    Args:
        moments: of the steps that some of the ranks did not end.
        left: by rank.
    """
    zero = min((one.begin for one in left.values()), default=0)
    parts = moments[moments["what"] != STEP]
    return {
        rank: [
            one._replace(begin=one.begin - zero, end=one.end - zero)
            for one in _with_open(_intervals(parts[parts["rank"] == rank]), of)
        ]
        for rank, of in sorted(left.items())
    }


def _with_open(known: list[Stretch], left: Left) -> list[Stretch]:
    intervals = sorted([*known, *left.open], key=lambda one: (one.begin, -one.end))
    ran = _innermost(intervals, left.begin, left.until)
    if left.open and ran and ran[-1].path == left.open[-1].path:
        ran[-1] = ran[-1]._replace(is_open=True)
    ran = [one if one.path else one._replace(begin=max(one.begin, left.lost)) for one in ran]
    return [one for one in ran if one.begin < one.end]


def _intervals(rows: pd.DataFrame) -> list[Stretch]:
    """Phases and calls that took time, outer ones first where they begin together."""
    rows = rows.assign(end=ends(rows))
    told = rows[rows["seconds"].gt(0) & rows["begin"].ne(UNKNOWN)]
    columns = (told[name] for name in ("begin", "end", "path", "class"))
    found = [
        Stretch(int(begin), int(end), path, class_)
        for begin, end, path, class_ in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda one: (one.begin, -one.end, one.path.count("/")))


def _innermost(intervals: Iterable[Stretch], begin: int, end: int) -> list[Stretch]:
    """From `begin` to `end`, each moment in the innermost interval that holds it."""
    found: list[Stretch] = []
    held = [Stretch(begin, end, "", UNTIMED)]  # the intervals open at this moment, outer ones first

    def go_on_until(moment: int) -> None:
        at = found[-1].end if found else begin
        if moment > at:
            found.append(held[-1]._replace(begin=at, end=moment))

    for one in intervals:
        while len(held) > 1 and held[-1].end <= one.begin:
            go_on_until(held[-1].end)
            held.pop()
        go_on_until(min(one.begin, held[-1].end))
        held.append(one._replace(end=min(one.end, held[-1].end)))
    while held:
        go_on_until(held[-1].end)
        held.pop()
    return found


def coarse(stretches: Iterable[Stretch], least: float) -> list[Stretch]:
    """The same with neighbours joined until they take `least` ns: as fine as can be drawn."""
    found: list[Stretch] = []
    waiting: list[Stretch] = []
    for one in stretches:
        if not waiting and one.end - one.begin >= least:
            found.append(one)
            continue
        waiting.append(one)
        if one.end - waiting[0].begin >= least:
            found.append(_joined(waiting))
            waiting = []
    return [*found, _joined(waiting)] if waiting else found


def _joined(stretches: list[Stretch]) -> Stretch:
    taken: dict[str, int] = {}
    for one in stretches:
        taken[one.class_] = taken.get(one.class_, 0) + one.end - one.begin
    class_ = max(taken, key=taken.__getitem__)
    longest = max((s for s in stretches if s.class_ == class_), key=lambda s: s.end - s.begin)
    parts = sum(one.parts for one in stretches)
    is_open = stretches[-1].is_open
    return Stretch(stretches[0].begin, stretches[-1].end, longest.path, class_, parts, is_open)
