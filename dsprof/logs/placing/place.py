"""Assigns each record of a source to its launch, engine and optimizer step.

Timer lines often state none of these. But logs have an order: DeepSpeed prints the lines of a step
in a fixed order, so a line belongs to the step whose own line (a *mark*) or closing timer line
comes next, or to the step printed last. Which one is stated in its dialect (`place` of a pattern,
`place` of a timer flavour).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from dsprof.grammar import Grammar
from dsprof.logs.placing.bare import number_bare, said_again
from dsprof.logs.placing.behind import behind_marks
from dsprof.logs.placing.kinds import NONE, Kinds, Source, flavours_of, those
from dsprof.logs.placing.launches import engines_of, late_marks, segments_of, trainings_of

__all__ = ["Placed", "Source", "place"]

_TELLING_GAPS: Final = 3  # between marks, as few as show how often a job prints
_MOST: Final = 0.5  # of them
_FAR: Final = 10  # steps from one mark to the next, where a job prints each


@dataclass(slots=True)
class Placed:
    """Arrays parallel to the records. `steps` is -1 where a number of steps does not apply.

    `counted`: no line states a step number, so lines were counted, and the log does not show where
    the count begins.
    """

    segment: np.ndarray
    engine: np.ndarray
    step: np.ndarray
    steps: np.ndarray
    flavour: np.ndarray  # index into the grammar's timers; -1 for other records
    counted: bool

    def spread(self, places: np.ndarray, count: int) -> Placed:
        """The same for `count` records, with these at `places` and the others unassigned."""
        told = {"segment": 0, "engine": 0, "step": NONE, "steps": NONE, "flavour": NONE}
        columns: dict[str, Any] = {}
        for name, nothing in told.items():
            values = getattr(self, name)
            columns[name] = np.full(count, nothing, values.dtype)
            columns[name][places] = values
        return replace(self, **columns)


def place(source: Source, grammar: Grammar, signatures: list[frozenset[str]]) -> Placed:
    """Assign every record of one source."""
    flavour = flavours_of(source, grammar, signatures)
    kinds = Kinds.of(source, grammar, flavour)
    again = said_again(source, kinds, grammar)
    kinds.own, kinds.bare, kinds.after = (
        kinds.own & ~again,
        kinds.bare & ~again,
        kinds.after | again,
    )
    kinds.starts = kinds.starts | trainings_of(source, kinds)
    own = np.where(kinds.own, source.step, NONE)
    turns = np.flatnonzero(kinds.turn)
    own[turns] = counting_on(source.step[turns], source.epoch[turns])
    segment = segments_of(source, kinds, own)
    engine = engines_of(source, kinds, own, segment)
    cuts = [0, *(np.flatnonzero(np.diff(segment)) + 1).tolist(), len(segment)]
    launches = [slice(first, end) for first, end in pairwise(cuts)]
    records = [number_bare(source, kinds, launch, own, grammar) for launch in launches]
    steps = np.full(len(segment), NONE, np.int64)
    marked = np.where(kinds.real(own), own, NONE)
    placed = Placed(segment, engine, marked, steps, flavour, any(records))
    who = _who(source)
    for launch, unknown in zip(launches, records, strict=True):
        _place_launch(launch, kinds, own, source, who, placed)
        placed.counted |= _is_counted(launch, kinds, source, own)
        if unknown:  # how many steps each record covers is unknown
            steps[those(launch, kinds.own[launch])] = NONE
            if not kinds.end[launch].any():
                _forget(those(launch, kinds.calls[launch]), placed)
    steps[kinds.part] = 0
    # Records that state a step but are not printed at its end.
    told = (source.step > 0) & ~kinds.own & ~kinds.part
    placed.step[told] = source.step[told]
    return placed


def counting_on(steps: np.ndarray, epochs: np.ndarray) -> np.ndarray:
    """Steps that restart with each epoch, numbered through all epochs; a launch
    restarts the count.
    """
    told, base = steps.copy(), 0
    for at in range(1, len(steps)):
        if epochs[at] > epochs[at - 1]:
            base += int(steps[at - 1]) + 1 if steps[at] <= steps[at - 1] else 0
        elif steps[at] < steps[at - 1] or epochs[at] < epochs[at - 1]:
            base = 0
        told[at] += base
    return told


def _is_counted(launch: slice, kinds: Kinds, source: Source, own: np.ndarray) -> bool:
    """Whether no line of a launch states a step, and the log does not show where a count begins."""
    ends = those(launch, kinds.end[launch])
    barred = bool((source.bar[launch] >= 0).any())  # bars then number the marks
    told = kinds.own[launch] & ((source.step[launch] >= 0) | (barred & (own[launch] > 0)))
    if not len(ends) or told.any():
        return False
    return not kinds.starts[launch.start : ends[0]].any()


def _place_launch(  # noqa: PLR0917  # parallel
    launch: slice,
    kinds: Kinds,
    own: np.ndarray,
    source: Source,
    who: np.ndarray,
    placed: Placed,
) -> None:
    """Fill `placed` for the records of one launch."""
    real = those(launch, kinds.real(own)[launch])
    real = real[~_late(real, own, source)]  # late marks tell nothing about nearby lines
    births = those(launch, kinds.initial(own)[launch])
    ends = those(launch, kinds.end[launch])
    left_out = np.searchsorted(those(launch, kinds.left_out[launch]), real)
    cut = np.diff(left_out, prepend=0) > 0
    placed.steps[real] = _windows(placed.step[real], placed.engine[real], cut)
    anew = real[kinds.anew[real]]  # the first of an epoch is of none of the epoch before
    if len(anew):
        usual = int(np.median(placed.steps[anew]))
        placed.steps[anew] = np.minimum(placed.steps[anew], usual)
    ranks = _of_each(ends, who, real)
    for closing in ranks:
        marks = real[_may_be(source, real, closing[-1])] if len(closing) else real
        if closing is ranks[0] or len(marks):
            marks = marks if len(marks) else real
            _number_ends(closing, marks, kinds, placed)
        else:
            _number_alike(closing, ranks[0], placed)
    before = those(launch, kinds.before[launch])
    for closing in ranks:  # the leading rank's close all lines; then other ranks' close theirs
        mine = before if closing is ranks[0] else before[who[before] == who[closing[-1]]]
        ends_of = closing if len(closing) else real
        closes = np.sort(np.concatenate([births, ends_of]))
        _take_next(mine, closes, placed, open_end=bool(len(closing)))
        _spread(mine[kinds.calls[mine]], closes, kinds, placed)
        losses = mine[kinds.losses[mine]]
        _take_same(*behind_marks(losses, source.pattern, ends_of, placed.step), placed)
    after = those(launch, kinds.after[launch])
    _take_last(after, real, placed)
    if not len(births):
        _take_lost(after, source.pattern, real, placed)
    placed.steps[those(launch, kinds.sums[launch] == 1)] = 1
    _take_windows(those(launch, kinds.sums[launch] == 2), real, placed)
    short = those(launch, kinds.width[launch] > 0)
    placed.steps[short] = np.minimum(placed.steps[short], kinds.width[short])


def _late(real: np.ndarray, own: np.ndarray, source: Source) -> np.ndarray:
    late = np.zeros(len(real), bool)
    for pattern in np.unique(source.pattern[real]):
        mine = source.pattern[real] == pattern
        late[mine] = late_marks(own[real[mine]])
    return late


def _who(source: Source) -> np.ndarray:
    """One number per rank and host; -1 for a line that lost both."""
    who: np.ndarray = (source.host.astype(np.int64) + 2) * 1_000_003 + source.rank
    return np.where((source.rank < 0) & (source.host < 0), NONE, who)


def _may_be(source: Source, records: np.ndarray, other: int) -> np.ndarray:
    """Which records may be from the same process as record `other`."""
    rank, host = source.rank[records], source.host[records]
    same_rank = (rank == source.rank[other]) | (rank < 0) | (source.rank[other] < 0)
    same_host = (host == source.host[other]) | (host < 0) | (source.host[other] < 0)
    told: np.ndarray = same_rank & same_host
    return told


def _of_each(ends: np.ndarray, who: np.ndarray, real: np.ndarray) -> list[np.ndarray]:
    """The closing lines of each rank; first those of the rank that also prints the marks.

    If ranks share a stream, each rank closes every step.
    """
    if not len(ends):
        return [ends]
    order = np.argsort(who[ends], kind="stable")
    each = np.split(ends[order], np.flatnonzero(np.diff(who[ends][order])) + 1)
    unknown = [mine for mine in each if who[mine[0]] == NONE]
    known = [mine for mine in each if who[mine[0]] != NONE]
    if not known:
        return unknown
    marks = set(who[real].tolist())
    known.sort(key=lambda mine: (int(who[mine[0]]) not in marks, -len(mine), mine[0]))
    return [np.sort(np.concatenate([known[0], *unknown])), *known[1:]]


def _number_alike(ends: np.ndarray, leading: np.ndarray, placed: Placed) -> None:
    """Number a rank's closing lines like those of the leading rank: its n-th closes the
    same step.
    """
    shared = min(len(ends), len(leading))
    placed.step[ends[:shared]] = placed.step[leading[:shared]]
    placed.engine[ends[:shared]] = placed.engine[leading[:shared]]
    last = placed.step[leading[-1]]
    more = last + np.arange(1, len(ends) - shared + 1)
    placed.step[ends[shared:]] = np.where(last > 0, more, NONE)


def _windows(steps: np.ndarray, engine: np.ndarray, cut: np.ndarray | None = None) -> np.ndarray:
    """How many steps each mark covers: the distance to the mark before it; the usual one where that
    is not in the log: of the first mark, and where lines in front were left out (`cut`, or as the
    distances show)."""
    windows = np.full(len(steps), NONE, np.int64)
    for one in np.unique(engine):
        mine = np.flatnonzero(engine == one)
        printed, at, which = np.unique(steps[mine], return_index=True, return_inverse=True)
        gaps = np.diff(printed)
        whole = ~_lack_marks(printed)
        whole &= True if cut is None else ~cut[mine][at[1:]]
        usual = int(np.median(gaps[whole])) if whole.any() else NONE
        first = min(max(int(printed[0]), 1), usual)
        after = np.where(whole, gaps, np.minimum(gaps, usual))
        windows[mine] = np.append(first, after)[which]
    return windows


def _lack_marks(printed: np.ndarray) -> np.ndarray:
    """Between which marks others are missing: most stand alike apart, and these a multiple of that,
    as in an excerpt. A job prints at regular steps, or at no two alike."""
    gaps = np.diff(printed)
    told = np.diff(printed, prepend=0) if len(gaps) and printed[0] <= gaps.min() else gaps
    if len(told) < _TELLING_GAPS:
        return np.zeros(len(gaps), bool)
    usual = int(np.median(told))
    regular = (told == usual).mean() > _MOST
    # A line of every step may be wanting for one that was skipped.
    far = gaps >= (_FAR if usual == 1 else 2 * usual)
    lack: np.ndarray = far & (gaps % usual == 0) & regular
    return lack


def _number_ends(ends: np.ndarray, real: np.ndarray, kinds: Kinds, placed: Placed) -> None:
    """Number closing lines from the marks between them, counting from each mark to the next."""
    if not len(ends):
        return
    lead = real[kinds.leads[real]]
    anchors = lead if len(lead) else real
    if not len(anchors):
        placed.step[ends] = np.arange(1, len(ends) + 1)
        return
    index = np.searchsorted(ends, anchors)
    if not len(lead):
        index -= 1  # other dialects print the mark after the closing line
    index, anchors = index[index >= 0], anchors[index >= 0]
    if not len(anchors):
        placed.step[ends] = placed.step[real[-1]] + np.arange(1, len(ends) + 1)
        return
    index, first, nearest = _nearest_each(index, anchors, leads=bool(len(lead)))
    place = np.arange(len(ends))
    passed = np.searchsorted(index, place, side="right")
    origin = np.maximum(passed - 1, 0)
    anchor = np.where(passed > 0, nearest[origin], first[0])
    steps = placed.step[anchor] + place - index[origin]
    beside = place == index[origin]
    following = np.append(placed.step[first], np.iinfo(np.int64).max)[passed]
    sure = beside | (steps < following)
    if len(np.unique(placed.engine[anchors])) > 1:  # only an adjacent mark shows whose turn it is
        sure = beside
    steps = np.where(sure, steps, NONE)  # there may be more lines than steps before the next mark
    placed.step[ends] = np.where(steps < 1, NONE, steps)
    placed.engine[ends] = placed.engine[anchor]


def _nearest_each(
    index: np.ndarray, anchors: np.ndarray, *, leads: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The closing lines that have adjacent marks, each once (after the last line: one still to
    come), each with its first mark and its nearest mark.

    Of several marks before a closing line the last is nearest: the closing lines of the others were
    lost.
    """
    index, first = np.unique(index, return_index=True)
    last = np.append(first[1:], len(anchors)) - 1
    return index, anchors[first], anchors[last if leads else first]


