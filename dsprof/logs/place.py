"""Which launch, engine and optimizer step each record of a source belongs to.

Timer lines often carry none of them. What a log does carry is order: DeepSpeed prints
a step's lines in a fixed order, so a line belongs to the step whose own line (a *mark*)
or closing timer line comes next, or to the last one printed, as its dialect says
(`place` of a pattern, `place` of a timer flavour).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dsprof.grammar import Grammar
from dsprof.logs.clocks import UNKNOWN

NONE: Final = -1
_CLOCKS_DIFFER: Final = 600_000_000  # microseconds: hosts' clocks, lines out of order
_REPEATS: Final = 0.3  # of a source's marks: then two engines take turns


@dataclass(slots=True)
class Source:
    """Records of one source, in order: parallel arrays; -1 where unknown.

    `pattern` and `signature` are numbers into the grammar's patterns and into the sets of
    timer names; `at` is in microseconds (`clocks.UNKNOWN` if unknown); `bar` and `total` are a progress bar's position and length.
    """

    pattern: np.ndarray
    step: np.ndarray
    rank: np.ndarray
    host: np.ndarray
    signature: np.ndarray
    at: np.ndarray
    bar: np.ndarray
    total: np.ndarray


@dataclass(slots=True)
class Placed:
    """Parallel to the records. `steps` is -1 where no number of steps applies.

    `counted` says that no line told a step number and closing lines were counted instead.
    """

    segment: np.ndarray
    engine: np.ndarray
    step: np.ndarray
    steps: np.ndarray
    flavour: np.ndarray  # into the grammar's timers, -1 for other records
    counted: bool


def place(source: Source, grammar: Grammar, signatures: list[frozenset[str]]) -> Placed:
    """Places every record of one source."""
    size = len(source.pattern)
    flavour = _flavours(source, grammar, signatures)
    kinds = _Kinds.of(source, grammar, flavour)
    own = np.where(kinds.own, source.step, NONE)
    segment = _segments(source, kinds, own)
    engine = _engines(source, kinds, own, segment)
    for inside in _split(segment):
        _number_bare(source, kinds, inside, own)
    placed = Placed(
        segment,
        np.zeros(size, np.int8),
        np.full(size, NONE, np.int64),
        np.full(size, NONE, np.int64),
        flavour,
        counted=False,
    )
    for inside in _split(segment):
        placed.counted |= _place_segment(inside, kinds, own, engine, placed)
    told = (source.step > 0) & ~kinds.own  # names a step without being printed at its end
    placed.step[told] = source.step[told]
    return placed


@dataclass(slots=True)
class _Kinds:
    """What each record is to its step, as masks over the records."""

    own: np.ndarray  # prints its own step
    after: np.ndarray  # belongs to the last step printed
    before: np.ndarray  # belongs to the next closing line
    end: np.ndarray  # a timer line that closes a step
    leads: np.ndarray  # a mark that stands before the closing line of its step
    starts: np.ndarray  # a launch begins
    stepped: np.ndarray  # shows that steps were made
    failed: np.ndarray  # shows that a launch went wrong
    sums: np.ndarray  # 0 nothing, 1 one step, 2 a window

    @classmethod
    def of(cls, source: Source, grammar: Grammar, flavour: np.ndarray) -> _Kinds:
        patterns = grammar.patterns
        flavours = list(grammar.timers.values())

        def per_pattern(test: object) -> np.ndarray:
            table = np.array([test(p) for p in patterns] or [False], bool)  # type: ignore[operator]
            mask: np.ndarray = table[source.pattern]
            return mask

        def per_flavour(test: object) -> np.ndarray:
            table = np.array([*(test(t) for t in flavours), False], bool)  # type: ignore[operator]
            mask: np.ndarray = table[flavour]
            return mask

        timer = flavour >= 0
        once = per_flavour(lambda t: t.sums == "once")
        unknown = per_pattern(lambda p: p.place == "timer") & ~timer
        own = per_pattern(lambda p: p.place == "own")
        sums = np.zeros(len(flavour), np.int8)
        sums[per_flavour(lambda t: t.sums in ("step", "mean"))] = 1
        sums[per_flavour(lambda t: t.sums == "window")] = 2
        end = per_flavour(lambda t: t.place == "end" and t.sums != "once")
        homes = {p.id.partition(".")[0] for p in patterns if p.place == "timer"}
        return cls(
            own=own,
            after=per_pattern(lambda p: p.place == "after")
            | per_flavour(lambda t: t.place == "after" and t.sums != "once"),
            before=per_pattern(lambda p: p.place == "before")
            | per_flavour(lambda t: t.place == "before" and t.sums != "once")
            | unknown,
            end=end,
            leads=own & per_pattern(lambda p: p.id.partition(".")[0] in homes),
            starts=per_pattern(lambda p: p.starts),
            stepped=own | (timer & ~once) | per_pattern(lambda p: p.place == "after"),
            failed=per_pattern(lambda p: p.severity == "critical"),
            sums=sums,
        )


def _flavours(source: Source, grammar: Grammar, signatures: list[frozenset[str]]) -> np.ndarray:
    """Timer flavour of each record, by the set of names its line holds and by the line before."""
    order = {name: i for i, name in enumerate(grammar.timers)}
    plain = [grammar.flavour(names) for names in signatures]
    behind = [grammar.following(names) for names in signatures]
    table = np.array([*(order[f.name] if f else NONE for f in plain), NONE], np.int8)
    flavour = table[source.signature]
    follower = np.array([*(order[f.name] if f else NONE for f in behind), NONE], np.int8)
    lead = np.array(
        [*(order.get(f.follows, NONE) if f else NONE for f in behind), NONE], np.int8
    )
    timed = np.flatnonzero(source.signature >= 0)
    by_who = timed[np.lexsort((timed, source.rank[timed], source.host[timed]))]
    same = np.zeros(len(by_who), bool)
    same[1:] = (source.rank[by_who[1:]] == source.rank[by_who[:-1]]) & (
        source.host[by_who[1:]] == source.host[by_who[:-1]]
    )
    before = np.full(len(by_who), NONE, np.int8)
    before[1:] = flavour[by_who[:-1]]
    wanted = lead[source.signature[by_who]]
    takes = same & (wanted >= 0) & (before == wanted)
    flavour[by_who[takes]] = follower[source.signature[by_who[takes]]]
    return flavour


def _split(segment: np.ndarray) -> list[np.ndarray]:
    """The records of each segment."""
    return np.split(np.arange(len(segment)), np.flatnonzero(np.diff(segment)) + 1)


def _number_bare(source: Source, kinds: _Kinds, inside: np.ndarray, own: np.ndarray) -> None:
    """Gives marks of one segment that name no step one from what is around them: a DeepSpeed
    step line, a progress bar, or their own count."""
    bare = inside[kinds.own[inside] & (source.step[inside] < 0)]
    if not len(bare):
        return
    numbered = inside[kinds.own[inside] & (source.step[inside] > 0)]
    if len(numbered) >= max(len(bare) // 20, 1):
        for mine in _by_who(source, bare):
            own[mine] = _steps_between(source.step, numbered, mine)
    elif (source.bar[inside] >= 0).any():  # where bars do not fit, a count would not either
        own[bare] = _steps_from_bars(source, bare, inside)
    else:
        own[bare] = _count_each(source, bare)


def _steps_from_bars(source: Source, bare: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Position of the training bar at each record, -1 where no bar can be the training's."""
    unknown = np.full(len(bare), NONE, np.int64)
    bars = inside[source.bar[inside] >= 0]
    before = np.searchsorted(bars, bare, side="right") - 1
    usable = before >= 0
    if not usable.any():
        return unknown
    totals = source.total[bars[before[usable]]]
    values, counts = np.unique(totals, return_counts=True)
    training = bars[source.total[bars] == values[np.argmax(counts)]]
    at = np.searchsorted(training, bare, side="right") - 1
    steps = np.where(at >= 0, source.bar[training[np.maximum(at, 0)]], NONE)
    # A bar that is not redrawn for each record cannot number them.
    known = steps[steps > 0]
    return steps if len(np.unique(known)) > len(known) // 2 else unknown


