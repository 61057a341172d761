"""Where one launch ends and the next begins, and which engine prints."""

from __future__ import annotations

from typing import Final

import numpy as np

from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.kinds import NONE, Kinds, Source

_CLOCKS_DIFFER: Final = 5_400_000_000  # microseconds: hosts' clocks, the end of summer time
_DAYS: Final = 2 * 86_400_000_000  # microseconds: more than zones of two clocks are apart
_LATEST: Final = 32  # marks by which one may be late
_TELLING: Final = 8  # changes of a clock or a step number that show which way it runs
_FEW: Final = 3  # of each, where both run backwards without exception
_FEW_ALONE: Final = 5  # of the step number, where times do not tell
_BACKWARDS: Final = 0.95  # of them, if lines stand in reverse order
_REPEATS: Final = 0.3  # of a source's marks: then two engines take turns
_ENGINES: Final = 64  # that are told apart


def segments_of(source: Source, kinds: Kinds, own: np.ndarray) -> np.ndarray:
    """0 for the first launch; the next number where a launch line, a step=0 line, a falling step
    number, a falling count of skipped steps or marks of other kinds at another time show that
    another one began."""
    before = np.full(len(own), NONE, np.int64)  # the mark that a fallen one fell from
    real, born = kinds.real(own), kinds.initial(own)
    for pattern in np.unique(source.pattern[real]):
        marks = np.flatnonzero((source.pattern == pattern) & real)
        marks = marks[~late_marks(own[marks])]
        fallen = np.flatnonzero((np.diff(own[marks]) < 0) & _few(own[marks]))
        fallen = np.union1d(fallen, np.flatnonzero(_back_in_time(source.at[marks])))
        fallen = np.union1d(fallen, np.flatnonzero(_counts_anew(source.skipped[marks])))
        before[marks[fallen + 1]] = marks[fallen]
    dated = np.flatnonzero(real & (source.at != UNKNOWN))
    last = _other_kinds(source.pattern[dated], source.at[dated])
    before[dated[last + 1]] = dated[last]
    candidates = np.flatnonzero(kinds.starts | born | (before >= 0))
    shown = np.flatnonzero(kinds.stepped & ~born), np.flatnonzero(kinds.failed)
    steps_seen = fails_seen = 0
    starts_seen: set[int] = set()
    opens: list[int] = []
    for at in candidates.tolist():
        if before[at] >= 0:
            if not opens or before[at] >= opens[-1]:  # else it fell because of that opening
                opens.append(_first_of_launch(at, kinds))
                steps_seen, fails_seen = (int(np.searchsorted(some, at + 1)) for some in shown)
                starts_seen = set()
            continue
        stepped_by_now, failed_by_now = (int(np.searchsorted(some, at)) for some in shown)
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
    return np.cumsum(segment, dtype=np.int32)


def is_upside_down(at: np.ndarray, steps: np.ndarray) -> bool:
    """Whether the records of a source stand in reverse order: clock or steps run backwards, and
    neither runs forwards. Where few records tell, all of them must.

    Args:
        at: times, `clocks.UNKNOWN` where there is none.
        steps: step numbers, -1 where there is none.
    """
    told = [np.diff(known) for known in (at[at != UNKNOWN], steps[steps >= 0])]
    moved = [change[change != 0] < 0 for change in told]
    clock, step = map(len, moved)
    if step >= (_FEW if clock >= _FEW else _FEW_ALONE) and all(back.all() for back in moved):
        return True
    ways = [back.mean() >= _BACKWARDS for back in moved if len(back) >= _TELLING]
    return bool(ways) and all(ways)


def trainings_of(source: Source, kinds: Kinds) -> np.ndarray:
    """Marks that begin another training of the same process: the first behind the summary of one
    that is over, if its epoch is not a later one."""
    anew = np.zeros(len(kinds.over), bool)
    marks = np.flatnonzero(kinds.own & np.isfinite(source.epoch))
    ends = np.searchsorted(marks, np.flatnonzero(kinds.over))
    first = np.unique(ends[(ends > 0) & (ends < len(marks))])
    anew[marks[first]] = source.epoch[marks[first]] <= source.epoch[marks[first - 1]]
    return anew


