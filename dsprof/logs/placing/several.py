"""Which of several files are of one launch, and which of a later one.

The files of one launch were written at the same time, by several ranks. A file that begins when
those before it have ended is of a later launch, if who prints steps there began anew; and so is
one in which a rank prints the steps that it prints in another file, at other times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.kinds import Source


@dataclass(frozen=True, slots=True)
class Extent:
    """What one file spans.

    Attributes:
        begin, end: its first and last time, microseconds; `UNKNOWN` if it tells none.
        steps, times: that it marks, in order, and when; `UNKNOWN` where no line tells.
        starts: a line before its first step or timer says that a launch begins.
        who: ranks and hosts that mark its steps or time them, None for what is not told.
        by: numbers of the patterns that do.
        unnumbered: who prints marks that tell no step, or, where a rank is told, timer lines, and
            by which pattern: each several times.
        whole: its training ended by itself.
    """

    begin: int
    end: int
    steps: np.ndarray
    times: np.ndarray
    starts: bool
    who: frozenset[tuple[int | None, str | None]]
    by: frozenset[int]
    unnumbered: frozenset[tuple[str | None, int, int]] = frozenset()
    whole: bool = False

    @property
    def first(self) -> int:
        """The first step that it marks, 0 if it marks none."""
        return int(self.steps[0]) if len(self.steps) else 0

    @property
    def last(self) -> int:
        """The highest one."""
        return int(self.steps.max(initial=0))


def extent_of(
    source: Source, own: np.ndarray, starts: np.ndarray, ends: np.ndarray, hosts: Sequence[str]
) -> Extent:
    """What the records of a file span.

    Args:
        own: which records mark a step.
        starts: which of them say that a launch begins.
        ends: which of them say that the training is over.
        hosts: what the codes of hosts stand for.
    """
    dated = source.at[source.at != UNKNOWN]
    marks = np.flatnonzero(own & (source.step > 0))
    telling = np.flatnonzero((own & (source.step != 0)) | (source.signature >= 0))
    before = int(telling[0]) if len(telling) else len(own)
    return Extent(
        begin=int(dated.min()) if len(dated) else UNKNOWN,
        end=int(dated.max()) if len(dated) else UNKNOWN,
        steps=source.step[marks],
        times=source.at[marks],
        starts=bool(starts[:before].any()),
        who=frozenset(
            (rank if rank >= 0 else None, hosts[host] if host >= 0 else None)
            for host, rank in _pairs(source.host[telling], source.rank[telling])
        ),
        by=frozenset(np.unique(source.pattern[telling]).tolist()),
        unnumbered=_unnumbered(source, own, hosts),
        whole=bool(ends.any()),
    )


def _unnumbered(
    source: Source, own: np.ndarray, hosts: Sequence[str]
) -> frozenset[tuple[str | None, int, int]]:
    """Host, rank and pattern of the lines of steps that tell no step, if there are several."""
    timed = (source.signature >= 0) & (source.rank >= 0)
    lines = np.flatnonzero((own | timed) & (source.step < 0))
    codes, counts = np.unique(
        (source.pattern[lines].astype(np.int64) << 48)
        + (source.host[lines].astype(np.int64) + 1 << 32)
        + (source.rank[lines] + 1),
        return_counts=True,
    )
    return frozenset(
        (hosts[host - 1] if host else None, (code & 0xFFFF_FFFF) - 1, code >> 48)
        for code in codes[counts > 1].tolist()
        for host in (code >> 32 & 0xFFFF,)
    )


def _pairs(hosts: np.ndarray, ranks: np.ndarray) -> Iterator[tuple[int, int]]:
    """Each pair that there is, once."""
    for code in np.unique((hosts.astype(np.int64) << 32) + ranks + 1).tolist():
        yield code >> 32, (code & 0xFFFF_FFFF) - 1


def launches_of(files: Sequence[Extent]) -> list[int]:
    """A number for each file, 0 for those of the first launch.

    A file that tells of no step, or no time, is of the last launch that had begun when it
    ended; without time of the first.
    """
    numbers = [0] * len(files)
    telling = [i for i, one in enumerate(files) if one.who and one.begin != UNKNOWN]
    telling.sort(key=lambda i: files[i].begin)
    same = _Same(files)
    begins: list[int] = []
    launch: set[int] = set()
    end = UNKNOWN  # of the launch
    for i in telling:
        one = files[i]
        alike = [files[other] for other in same.of(i) & launch]
        if not launch or _begins_anew(one, alike, end):
            begins.append(one.begin)
            launch, end = set(), UNKNOWN
        launch.add(i)
        end = max(end, one.end)
        numbers[i] = len(begins) - 1
    known = set(telling)
    for i, one in enumerate(files):
        if i not in known and one.end != UNKNOWN:
            numbers[i] = max(sum(begin <= one.end for begin in begins) - 1, 0)
    return numbers


def _begins_anew(one: Extent, alike: Sequence[Extent], end: int) -> bool:
    """Whether a file is no part of a launch, whose other files begin before it.

    Args:
        alike: those of its files in which the same rank may mark steps.
        end: when its last file ends.
    """
    if one.begin >= end:  # else a rotated log goes on
        return any(one.starts or 0 < one.first <= other.last for other in alike)
    return any(_is_another(one, other) for other in alike)


def _is_another(one: Extent, other: Extent) -> bool:
    """Whether a rank that both files name marks the steps they share at other times."""
    ranks = ({rank for rank, _ in each.who} - {None} for each in (one, other))
    shared, here, there = np.intersect1d(one.steps, other.steps, return_indices=True)
    times, others = one.times[here], other.times[there]
    differ = (times != others) & (times != UNKNOWN) & (others != UNKNOWN)
    return bool(set.intersection(*ranks)) and 2 * int(differ.sum()) > len(shared)


def rivals(files: Sequence[Extent]) -> Iterator[tuple[int, int]]:
    """Pairs of files in which one and the same rank may tell the same steps, in one launch, or
    at the same time at which the other was written: that is no restart."""
    launches, same = launches_of(files), _Same(files)
    steps = [one.steps.tobytes() for one in files]
    shared: dict[tuple[bytes, bytes], bool] = {}  # of thousands of files most tell the same ones
    for i, one in enumerate(files):
        for j in sorted(j for j in same.of(i) if j > i):
            other = files[j]
            if launches[i] == launches[j]:
                pair = steps[i], steps[j]
                if pair not in shared:
                    shared[pair] = _share_steps(one, other)
                numbered = shared[pair]
            else:
                numbered = _beside(one, other) and _is_another(one, other)
            if numbered or _count_both(one, other):
                yield i, j


def _share_steps(one: Extent, other: Extent) -> bool:
    return len(np.intersect1d(one.steps, other.steps)) > 1


def _count_both(one: Extent, other: Extent) -> bool:
    """Whether the same steps are the first ones of both: one who numbers none prints in both, and
    neither file goes on where the other ended."""
    if len(one.steps) or len(other.steps) or not one.unnumbered & other.unnumbered:
        return False
    first, later = sorted((one, other), key=lambda file: file.begin)
    follows = first.begin != UNKNOWN and first.end <= later.begin
    return first.whole or not follows


def _beside(one: Extent, other: Extent) -> bool:
    """Whether one was written in half the time, or more, in which the other was."""
    both = min(one.end, other.end) - max(one.begin, other.begin)
    known = UNKNOWN not in (one.begin, other.begin)
    return known and 0 < 2 * both >= min(one.end - one.begin, other.end - other.begin)


class _Same:
    """In which files the same rank may mark steps, with the same kind of line: by rank where both
    name it, else by host. Looked up, for there may be thousands of files."""

    def __init__(self, files: Sequence[Extent]) -> None:
        self._files = files
        self._ranks: defaultdict[int | None, set[int]] = defaultdict(set)
        self._hosts: defaultdict[str | None, set[int]] = defaultdict(set)
        self._rankless: defaultdict[str | None, set[int]] = defaultdict(set)
        for i, one in enumerate(files):
            for rank, host in one.who:
                self._ranks[rank].add(i)
                self._hosts[host].add(i)
                if rank is None:
                    self._rankless[host].add(i)

    def of(self, i: int) -> set[int]:
        """The others of which that is so."""
        found: set[int] = set()
        for rank, host in self._files[i].who:
            hosts = self._hosts if rank is None else self._rankless
            if rank is not None:
                found |= self._ranks[rank]
            found |= hosts[host] | hosts[None] if host is not None else set().union(*hosts.values())
        by = self._files[i].by
        return {j for j in found if j != i and by & self._files[j].by}