def _by_who(source: Source, records: np.ndarray) -> list[np.ndarray]:
    """The records of each rank and host, in order."""
    who = source.host[records] * 100_003 + source.rank[records]
    order = np.argsort(who, kind="stable")
    return np.split(records[order], np.flatnonzero(np.diff(who[order])) + 1)


def _steps_between(own: np.ndarray, numbered: np.ndarray, bare: np.ndarray) -> np.ndarray:
    """Steps of marks without a number from the numbered ones around them.

    As many or fewer: each belongs to the nearest. More: those that follow a numbered mark
    count on from it, evenly spread up to the next.
    """
    if len(bare) <= 1.2 * len(numbered):
        right = np.minimum(np.searchsorted(numbered, bare), len(numbered) - 1)
        left = np.maximum(right - 1, 0)
        closer = np.abs(numbered[right] - bare) <= np.abs(bare - numbered[left])
        nearest: np.ndarray = own[numbered[np.where(closer, right, left)]]
        return nearest
    steps, first = np.unique(own[numbered], return_index=True)
    places = np.sort(numbered[first])
    steps = own[places]
    gap = int(np.median(np.diff(steps))) if len(steps) > 1 else int(steps[0])
    group = np.searchsorted(places, bare)  # 0: before the first numbered mark
    begin = np.concatenate([[steps[0] - gap + 1], steps])[group]
    end = np.concatenate([steps, [steps[-1] + gap]])[group]
    size = np.bincount(group, minlength=len(steps) + 1)[group]
    turn = np.arange(len(bare)) - np.searchsorted(group, group)
    width = np.maximum(end - begin, 1)
    told: np.ndarray = begin + turn * width // np.maximum(size, 1)
    return np.maximum(told, 1)


