"""What each record of a source is to its optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from dsprof.events import Kind
from dsprof.grammar import Grammar, Pattern, TimerFlavour

NONE: Final = -1
_TELLING: Final = 2  # timers, as few of them as show whose line it is


@dataclass(slots=True)
class Source:
    """Records of one source, in order: parallel arrays; -1 where unknown.

    `pattern` and `signature` are numbers into the grammar's patterns and into the sets of
    timer names; `at` is in microseconds (`clocks.UNKNOWN` if unknown); `bar` and `total` are
    a progress bar's position and length; `skipped` counts the steps skipped so far; `epoch` is
    NaN if unknown.
    """

    pattern: np.ndarray
    step: np.ndarray
    rank: np.ndarray
    host: np.ndarray
    signature: np.ndarray
    at: np.ndarray
    bar: np.ndarray
    total: np.ndarray
    skipped: np.ndarray
    epoch: np.ndarray

    def at_places(self, places: np.ndarray) -> Source:
        """Some of the records."""
        return Source(*(getattr(self, one.name)[places] for one in fields(self)))


def those(launch: slice, mask: np.ndarray) -> np.ndarray:
    """Places of the records of a launch for which its mask is true."""
    places: np.ndarray = launch.start + np.flatnonzero(mask)
    return places


@dataclass(slots=True)
class Kinds:
    """What each record is to its step, as masks over the records."""

    own: np.ndarray  # marks a step
    bare: np.ndarray  # marks one without its number
    after: np.ndarray  # belongs to the last step printed
    before: np.ndarray  # belongs to the next closing line
    end: np.ndarray  # a timer line that closes a step
    turn: np.ndarray  # marks a turn of a loop around engines
    from_zero: np.ndarray  # is of a pattern whose steps count from 0
    part: np.ndarray  # a mark or a timer line of an engine, whose steps are parts of a turn
    leads: np.ndarray  # a mark that stands before the closing line of its step
    starts: np.ndarray  # a launch begins
    stepped: np.ndarray  # shows that steps were made
    calls: np.ndarray  # tells of communication by itself, not in a timer
    losses: np.ndarray  # a loss that a loop prints beside the lines of steps
    failed: np.ndarray  # shows that a launch went wrong
    over: np.ndarray  # shows that a training is over
    left_out: np.ndarray  # stands for lines that somebody left out
    sums: np.ndarray  # 0 nothing, 1 one step, 2 a window
    anew: np.ndarray  # a mark whose steps begin anew with each epoch, as do the means on it
    width: np.ndarray  # its times are means over at most so many steps; 0 if over any number

    def real(self, step: np.ndarray) -> np.ndarray:
        """Which records mark a step that was made, given the step of each mark. Some loops count
        theirs from 0."""
        made: np.ndarray = self.own & (step >= 0) & ~self.initial(step)
        return made

    def initial(self, step: np.ndarray) -> np.ndarray:
        """Which records are the step 0 that is printed before training."""
        born: np.ndarray = self.own & (step == 0) & (self.bare | ~self.from_zero)
        return born

    @classmethod
    def of(cls, source: Source, grammar: Grammar, flavour: np.ndarray) -> Kinds:
        patterns = grammar.patterns
        flavours = list(grammar.timers.values())
        number = source.pattern.astype(np.intp)  # once, not in each `take`
        which = flavour.astype(np.intp)

        met = np.flatnonzero(np.bincount(number)).tolist()  # a few, of hundreds

        def per_pattern(test: Callable[[Pattern], bool]) -> np.ndarray:
            table = np.zeros(len(patterns) or 1, bool)
            table[met] = [test(patterns[i]) for i in met]
            mask: np.ndarray = table.take(number)
            return mask

        widths = np.array([one.window for one in patterns] or [0], np.int64)

        def per_flavour(test: Callable[[TimerFlavour], bool]) -> np.ndarray:
            table = np.array([*(test(t) for t in flavours), False], bool)
            mask: np.ndarray = table.take(which)
            return mask

        timer = flavour >= 0
        once = per_flavour(lambda t: t.sums == "once")
        unknown = per_pattern(lambda p: p.place == "timer") & ~timer
        own, turn = per_pattern(lambda p: p.place == "own"), per_pattern(lambda p: p.turn)
        turn = turn & own if (turn & own).any() else turn  # what follows a turn marks it else
        own |= turn
        sums = np.zeros(len(flavour), np.int8)
        alone = per_pattern(lambda p: p.alone)
        sums[own & alone] = 1
        sums[per_flavour(lambda t: t.sums == "step")] = 1
        sums[per_flavour(lambda t: t.sums == "mean") & (alone | ~own)] = 1
        sums[per_flavour(lambda t: t.sums == "window")] = 2
        end = per_flavour(lambda t: t.place == "end" and t.sums != "once")
        behind = per_flavour(lambda t: t.place == "after" and t.sums != "once")
        parts = np.zeros(len(flavour), bool)
        if not own.any() and not end.any():  # timers alone: a line of means stands for a step each
            means = behind & per_flavour(lambda t: t.sums == "mean")
            parts = _parts_of_blocks(means & per_pattern(lambda p: p.block is not None), source)
            end = means & ~parts
        after = per_pattern(lambda p: p.place == "after") & ~turn
        ahead = per_flavour(lambda t: t.place == "before" and t.sums != "once")
        starts = per_pattern(lambda p: p.starts)
        loops = {p.id.partition(".")[0] for p in patterns if p.turn}
        engines = per_pattern(lambda p: p.id.partition(".")[0] not in loops)
        part = _launch_of(turn, starts) & engines & (own | after | end | ahead)
        own, end = own & ~part, end & ~part
        free = ~own  # a mark is of its own step, wherever the flavour of its timers has its place
        homes = {p.id.partition(".")[0] for p in patterns if p.place == "timer"}
        return cls(
            own=own,
            bare=own & ~per_pattern(_names_step),
            after=(after & ~part) | (behind & ~end & free & ~parts),
            before=per_pattern(lambda p: p.place == "before")
            | (ahead & free)
            | unknown
            | part
            | parts,
            end=end & free,
            turn=turn,
            from_zero=per_pattern(lambda p: p.from_zero),
            part=part,
            leads=own & per_pattern(lambda p: p.id.partition(".")[0] in homes),
            starts=starts,
            stepped=own | (timer & ~once) | after,
            calls=per_pattern(lambda p: any(row.kind == Kind.COMM for row in p.rows)),
            losses=per_pattern(
                lambda p: p.place == "before" and any(row.name == "loss" for row in p.rows)
            ),
            failed=per_pattern(goes_wrong),
            over=per_pattern(is_summary),
            left_out=per_pattern(lambda p: any(row.name == "left_out" for row in p.rows)),
            sums=sums,
            anew=own & per_pattern(lambda p: p.timers and _counts_in_epochs(p)),
            width=widths.take(number),
        )


def _counts_in_epochs(pattern: Pattern) -> bool:
    return pattern.regex is not None and "epoch_steps" in pattern.regex.names


def _names_step(pattern: Pattern) -> bool:
    """Whether its line says which step it is of."""
    said = (pattern.lead, pattern.regex)
    return any(one is not None and "step" in one.names for one in said)


def _parts_of_blocks(lines: np.ndarray, source: Source) -> np.ndarray:
    """Lines of blocks, all but the last of each: a block has a timer of a rank once."""
    parts = lines.copy()
    told: set[tuple[int, int]] = set()
    last = NONE
    for at in np.flatnonzero(lines).tolist():
        timer = int(source.signature[at]), int(source.rank[at])
        if timer in told:
            parts[last] = False
            told.clear()
        told.add(timer)
        last = at
    parts[last:] = False
    return parts


def _launch_of(turn: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Where turns are made: from the start of the launch that makes the first one."""
    inside = np.zeros(len(turn), bool)
    if turn.any():
        started = np.flatnonzero(starts[: int(np.argmax(turn))])
        inside[started[-1] if len(started) else 0 :] = True
    return inside


