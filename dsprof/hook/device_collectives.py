"""Collectives on a GPU, timed where they stall its compute stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from dsprof.hook.collectives import Collectives, Issued, Operation
from dsprof.hook.cuda import ASIDE, NONE
from dsprof.hook.device import CALL_AT, COLLECTIVE, DeviceTimeline, Interval
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call
from dsprof.hook.spans import COMMUNICATION
from dsprof.recording import THINNED


class DeviceCollectives(Collectives):
    """Collectives whose waits are intervals on the device: they stall the compute stream, not the
    host.

    A wait on another stream holds up nothing until the compute stream waits for that stream, which
    `streams` records.
    """

    timeline: DeviceTimeline

    def __init__(self, timeline: DeviceTimeline) -> None:
        super().__init__(timeline)
        self._marks = timeline.marks
        self._record = self._hold
        self._mark = NONE  # the mark at which the current wait began
        self._interval: Interval | None = None
        self.streams: set[int] = set()  # that carried collectives, except the compute stream
        self.pending: set[int] = set()  # those of them that nobody has waited for since

    def _issuing(self, operation: Operation, guard: Guard) -> Callable[[Call], Call]:
        begins, around = guard(self.wait_begins), super()._issuing(operation, guard)

        def marked(raw: Call) -> Call:
            issuing = around(raw)

            def call(*args: Any, **kwargs: Any) -> Any:
                begins()
                return issuing(*args, **kwargs)

            return call

        return marked

    def wait_begins(self) -> None:
        """Record where a wait begins. A wait on a thread that does not train is ignored."""
        if not self.timeline.is_elsewhere():
            self._mark = self._marks.mark()

    def before_wait(self, args: Any, _: Any = None) -> tuple[Issued | None, int]:
        held = super().before_wait(args)
        self.wait_begins()
        return held

    def after_wait(self, held: tuple[Issued | None, int]) -> None:
        """Count the time also of a wait for a call that was not seen being issued; it
        has no row.
        """
        track = self.timeline.current
        if held[0] is None and track and not self.timeline.is_elsewhere():
            self._ended(COMMUNICATION)
            interval, self._interval = self._interval, None
            self.timeline.hold(track.number, cast("Interval", interval), ())
        super().after_wait(held)

    def issued(self, *call: Any) -> None:
        """As in the base class; also remember on which streams collectives run."""
        if self._mark == ASIDE and not self.timeline.is_elsewhere():
            here = self._marks.here
            self.streams.add(here)
            self.pending.add(here)
        super().issued(*call)

    def by_others(self, *calls: Any) -> None:
        self._ended(COMMUNICATION)
        super().by_others(*calls)

    def _waited(self, issued: Issued, wait: int, blocked: int, flags: int) -> None:
        self._ended(issued[0].class_)
        self._write(issued, wait, blocked, flags, self.timeline.where())

    def _ended(self, class_: int) -> None:
        above = self.timeline.innermost
        self._interval = Interval(class_, above, self._mark, self._marks.mark())

    def _forget(self, issued: Issued | None) -> None:
        """Python never waited for it. If a stream did, `streams` records that wait."""
        if issued:
            self._write(issued, issued[3], 0, 0, self.timeline.where())

    def _add(self, key: tuple[int, int, int], size: int, *when: int) -> None:
        name, group, engine = key
        begin, wait, _, step = when
        self._hold(
            (COLLECTIVE, THINNED, engine, name, step, 0, begin, wait, -1, -1, size, group, 1, -1)
        )

    def _hold(self, row: tuple[int, ...]) -> None:
        """Hold the row with its interval, or with a hidden one if nothing was waited for."""
        interval, self._interval = self._interval, None
        hidden = Interval(COMMUNICATION, None, ASIDE, ASIDE)
        self.timeline.hold(row[CALL_AT["engine"]], interval or hidden, row)
