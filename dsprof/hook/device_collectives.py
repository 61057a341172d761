"""Collectives on a GPU, timed where they stall its compute stream."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any, cast

from dsprof.hook.collectives import Collectives, Issued
from dsprof.hook.cuda import ASIDE, NONE
from dsprof.hook.device import CALL_AT, COLLECTIVE, DeviceTimeline, Interval
from dsprof.hook.guard import Guard
from dsprof.hook.operations import Operation
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import COMMUNICATION, Ended
from dsprof.recording import THINNED


class DeviceCollectives(Collectives):
    """Collectives whose waits are intervals on the device: they stall the compute stream, not the
    host.

    A wait on another stream holds up nothing until the compute stream waits for that stream, which
    `streams` records.

    NCCL starts calls that are coalesced together, and only their end gives a Work. The last of them
    stands for the wait of all.
    """

    timeline: DeviceTimeline

    def __init__(self, timeline: DeviceTimeline) -> None:
        super().__init__(timeline)
        self._marks = timeline.marks
        self._record = self._hold
        self._mark = NONE  # the mark at which the current wait began
        self._interval: Interval | None = None
        self.streams: set[int] = set()  # that carried collectives, except the compute stream
        self.carried = 0  # collectives on such streams so far
        # Streams that nobody has waited for since, and `carried` when they last had a collective.
        self.pending: dict[int, int] = {}
        self._synchronized = 0  # ns; when the host last waited for the whole device
        self._together: list[Issued] | None = None  # calls that are being coalesced

    def patch(self, patches: Patches, guard: Guard) -> None:
        from torch._C._distributed_c10d import ProcessGroup

        super().patch(patches, guard)
        if "_start_coalescing" not in vars(ProcessGroup):
            return
        begins, ends = self.wait_begins, self._started
        patches.of_class(
            ProcessGroup, "_start_coalescing", lambda raw: guard.ahead(raw, self._coalesces)
        )
        patches.of_class(
            ProcessGroup, "_end_coalescing",
            lambda raw: guard.ahead(guard.behind(raw, ends, None), begins),
        )  # fmt: skip

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
        operation, group, args, kwargs, work, begin = call
        coalesced = self._together is not None  # then a Work is nothing that anybody waits for
        super().issued(operation, group, args, kwargs, None if coalesced else work, begin)

    def _coalesces(self) -> None:
        if not self.timeline.is_elsewhere():
            self._together = []

    def _started(self, _: None, *call: Any) -> None:
        """The calls that were coalesced have been started; what that gave is waited for, if any."""
        work, begin = call[-2:]
        if self.timeline.is_elsewhere():
            return
        together, self._together = self._together, None
        if not together:
            return
        self.seen += 1  # the flight recorder counts this, too
        for issued in together[:-1]:
            self._forget(issued)
        if work is None:
            self._waited(together[-1], begin, 0, 0)
        else:
            self._forget(self._under_way.pop(id(work), None))  # that Work is gone
            self._under_way[id(work)] = together[-1]

    def _settle(self, ended: Ended) -> None:
        """An exception may have left calls that were never started."""
        self._together = None
        super()._settle(ended)

    @property
    def is_pending(self) -> bool:
        """Whether collectives run, or have run, on other streams for which nobody has waited."""
        ours = (not one[6] and one[3] >= self._synchronized for one in self._under_way.values())
        return bool(self.pending) or any(ours)

    def synchronized(self) -> None:
        """The host waits for the whole device."""
        self.pending.clear()
        self._synchronized = now()

    def by_others(self, *calls: Any) -> None:
        self._ended(COMMUNICATION)
        super().by_others(*calls)

    def _waited(self, issued: Issued, wait: int, blocked: int, flags: int) -> None:
        if self._together is not None:  # not started yet
            self._together.append(issued)
            return
        self._ended(issued[0].class_, on_host=issued[6])
        self._write(issued, wait, blocked, flags, self.timeline.where())

    def _ended(self, class_: int, *, on_host: bool = False) -> None:
        """A wait is over. One on another stream makes that a stream to wait for, unless it held up
        the host.
        """
        if self._mark == ASIDE and not on_host:
            here = self._marks.here
            self.streams.add(here)
            self.carried += 1
            self.pending[here] = self.carried
        above, end = self.timeline.innermost, self._marks.mark()
        self._interval = Interval(class_, above, self._mark, end)
        self.timeline.waited(end)

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