def _first_of_launch(at: int, kinds: Kinds) -> int:
    """Where the lines of the step begin whose mark at `at` shows a new launch."""
    closed = np.flatnonzero(kinds.own[:at] | kinds.end[:at])
    first = int(closed[-1]) + 1 if len(closed) else 0
    while first < at and kinds.after[first]:
        first += 1
    return first


def _back_in_time(at: np.ndarray) -> np.ndarray:
    """Where marks are older than the one before, and the next one, if there is one, too: runs
    pasted one behind another. One alone was only printed late."""
    then = np.append(at[1:], UNKNOWN)[1:]  # the mark behind the next
    known = (at[1:] != UNKNOWN) & (at[:-1] != UNKNOWN)
    back: np.ndarray = known & (np.maximum(at[1:], then) < at[:-1] - _CLOCKS_DIFFER)
    return back


def _other_kinds(pattern: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Marks days apart from the next one, behind which none is of a pattern met so far: a process
    goes on as it began, so what follows is of another job.

    Args:
        pattern, at: of marks that tell their time, in order.
    """
    _, kind = np.unique(pattern, return_inverse=True)
    place = np.arange(len(kind))
    last = np.zeros(len(kind), np.int64)
    last[kind] = place  # of each kind, the place of its last mark
    over = np.maximum.accumulate(last[kind]) == place
    found: np.ndarray = np.flatnonzero(over[:-1] & (np.abs(np.diff(at)) > _DAYS))
    return found[(found > 0) & (found < len(kind) - 2)]  # a lone mark may be of anything


def _counts_anew(skipped: np.ndarray) -> np.ndarray:
    """Where fewer steps were skipped than by both marks before: one of them may be a quotation.
    Two engines that take turns count each its own."""
    before = np.minimum(skipped[:-1], np.concatenate([skipped[:1], skipped[:-2]]))
    fewer: np.ndarray = (skipped[1:] < before) & (skipped[1:] >= 0) & _few(skipped)
    return fewer


def late_marks(steps: np.ndarray) -> np.ndarray:
    """Which marks were printed late: their step falls behind, and the marks behind them go on
    where those before them stopped. A launch would go on from the fallen step itself.

    Args:
        steps: of the marks of one pattern, in order.
    """
    late = np.zeros(len(steps), bool)
    falls = np.flatnonzero(np.diff(steps) < 0)
    if not len(falls) or not _few(steps):
        return late
    gap = int(np.median(np.abs(np.diff(steps))))
    for before in falls.tolist():
        if late[before]:
            continue
        above = np.flatnonzero(steps[before + 1 : before + 1 + _LATEST] > steps[before])
        if not len(above):  # it stays below; a single one at the end shows nothing
            late[before + 1] = before + 2 == len(steps)
            continue
        beyond = before + 1 + int(above[0])
        goes_on = steps[beyond] - steps[before] <= gap
        if goes_on and steps[beyond] - steps[beyond - 1] > gap:
            late[before + 1 : beyond] = True
    return late


def _few(steps: np.ndarray) -> bool:
    """Whether steps seldom fall: two engines that take turns fall all the time."""
    return int((np.diff(steps) < 0).sum()) <= 0.2 * max(len(steps), 1)


def engines_of(source: Source, kinds: Kinds, own: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """0, or the turn of an engine where several print the same step numbers one after another.

    A trainer's own line that is there several times is printed by several ranks."""
    engine = np.zeros(len(own), np.int8)
    told = kinds.leads & (source.step > 0)
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
        place_of_first = np.maximum.accumulate(np.where(~same, np.arange(len(marks)), 0))
        turn = np.arange(len(marks)) - place_of_first
        engine[marks] = np.minimum(turn, _ENGINES - 1)
    return engine
