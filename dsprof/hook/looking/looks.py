"""In which functions the training thread is where no phase tells what it does: between phases, and
while a data loader without workers makes a batch.

A recording has how long that takes. What it is, a callback, a metric, a data set that opens files,
only the stack shows. A thread of its own looks at it a few times a second, as a sampling profiler
does, and counts what it sees, where it can know that (see `watched`). It reads, and calls nothing
of the job's.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from dsprof.hook.looking.looker import EVERY, Looker
from dsprof.hook.looking.stacks import MOST, Call, Stacks
from dsprof.hook.looking.standing import Standing
from dsprof.hook.looking.watched import Moment, Watched, computes, stands
from dsprof.hook.spans import DATA, Timeline
from dsprof.recording import Unit, Writer
from dsprof.recording.layout import BETWEEN_CALLS, OVER, PHASE

AGAIN: Final = 2e-3  # seconds after which it looks whether the thread has stood still
WRITE_EVERY: Final = 5_000_000_000  # ns between two writes at first, and later
PART: Final = 20  # a part of all the time so far: rows stay few however long a run is
STACKS: Final = 8  # that one write tells, the most frequent; of others only how many there were


class Seen(NamedTuple):
    """What one look saw: the outermost phase, or the last one if that is over, and the stack."""

    phase: int  # id of its name
    is_over: bool
    stack: tuple[Call, ...]  # the innermost first; none if the phase tells enough, or unknown


class Looks:
    """A thread that looks; the training thread counts what it saw, and records it now and then.

    Attributes:
        looker: that thread.
        due: when to write next, in ns of `perf_counter_ns`.
    """

    def __init__(self, timeline: Timeline, every: float = EVERY) -> None:
        self._timeline = timeline
        self._counts: Counter[Seen] = Counter()
        self._of_step: list[Seen] = []  # what was seen since a step ended
        self._known: dict[Seen, Seen] = {}  # one of each, however often it is seen
        self._stacks, self._watched = Stacks(), Watched()
        self._standing = Standing(timeline.writer, self._stacks)
        #: What was seen just now, and is to be looked at again.
        self._unsure: tuple[Seen, Moment | None] | None = None
        self._begun = self.due = 0
        self.looker = Looker(self._look, "looking at what runs between phases", every)

    def start(self) -> None:
        self._watched.find_clock(self._timeline.thread)
        self.looker.start()

    def stop(self) -> None:
        self.looker.stop()

    def end_step(self) -> None:
        """Count what was seen since the step before; behind the last one it is of no step."""
        of_step, self._of_step = self._of_step, []
        self._counts.update(of_step)
        self._watched.find_clock(self._timeline.thread)

    def write(self, writer: Writer, at: int) -> None:
        """Record what was counted since the last time. `at`: ns of `perf_counter_ns`."""
        self._begun = self._begun or at
        self.due = at + max(WRITE_EVERY, (at - self._begun) // PART)
        counts, self._counts = self._counts, Counter()
        texts = _few(counts, frozenset(self._stacks.loops))
        for (phase, is_over, text), count in texts.items():
            name = writer.name("looks_after" if is_over else "looks", phase)
            told = writer.name(text) if text else 0
            writer.metric(name, count, unit=int(Unit.COUNT), at_ns=at, text=told)
        if self.looker.failed:
            writer.config("looks", f"none: {self.looker.failed}")
            self.looker.failed = ""

    def _look(self, late: float) -> float | None:
        """Look, or once more at what is unsure; AGAIN if it is to be looked at once more."""
        if self._unsure:
            self._look_again(*self._unsure, late)
        else:
            self._look_first(late)
        return AGAIN if self._unsure else None

    def _look_first(self, late: float) -> None:
        """Note where the training thread is, and its stack unless a phase says what it does."""
        timeline = self._timeline
        glance = self._watched.glance(timeline.thread, late)
        self._standing.look(timeline.thread, self._watched, glance)
        word = timeline.writer.ring.cell[PHASE]
        phase, over, inner = word & (OVER - 1), bool(word & OVER), timeline.stack[-1:]
        if not phase or bool(inner) == over:  # before any, or just now another one
            return
        stack: tuple[Call, ...] = ()
        if inner and inner[0].phase.class_ != DATA:
            self._stacks.find_loops(timeline.thread)
        elif glance.at and (glance.exact or glance.forced):
            stack = self._stacks.innermost(timeline.thread, inside=not over, exact=glance.exact)
        seen, now = Seen(phase, over, stack), self._watched.moment(timeline.thread)
        if not stack or glance.forced or computes(glance.at, now):
            self._note(seen)
        else:
            self._unsure = seen, now

    def _look_again(self, seen: Seen, before: Moment | None, late: float) -> None:
        """Whether it has stood still while nobody held the lock, else it had waited for that; a
        look that comes late itself shows that it may have waited for a CPU."""
        self._unsure, now = None, self._watched.moment(self._timeline.thread)
        exact, _ = self._watched.comes(late)
        self._note(seen if exact and stands(before, now) else seen._replace(stack=()))

    def _note(self, seen: Seen) -> None:
        self._of_step.append(self._known.setdefault(seen, seen))
        if len(self._known) > MOST:
            self._known.clear()


def _few(
    counts: Counter[Seen], loops: frozenset[tuple[str, str]]
) -> Counter[tuple[int, bool, str]]:
    """The most frequent stacks as texts; of others their own calls, if these are frequent, and
    else only how many there are."""
    whole: Counter[Seen] = Counter()
    for seen, count in counts.items():
        inner = [one for n, one in enumerate(seen.stack) if not n or one[:2] not in loops]
        whole[seen._replace(stack=tuple(inner))] += count
    own: Counter[Seen] = Counter()
    told: Counter[tuple[int, bool, str]] = Counter()
    for counted, more in ((whole, own), (own, None)):
        listed = 0
        for seen, count in counted.most_common():
            listed += bool(seen.stack)
            if listed <= STACKS or not seen.stack:
                told[seen.phase, seen.is_over, BETWEEN_CALLS.join(map(str, seen.stack))] += count
            elif more is not None:
                more[seen._replace(stack=tuple(one for one in seen.stack if one.is_own))] += count
            else:
                told[seen.phase, seen.is_over, ""] += count
    return told