def _count_each(source: Source, bare: np.ndarray) -> np.ndarray:
    """1, 2, 3, ... for each rank and host that prints."""
    steps = np.empty(len(source.step), np.int64)
    for mine in _by_who(source, bare):
        steps[mine] = np.arange(1, len(mine) + 1)
    told: np.ndarray = steps[bare]
    return told


def _segments(source: Source, kinds: _Kinds, own: np.ndarray) -> np.ndarray:
    """0 for the first launch; the next number where a launch line, a step=0 line or a falling
    step number shows that another one began."""
    before = np.full(len(own), NONE, np.int64)  # the mark that a fallen one fell from
    for pattern in np.unique(source.pattern[own > 0]):
        marks = np.flatnonzero((source.pattern == pattern) & (own > 0))
        fallen = np.flatnonzero(_restarts(own[marks]) | _back_in_time(source.at[marks]))
        before[marks[fallen + 1]] = marks[fallen]
    candidates = np.flatnonzero(kinds.starts | (kinds.own & (own == 0)) | (before >= 0))
    stepped = np.cumsum(kinds.stepped & (own != 0))
    failed = np.cumsum(kinds.failed)
    steps_seen = fails_seen = 0
    starts_seen: set[int] = set()
    opens: list[int] = []
    for at in candidates.tolist():
        if before[at] >= 0:
            if not opens or before[at] >= opens[-1]:  # else it fell because of that opening
                opens.append(_first_of_launch(at, kinds))
                steps_seen, fails_seen, starts_seen = int(stepped[at]), int(failed[at]), set()
            continue
        stepped_by_now, failed_by_now = (int(c[at - 1]) if at else 0 for c in (stepped, failed))
        # Ranks of one launch start, and even fail, at different times: after nothing but
        # failures a launch is new only if it says again what it said before.
        again = failed_by_now > fails_seen and int(source.pattern[at]) in starts_seen
        if stepped_by_now > steps_seen or again:
            opens.append(at)
            steps_seen, fails_seen = stepped_by_now, failed_by_now
            starts_seen = set()
        starts_seen.add(int(source.pattern[at]))
    segment = np.zeros(len(own), np.int32)
    segment[opens] = 1
    return np.cumsum(segment).astype(np.int32)


def _first_of_launch(at: int, kinds: _Kinds) -> int:
    """Where the lines of the step begin whose mark at `at` shows a new launch."""
    closed = np.flatnonzero(kinds.own[:at] | kinds.end[:at])
    first = int(closed[-1]) + 1 if len(closed) else 0
    while first < at and kinds.after[first]:
        first += 1
    return first


def _back_in_time(at: np.ndarray) -> np.ndarray:
    """Where a mark is older than the one before: runs pasted one behind another."""
    known = (at[1:] != UNKNOWN) & (at[:-1] != UNKNOWN)
    back: np.ndarray = known & (at[1:] < at[:-1] - _CLOCKS_DIFFER)
    return back


def _restarts(steps: np.ndarray) -> np.ndarray:
    """Where a step number falls and stays below: two engines that take turns also fall."""
    falls = np.diff(steps) < 0
    if falls.sum() > 0.2 * max(len(steps), 1):
        return np.zeros(len(falls), bool)
    return falls


def _engines(
    source: Source, kinds: _Kinds, own: np.ndarray, segment: np.ndarray
) -> np.ndarray:
    """0, or the turn of an engine where several print the same step numbers one after another."""
    engine = np.zeros(len(own), np.int8)
    told = kinds.own & (source.step > 0)
    for pattern in np.unique(source.pattern[told]):
        marks = np.flatnonzero((source.pattern == pattern) & told)
        if len(marks) < 4:
            continue
        same = np.zeros(len(marks), bool)
        same[1:] = (
            (np.diff(own[marks]) == 0)
            & (np.diff(source.rank[marks]) == 0)
            & (np.diff(source.host[marks]) == 0)
            & (np.diff(segment[marks]) == 0)
        )
        if same.mean() < _REPEATS:
            continue
        turn = np.zeros(len(marks), np.int64)
        place_of_first = np.maximum.accumulate(np.where(~same, np.arange(len(marks)), 0))
        turn = np.arange(len(marks)) - place_of_first
        engine[marks] = np.minimum(turn, 9)
    return engine