def _take_next(records: np.ndarray, closing: np.ndarray, placed: Placed, *, open_end: bool) -> None:
    """Assign records to the step whose closing line comes next."""
    if not len(records) or not len(closing):
        return
    index = np.searchsorted(closing, records)
    inside = index < len(closing)
    target = closing[index[inside]]
    _take_same(records[inside], target, placed)
    last = placed.step[closing[-1]]
    if open_end and last > 0:  # a step whose end the log lacks
        placed.step[records[~inside]] = last + 1


def _take_same(records: np.ndarray, as_those: np.ndarray, placed: Placed) -> None:
    placed.step[records] = placed.step[as_those]
    placed.engine[records] = placed.engine[as_those]


def _spread(calls: np.ndarray, closing: np.ndarray, kinds: Kinds, placed: Placed) -> None:
    """Calls cover all steps since the previous closing line. If the number of these is unknown, the
    calls are left unassigned.
    """
    closing = closing[placed.step[closing] > 0]
    calls = calls[placed.step[calls] > 0]
    calls = calls[calls < closing.max(initial=NONE)]
    if not len(calls):
        return
    spans = _windows(placed.step[closing], placed.engine[closing])
    first = (placed.step[closing] == 1) | (kinds.sums[closing] == 1)
    spans = np.where((spans < 0) & first, 1, spans)
    placed.steps[calls] = spans[np.searchsorted(closing, calls)]
    _forget(calls[placed.steps[calls] < 0], placed)