def goes_wrong(pattern: Pattern) -> bool:
    """Critical, or a launcher that ends its processes: it does so only when one has failed."""
    told = {row.name for row in pattern.rows}
    return pattern.severity == "critical" or "killed-by-launcher" in told


def is_summary(pattern: Pattern) -> bool:
    """What a trainer says when its training is over."""
    return any(row.name == "train_runtime" for row in pattern.rows)


def flavours_of(source: Source, grammar: Grammar, signatures: list[frozenset[str]]) -> np.ndarray:
    """Timer flavour of each record, by the set of names its line holds and by the line before."""
    order = {name: i for i, name in enumerate(grammar.timers)}
    plain = [_flavour_of(names, signatures, grammar) for names in signatures]
    behind = [grammar.following(names) for names in signatures]
    table = np.array([*(order[f.name] if f else NONE for f in plain), NONE], np.int8)
    flavour = table[source.signature]
    follower = np.array([*(order[f.name] if f else NONE for f in behind), NONE], np.int8)
    lead = np.array([*(order.get(f.follows, NONE) if f else NONE for f in behind), NONE], np.int8)
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
    found: np.ndarray = flavour
    return found


def _flavour_of(
    names: frozenset[str], signatures: list[frozenset[str]], grammar: Grammar
) -> TimerFlavour | None:
    """Of a line that lost timers to another process' line: what those that hold them all are."""
    told = grammar.flavour(names)
    names = frozenset(name for name in names if ":" not in name)  # a value with a line in it
    if told is not None or len(names) < _TELLING:
        return told
    fuller = {
        one.name: one for other in signatures if names < other and (one := grammar.flavour(other))
    }
    return next(iter(fuller.values())) if len(fuller) == 1 else None