def _place_segment(
    inside: np.ndarray, kinds: _Kinds, own: np.ndarray, engine: np.ndarray, placed: Placed
) -> bool:
    """Fills `placed` for the records of one launch; True if steps had to be counted."""
    marks = inside[kinds.own[inside] & (own[inside] >= 0)]
    real = marks[own[marks] > 0]
    placed.step[real] = own[real]
    placed.engine[real] = engine[real]
    placed.steps[real] = _windows(real, own, engine, placed)
    ends = inside[kinds.end[inside]]
    counted = _number_ends(ends, marks, real, kinds, own, engine, placed)
    closing = np.sort(np.concatenate([ends, marks[own[marks] == 0]])) if len(ends) else marks
    before = inside[kinds.before[inside]]
    _take_next(before, closing, placed, open_end=bool(len(ends)))
    after = inside[kinds.after[inside]]
    _take_last(after, real, placed)
    one = inside[kinds.sums[inside] == 1]
    placed.steps[one] = 1
    window = inside[kinds.sums[inside] == 2]
    _take_windows(window, real, placed)
    return counted


def _windows(
    real: np.ndarray, own: np.ndarray, engine: np.ndarray, placed: Placed
) -> np.ndarray:
    """How many steps each mark stands for: the distance to the mark before it."""
    steps = own[real]
    windows = np.full(len(real), NONE, np.int64)
    for one in np.unique(engine[real]):
        mine = np.flatnonzero(engine[real] == one)
        printed, which = np.unique(steps[mine], return_inverse=True)
        gaps = np.diff(printed)
        usual = int(np.median(gaps)) if len(gaps) else int(printed[0])
        first = min(int(printed[0]), usual) if len(gaps) else NONE
        windows[mine] = np.append(first, gaps)[which]
    return windows


def _number_ends(
    ends: np.ndarray,
    marks: np.ndarray,
    real: np.ndarray,
    kinds: _Kinds,
    own: np.ndarray,
    engine: np.ndarray,
    placed: Placed,
) -> bool:
    """Numbers closing lines from the marks between them, counting on from one to the next."""
    if not len(ends):
        return False
    lead = real[kinds.leads[real]]
    anchors = lead if len(lead) else real
    if not len(anchors):
        placed.step[ends] = np.arange(1, len(ends) + 1)
        return not bool(np.any(own[marks] == 0))
    index = np.searchsorted(ends, anchors)
    if not len(lead):
        index -= 1  # other dialects print their own line behind the closing one
    usable = (index >= 0) & (index < len(ends))
    index, anchors = index[usable], anchors[usable]
    if not len(anchors):
        placed.step[ends] = own[real[-1]] + np.arange(1, len(ends) + 1)
        return False
    index, first = np.unique(index, return_index=True)
    anchors = anchors[first]
    nearest = np.maximum(np.searchsorted(index, np.arange(len(ends)), side="right") - 1, 0)
    placed.step[ends] = own[anchors[nearest]] + np.arange(len(ends)) - index[nearest]
    placed.engine[ends] = engine[anchors[nearest]]
    placed.step[ends[placed.step[ends] < 1]] = NONE
    return False


def _take_next(
    records: np.ndarray, closing: np.ndarray, placed: Placed, *, open_end: bool
) -> None:
    if not len(records) or not len(closing):
        return
    index = np.searchsorted(closing, records)
    inside = index < len(closing)
    target = closing[index[inside]]
    placed.step[records[inside]] = placed.step[target]
    placed.engine[records[inside]] = placed.engine[target]
    last = placed.step[closing[-1]]
    if open_end and last > 0:  # a step that the log does not see the end of
        placed.step[records[~inside]] = last + 1


def _take_last(records: np.ndarray, real: np.ndarray, placed: Placed) -> None:
    if not len(records) or not len(real):
        return
    index = np.searchsorted(real, records) - 1
    known = index >= 0
    target = real[index[known]]
    placed.step[records[known]] = placed.step[target]
    placed.engine[records[known]] = placed.engine[target]
    placed.steps[records[known]] = placed.steps[target]


def _take_windows(records: np.ndarray, real: np.ndarray, placed: Placed) -> None:
    """Sums over a window: as many steps as the mark of the same step stands for."""
    if not len(records) or not len(real):
        return
    steps, first = np.unique(placed.step[real], return_index=True)
    index = np.minimum(np.searchsorted(steps, placed.step[records]), len(steps) - 1)
    fits = steps[index] == placed.step[records]
    placed.steps[records] = np.where(fits, placed.steps[real[first[index]]], NONE)