def _forget(records: np.ndarray, placed: Placed) -> None:
    placed.step[records] = placed.steps[records] = NONE


def _take_last(records: np.ndarray, real: np.ndarray, placed: Placed) -> None:
    """Assign records to the step that was printed last."""
    if not len(records) or not len(real):
        return
    index = np.searchsorted(real, records) - 1
    known = index >= 0
    target = real[index[known]]
    _take_same(records[known], target, placed)
    placed.steps[records[known]] = placed.steps[target]


def _take_lost(records: np.ndarray, pattern: np.ndarray, real: np.ndarray, placed: Placed) -> None:
    """Records of a source that begins right behind a mark: of a pattern that stands behind every
    mark, the one before the first is of the step that would have been marked before. Of several
    engines, which mark was that is unknown.
    """
    if len(np.unique(placed.engine[real])) != 1:
        return
    ahead = records[: np.searchsorted(records, real[0])] if len(real) > 1 else records[:0]
    for one in np.unique(pattern[ahead]):
        mine = ahead[pattern[ahead] == one]
        turns = np.diff(np.searchsorted(records[pattern[records] == one], real))
        step = placed.step[real[0]] - placed.steps[real[0]]
        if len(mine) == 1 and (turns == 1).all() and 0 < step < placed.step[real[0]]:
            placed.step[mine] = step
            placed.steps[mine] = placed.steps[real[0]]
            placed.engine[mine] = placed.engine[real[0]]


def _take_windows(records: np.ndarray, real: np.ndarray, placed: Placed) -> None:
    """Sums over a window cover as many steps as the mark of the same step."""
    if not len(records) or not len(real):
        return
    steps, first = np.unique(placed.step[real], return_index=True)
    index = np.minimum(np.searchsorted(steps, placed.step[records]), len(steps) - 1)
    fits = steps[index] == placed.step[records]
    placed.steps[records] = np.where(fits, placed.steps[real[first[index]]], NONE)
