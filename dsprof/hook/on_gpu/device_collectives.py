"""Collectives on a GPU, timed where they stall its compute stream."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, cast

from dsprof.hook.calls.collectives import (
    BEGIN,
    FRAME,
    GROUP,
    IS_MEASURED,
    MOST,
    OPERATION,
    SEQUENCE,
    SIZE,
    STEP,
    TRACK,
    Collectives,
    Issued,
    in_step_of,
)
from dsprof.hook.calls.groups import Group
from dsprof.hook.calls.operations import Operation
from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu.cuda import ASIDE, NONE
from dsprof.hook.on_gpu.device import CALL_AT, COLLECTIVE, DeviceTimeline, Interval
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import COMMUNICATION, Ended
from dsprof.recording import THINNED

_ONE: Final = (1, 0)


class DeviceCollectives(Collectives):
    """Collectives whose waits are intervals on the device: they stall the compute stream, not the
    host.

    A call that ran, or was waited for, on another stream has held up nothing yet. It remains under
    way until the compute stream, or the host, waits for that stream: `streams` tells when.

    NCCL starts calls that are coalesced together, and only their end gives a Work. The last of them
    stands for the wait of all.
    """

    timeline: DeviceTimeline

    def __init__(self, timeline: DeviceTimeline) -> None:
        super().__init__(timeline)
        self._marks = timeline.marks
        self._record = self._hold
        self._mark = NONE  # the mark at which the current wait began
        self._always = False  # it is the compute stream's, whatever stream is current
        self._interval: Interval | None = None
        self._alike = _ONE  # how many calls are waited for together, and their bytes
        #: Stream → calls under way that what comes next on it lies behind, by key.
        self.behind: dict[int, set[int]] = {}
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
        """Record where a wait begins. One for which training does not wait is ignored."""
        if self.timeline.holds_up():
            self._mark, self._always = self._marks.mark(), False

    def before_wait(self, args: Any, _: Any = None) -> tuple[Issued | None, int]:
        held = super().before_wait(args)
        self.wait_begins()
        return held

    def after_wait(self, held: tuple[Issued | None, int]) -> None:
        """Count the time also of a wait for a call that was not seen being issued; it
        has no row.
        """
        if held[0] is None and self.timeline.holds_up():
            self._has_no_row()
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
        for keys in self.behind.values():
            keys.intersection_update(self._under_way)

    def _is_let_go(self, key: int) -> bool:
        return super()._is_let_go(key) and not any(key in keys for keys in self.behind.values())

    def unawaited(self) -> set[int]:
        """Calls that run, or have run, on other streams, and that nobody has waited for, by key."""
        return {key for key, issued in self._under_way.items() if not issued[IS_MEASURED]}

    def wait_begins_for(self, keys: Collection[int]) -> tuple[Issued, int] | None:
        """The compute stream, or the host, waits for these calls: what `after_wait` is to be told,
        None if they have been waited for.

        The last of them stands for the wait of all, in one row with those before it that are alike:
        the stream runs one after the other, and who waits cannot tell which of them takes long.
        """
        calls = [self._under_way.pop(key) for key in list(self._under_way) if key in keys]
        if not calls:
            return None
        last = calls[-1]
        alike = [issued for issued in calls if _kind(issued) == _kind(last)]
        for issued in calls:
            if _kind(issued) != _kind(last):
                self._forget(issued)
        for issued in alike[:-1]:
            self._count(issued[OPERATION])
        self._alike = len(alike), sum(issued[SIZE] for issued in alike)
        begin = self._is_in(last[OPERATION], last[SEQUENCE])
        self._mark, self._always = self._marks.mark(always=True), True
        return last, begin

    def _has_no_row(self) -> None:
        """A wait is over for calls that were not seen being issued."""
        track = self.timeline.current
        if track is not None:
            self._ended(COMMUNICATION)
            interval, self._interval = self._interval, None
            self.timeline.hold(track.number, cast("Interval", interval), ())

    def uncounted(self, blocked: int) -> None:
        self._has_no_row()
        super().uncounted(blocked)

    def by_others(self, *calls: Any) -> None:
        self._ended(COMMUNICATION)
        super().by_others(*calls)

    def _waited(self, issued: Issued, wait: int, blocked: int, flags: int) -> None:
        if self._together is not None:  # not started yet
            self._together.append(issued)
            return
        if self._mark == ASIDE and not issued[IS_MEASURED]:
            self._lies_aside(issued)
            return
        self._ended(issued[OPERATION].class_)
        where = self.timeline.where()
        self._write(in_step_of(where, issued), wait, blocked, flags, where)

    def _lies_aside(self, issued: Issued) -> None:
        """The current stream, another one than the compute stream, carries a call or waits for
        it.
        """
        self.timeline.waited(ASIDE)
        keys = self.behind.setdefault(self._marks.here, set())
        if len(keys) >= MOST:  # nobody waits for that stream
            for key in keys:
                self._forget(self._under_way.pop(key, None))
            keys.clear()
        self._aside -= 1
        self._under_way[self._aside] = issued
        keys.add(self._aside)

    def _ended(self, class_: int) -> None:
        """A wait is over."""
        above, end = self.timeline.innermost, self._marks.mark(always=self._always)
        self._interval = Interval(class_, above, self._mark, end)
        self.timeline.waited(end)

    def _forget(self, issued: Issued | None) -> None:
        """Nobody waited for it, or only together with a later one: it held up nothing."""
        if issued:
            frame, track = issued[FRAME], issued[TRACK]
            where = frame, track, track.micro if track else -1
            self._write(issued, issued[BEGIN], 0, 0, where)

    def _add(self, key: tuple[int, int, int], size: int, *when: int) -> None:
        name, group, engine = key
        begin, wait, _, step = when
        self._hold(
            (COLLECTIVE, THINNED, engine, name, step, 0, begin, wait, -1, -1, size, group, 1, -1)
        )

    def _hold(self, row: tuple[int, ...]) -> None:
        """Hold the row with its interval, or with a hidden one if nothing was waited for."""
        interval, self._interval = self._interval, None
        (count, size), self._alike = self._alike, _ONE
        if count > 1:
            filled = list(row)
            filled[CALL_AT["flags"]] |= THINNED
            filled[CALL_AT["count"]], filled[CALL_AT["size"]] = count, size // count
            row = tuple(filled)
        hidden = Interval(COMMUNICATION, None, ASIDE, ASIDE)
        self.timeline.hold(row[CALL_AT["engine"]], interval or hidden, row)


def _kind(issued: Issued) -> tuple[str, Group, int]:
    """Operation, group and step of a call."""
    return issued[OPERATION].name, issued[GROUP], issued[STEP]
