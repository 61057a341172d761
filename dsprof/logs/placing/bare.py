"""Marks that name no step: losses of the Hugging Face Trainer and the like."""

from __future__ import annotations

from typing import Final

import numpy as np

from dsprof.grammar import Grammar
from dsprof.logs.columns.codes import groups_of
from dsprof.logs.placing.kinds import NONE, Kinds, Source, those

_SURE: Final = 0.1  # of a step
_MOST_DECIMALS: Final = 12  # more are not told from a number printed in full
_NO_MORE: Final = 1e-6
_MANY: Final = 10  # records that show how far apart all stand
_COPY: Final = "huggingface.train_callback"
_FEW: Final = 3  # records that show what grows as their epochs do, or how far apart all stand
_SELDOM: Final = 5  # times as many records must be of one process as are of another, or nobody
_SAME: Final = 0.006  # of an epoch, of which a line says two decimals


def number_bare(
    source: Source, kinds: Kinds, launch: slice, own: np.ndarray, grammar: Grammar
) -> bool:
    """Gives marks of one launch that name no step one from what is around them: a DeepSpeed
    step line, a progress bar, closing timer lines, or their own count.

    True if it is their own count: they are then records, nobody knows of which steps.
    """
    bare = those(launch, kinds.bare[launch] & (source.step[launch] < 0))
    if not len(bare):
        return False
    numbered = those(launch, kinds.own[launch] & (source.step[launch] > 0))
    if _bars_agree(barred := _steps_from_bars(source, bare, launch), source, bare, numbered):
        own[bare] = barred
    elif (onward := _steps_onward(source, numbered, bare, grammar)) is not None:
        own[bare] = onward
    elif len(numbered) >= max(len(bare) // 20, 1):
        for mine in _by_who(source, bare):
            own[mine] = _steps_between(source, numbered, mine)
    elif (barred > 0).any():
        own[bare] = barred
    elif len(ends := those(launch, kinds.end[launch])) >= len(bare):
        own[bare] = _steps_from_ends(source, bare, ends)
    else:
        own[bare] = _count_each(source, bare)
        return True
    return False


def said_again(source: Source, kinds: Kinds, grammar: Grammar) -> np.ndarray:
    """Marks without a number that the one right in front of them, of the same process and epoch,
    is a copy of: LLaMA-Factory's callback logs what the Trainer prints next."""
    again = np.zeros(len(kinds.bare), bool)
    ahead = np.array([pattern.id == _COPY for pattern in grammar.patterns])[source.pattern]
    if ahead.any():
        bare = np.flatnonzero(kinds.bare & (source.step < 0))
        for mine in _by_who(source, bare):
            follows = ahead[mine[:-1]] & ~ahead[mine[1:]]
            again[mine[1:]] = follows & (np.abs(np.diff(source.epoch[mine])) < _SAME)
    return again


def _steps_from_ends(source: Source, bare: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many steps were closed by then: by the rank that closes most of them."""
    ends = max(_by_who(source, ends), key=len)
    closed = np.searchsorted(ends, bare)
    leads = int(closed[0] == 0)  # then a mark stands before the closing line of its step
    told: np.ndarray = closed + leads
    return told


def _steps_from_bars(source: Source, bare: np.ndarray, launch: slice) -> np.ndarray:
    """Position of the training bar at each record, -1 where no bar can be the training's."""
    unknown = np.full(len(bare), NONE, np.int64)
    numbered = (source.bar[launch] >= 0) & (source.total[launch] >= 0)  # not one without an end
    bars = those(launch, numbered)
    before = np.searchsorted(bars, bare, side="right") - 1
    usable = before >= 0
    if not usable.any():
        return unknown
    totals = source.total[bars[before[usable]]]
    values, counts = np.unique(totals, return_counts=True)
    training = bars[source.total[bars] == values[np.argmax(counts)]]
    at = np.searchsorted(training, bare, side="right") - 1
    steps = np.where(at >= 0, source.bar[training[np.maximum(at, 0)]], NONE)
    if (even := _as_epochs(steps, source.epoch[bare])) is not None:
        return even
    if steps[0] <= 0:  # no bar before it, or one that had not moved yet
        steps = _in_front(steps, int(source.bar[training[-1]]), source.epoch[bare])
    # A bar that is not redrawn for each record cannot number them.
    known = steps[steps > 0]
    distinct = np.count_nonzero(np.diff(np.sort(known), prepend=0))
    return _as_logged(steps) if distinct > len(known) // 2 else unknown


def _in_front(steps: np.ndarray, end: int, epochs: np.ndarray) -> np.ndarray:
    """Steps of records that stand in front of the bar of their step, as a terminal's copy shows
    them, where epochs grow as those do and not as the bars behind which they stand."""
    later = np.append(steps[1:], end)
    if len(steps) < _FEW or not (np.diff(epochs, prepend=0.0) > 0).all() or later[0] <= 0:
        return steps
    later[-1] = min(end, round(float(later[-2] * epochs[-1] / epochs[-2])))
    off = [
        np.abs(told - told[-1] * epochs / epochs[-1])[told >= 0].max() for told in (later, steps)
    ]
    return later if off[0] < later[-1] / len(later) / 4 <= off[1] else steps


def _as_logged(steps: np.ndarray) -> np.ndarray:
    """A bar is redrawn ten times a second at most: that of a quick loop may be some steps behind
    the record beside it. Where all are that little behind multiples of one distance, and some at
    them, the records are of these: 10, 20, 30 where the bars say 9, 20, 28.
    """
    if len(steps) < _MANY or steps[0] <= 0:
        return steps
    apart = max(1, round(float(steps[-1] - steps[0]) / (len(steps) - 1)))
    told: np.ndarray = (-(-steps[0] // apart) + np.arange(len(steps))) * apart
    behind = told - steps
    fits = behind.min() == 0 and 2 * behind.max() < apart
    return told if fits else steps


def _as_epochs(steps: np.ndarray, epochs: np.ndarray) -> np.ndarray | None:
    """A loop that logs faster than a bar is redrawn leaves bars behind by whole records, and gives
    two records one step. Where all epochs stand equally far apart, from the first step on, so do
    the steps; some bar must be at its record, and none in front of it. None where that fails.
    """
    turns = np.arange(1, len(steps) + 1)
    width = epochs[-1] / len(steps)
    if len(steps) < _MANY or steps[0] < 0 or not width > 2 * _SAME:
        return None
    apart = max(1, round(float(steps[-1]) / len(steps)))
    told: np.ndarray = turns * apart
    behind = told - steps
    even = np.abs(epochs - turns * width).max() <= _SAME
    return told if even and behind.min() == 0 and behind[-1] < apart else None


def _bars_agree(steps: np.ndarray, source: Source, bare: np.ndarray, numbered: np.ndarray) -> bool:
    """Whether the bars give each record a step of its own, and those that lines name lie
    between them: a bar of micro-batches or of another loop would soon run away from them."""
    if not len(numbered) or steps[0] <= 0 or (np.diff(steps) <= 0).any():
        return False
    behind = np.searchsorted(bare, numbered)
    low = np.concatenate([[0], steps])[behind]
    high = np.concatenate([steps, [np.iinfo(np.int64).max]])[behind]
    named = source.step[numbered]
    return bool(((low <= named) & (named <= high)).all())


def _by_who(source: Source, records: np.ndarray) -> list[np.ndarray]:
    """The records of each rank and host, in order. Those that name neither are of the only one that
    others name, where one of the two is seldom: another process would print as many."""
    who = source.host[records].astype(np.int64) * 100_003 + source.rank[records]
    lost = (source.host[records] < 0) & (source.rank[records] < 0)
    if len(np.unique(who[~lost])) == 1 and _SELDOM * min(lost.sum(), (~lost).sum()) < len(who):
        return [records]
    return [records[alike] for alike in groups_of(who)]


def _steps_onward(
    source: Source, numbered: np.ndarray, bare: np.ndarray, grammar: Grammar
) -> np.ndarray | None:
    """Steps of marks that all stand behind numbered ones of the same dialect: a trainer may round
    those of later steps (LeRobot: 800, 1K, 1K). None if the numbered stand unevenly apart; -1 from
    where epochs no longer grow as those steps do: lines are missing there."""
    if len(numbered) < _FEW or bare[0] < numbered[-1]:
        return None
    apart = np.unique(np.diff(source.step[numbered]))
    patterns = np.unique(source.pattern[np.concatenate([numbered, bare])]).tolist()
    dialects = {grammar.patterns[one].id.partition(".")[0] for one in patterns}
    if len(apart) > 1 or apart[0] <= 0 or len(dialects) > 1 or len(_by_who(source, bare)) > 1:
        return None
    last = numbered[-1]
    onward: np.ndarray = source.step[last] + apart[0] * np.arange(1, len(bare) + 1)
    ratio = onward / source.step[last]
    beyond = np.abs(source.epoch[bare] - source.epoch[last] * ratio)  # NaN: none is told
    lost = np.logical_or.accumulate(beyond > _SAME * (1 + ratio))
    return np.where(lost, NONE, onward)


def _steps_between(source: Source, numbered: np.ndarray, bare: np.ndarray) -> np.ndarray:
    """Steps of marks without a number from the numbered ones around them.

    As many or fewer: each belongs to the nearest. More: those that follow a numbered mark
    count on from it, evenly spread up to the next. A single one does not tell how many steps
    they stand apart: their epochs do, or nothing.
    """
    own = source.step
    if len(bare) <= 1.2 * len(numbered):
        right = np.minimum(np.searchsorted(numbered, bare), len(numbered) - 1)
        left = np.maximum(right - 1, 0)
        closer = np.abs(numbered[right] - bare) < np.abs(bare - numbered[left])
        nearest: np.ndarray = own[numbered[np.where(closer, right, left)]]
        return nearest
    steps, first = np.unique(own[numbered], return_index=True)
    places = np.sort(numbered[first])
    steps = own[places]
    if len(steps) == 1:
        beside = int(np.searchsorted(bare, places[0]))  # a trainer logs when the step is over
        return _steps_from_epochs(source.epoch[bare], beside, int(steps[0]))
    group = np.searchsorted(places, bare)  # 0: before the first numbered mark
    size = np.bincount(group, minlength=len(steps) + 1)
    begin, apart = _spread(steps, size)
    turn = np.arange(len(bare)) - np.searchsorted(group, group)
    told = begin[group] + np.floor(turn * apart[group] + _NO_MORE).astype(np.int64)
    spread: np.ndarray = np.maximum(told, 1)
    return spread


def _spread(steps: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where marks begin, and how far apart they stand, before the first of the numbered `steps`
    and behind each: `size` of them.

    At both ends, which may be cut, as between the others; unless more stand before the first one
    than there were steps.
    """
    gaps, between = np.diff(steps), size[1:-1]
    inner = gaps / np.maximum(between, 1)
    usual = float(np.median(inner[between > 0])) if between.any() else float(np.median(gaps))
    first, before = int(steps[0] - usual * size[0]), usual
    if first == 0:  # the mark of a numbered step stands before that
        first, steps = round(usual), steps + round(usual)
    elif first < 1:
        first = max(1, int(steps[0] - np.median(gaps)) + 1)
        before = (steps[0] - first) / max(1, size[0])
    return np.concatenate([[first], steps]), np.concatenate([[before], inner, [usual]])


def _steps_from_epochs(epochs: np.ndarray, beside: int, step: int) -> np.ndarray:
    """Steps of records by how their epochs compare to that of the one at `step`; -1 if they do
    not tell.

    Epochs that are printed in full tell whole numbers, if that one is at `step` indeed. Those of
    two decimals do not; but where they show that all records stand equally far apart, from the
    first step on, so do the steps.
    """
    unknown = np.full(len(epochs), NONE, np.int64)
    if beside >= len(epochs) or not (np.diff(epochs, prepend=0.0) > 0).all():
        return unknown
    ratio = epochs / epochs[beside]
    told = step * ratio
    off = 0.5 * 10.0 ** -_decimals(epochs)
    if step * off * (1 + ratio.max()) < _SURE * epochs[beside]:
        exact = np.abs(told - np.round(told)).max() <= _SURE
    else:
        turns = np.arange(1, len(epochs) + 1)
        width = epochs[beside] / (beside + 1)
        even = np.abs(epochs - turns * width).max() <= 2 * off < width
        exact = even and step % (beside + 1) == 0
        told = turns * (step // (beside + 1))
    return np.round(told).astype(np.int64) if exact else unknown


def _decimals(numbers: np.ndarray) -> int:
    """With how many decimals they are printed; the Trainer of old rounds to two."""
    for digits in range(2, _MOST_DECIMALS):
        scaled = numbers * 10.0**digits
        if np.abs(scaled - np.round(scaled)).max() < _NO_MORE:
            return digits
    return _MOST_DECIMALS


def _count_each(source: Source, bare: np.ndarray) -> np.ndarray:
    """1, 2, 3, ... for each rank and host that prints."""
    steps = np.empty(len(source.step), np.int64)
    for mine in _by_who(source, bare):
        steps[mine] = np.arange(1, len(mine) + 1)
    told: np.ndarray = steps[bare]
    return told
