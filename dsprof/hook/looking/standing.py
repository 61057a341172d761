"""In which calls the training thread is while neither its phase nor its collective changes for
long, as where training hangs.

The in-flight cell says in which phase and collective that is. Which code it is, and which line of
the job made that call, only the stack shows; whoever ends the job ends that, too. So it is recorded
while it lasts: the calls that the thread was in at each look, those that came and went left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Final

from dsprof.hook.looking.stacks import Call, Stacks, few
from dsprof.hook.looking.watched import Glance, Watched
from dsprof.recording import Writer
from dsprof.recording.layout import BETWEEN_CALLS, NAME_BITS, OVER, PHASE, until_next_stand

STILL: Final = 10_000_000_000  # ns; few phases and collectives of a step that goes on last so long
SOON: Final = STILL // 2  # ns; from then on it is looked at
LEAST: Final = 5  # looks that saw it, and more than half of all
LONGER: Final = 1.2  # times as long as ever before in that phase and collective
LATEST: Final = 600_000_000_000  # ns after which it is told in any case
AT_ONCE: Final = 20  # rows that may be written at any time; one a minute is free besides
MINUTE: Final = 60_000_000_000  # ns
TEXTS: Final = 200  # different stacks; each part of a recording repeats them

_NAME: Final = (1 << NAME_BITS) - 1


class Common:
    """The calls that a thread was in at each of some looks that saw it."""

    def __init__(self) -> None:
        self._looks = self._seen = 0
        self._calls: Sequence[Call] = ()

    def add(self, calls: Sequence[Call] | None) -> None:
        """One look; None if it saw nothing."""
        self._looks += 1
        if calls is not None:
            self._calls = _common(self._calls, calls) if self._seen else calls
            self._seen += 1

    @property
    def is_seen(self) -> bool:
        """Whether enough looks saw it."""
        return self._seen >= max(LEAST, self._looks / 2)

    @property
    def stack(self) -> str:
        """As a recording tells it; "" if there are no such calls."""
        return BETWEEN_CALLS.join(map(str, few(self._calls))) if self.is_seen else ""


class Standing:
    """Records them when that has lasted for 10 s, and then again and again."""

    def __init__(self, writer: Writer, stacks: Stacks) -> None:
        self._writer, self._stacks = writer, stacks
        self._begun, self._rows = perf_counter_ns(), 0
        self._texts: set[str] = set()
        self._longest: dict[tuple[int, int], int] = {}  # collective and phase → ns that it lasted
        self._begin((0, 0, 0), self._begun)

    def _begin(self, cell: tuple[int, ...], at: int) -> None:
        """What usually takes long is told once it takes longer than that."""
        place = cell[0] & _NAME, cell[PHASE] & _NAME | cell[PHASE] & OVER
        usual = self._longest.get(place, 0)
        self._cell, self._since, self._place = cell, at, place
        self._due = max(STILL, min(usual * LONGER, LATEST))
        self._common, self._is_told = Common(), False

    def look(self, thread: int, watched: Watched, glance: Glance) -> None:
        """One look, from another thread."""
        now, cell = perf_counter_ns(), tuple(self._writer.ring.cell)
        if cell != self._cell:
            left = self._is_told and not self._writer.ring.keeps_cell
            self._note_how_long(now - self._since)
            self._begin(cell, now)
            if left:  # else what was told would seem to last
                self._write(now, "")
        lasted = now - self._since
        if lasted < SOON:
            return
        self._common.add(seen_at(glance, thread, watched, self._stacks))
        if lasted >= self._due and self._tell(now):
            self._due = lasted + until_next_stand(lasted)

    def _note_how_long(self, lasted: int) -> None:
        known = self._longest.get(self._place)
        if lasted > SOON and (known is not None or len(self._longest) < TEXTS):
            self._longest[self._place] = max(lasted, known or 0)

    def _tell(self, now: int) -> bool:
        """Whether it was told. Where there is no cell, it is even if nobody knows in which code."""
        text = self._common.stack
        if text not in self._texts and len(self._texts) == TEXTS:
            text = ""
        many = self._rows >= AT_ONCE + (now - self._begun) // MINUTE
        if many or not (text or not self._writer.ring.keeps_cell):
            return False
        self._rows += 1
        self._texts.add(text)
        self._is_told = True
        self._write(now, text)
        return True

    def _write(self, now: int, text: str) -> None:
        if self._writer.ring.has_room():
            self._writer.stand(self._since, (now - self._since) * 1e-9, text)
            self._writer.flush_beside()


def seen_at(glance: Glance, thread: int, watched: Watched, stacks: Stacks) -> Sequence[Call] | None:
    """All calls that a thread is in; None if what is seen need not be what runs."""
    if not glance.may_see:
        return None
    calls = stacks.every(thread, exact=glance.stood or glance.exact)
    return calls if watched.was_there(glance, thread) else None


def _common(one: Sequence[Call], other: Sequence[Call]) -> list[Call]:
    """The calls of both, the innermost first, until they part; of the last one before that the
    line, too, only if it is the same."""
    found = []
    for mine, theirs in zip(reversed(one), reversed(other)):
        if mine[:2] != theirs[:2]:
            break
        found.append(mine if mine.line == theirs.line else mine._replace(line=0))
        if mine.line != theirs.line:
            break
    return found[::-1]
