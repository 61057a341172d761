"""Every collective that Python issues, caught at the one place that all callers pass.

`torch.distributed`, `deepspeed.comm`, FSDP2 and references that were taken before attaching all
call the methods of `ProcessGroup`, and then `Work.wait` or the `wait` of its future. What C++
issues by itself (DDP's reducer, functional collectives) does not pass here: see `backward` and
`functional`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns as now
from typing import Any, Final, Optional

from dsprof.hook.calls.groups import Group, told_of
from dsprof.hook.calls.operations import OPERATIONS, Operation, by_name, on_gpu, size_of
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import COMMUNICATION, WAIT, Ended, Frame, Timeline, Track, Where
from dsprof.recording import ASYNC, THINNED, RowKind
from dsprof.recording.layout import NAME_BITS

MOST: Final = 10_000  # calls that may wait for the end of their step before they are written
MOST_CALLS: Final = (1 << 16) - 1  # the largest count that fits into a row
NUMBERS: Final = (1 << 32) - 1  # sequence numbers in rows start anew after this one
_COLLECTIVE: Final = int(RowKind.COLLECTIVE)

#: A collective in progress. A plain tuple because one is made at every call; its fields by place:
Issued = tuple[
    Operation, Group, int, int, int, int, bool, int, Optional[Frame], Optional[Track]
]  # fmt: skip
OPERATION: Final = 0
GROUP: Final = 1
SIZE: Final = 2  # bytes
BEGIN: Final = 3  # ns; when it was issued
STEP: Final = 4
SEQUENCE: Final = 5  # its number in the group
IS_MEASURED: Final = 6  # whether the host can measure its wait
ISSUING: Final = 7  # ns that issuing it took
FRAME: Final = 8  # the phase that issued it
TRACK: Final = 9  # whose step that is


class Collectives:
    """Records count, size and exposed time of collectives. If `every` > 1, only one step in `every`
    has a row per call.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.seen = 0  # collectives since attaching, to compare with PyTorch's count
        self.sent = 0  # sends and receives
        self.every = 1  # one step in this many is recorded call by call
        self._groups: dict[int, Group] = {}
        self._others: dict[str, Operation] = {}
        self._under_way: dict[int, Issued] = {}  # by id of the Work or future to wait for
        self._aside = 0  # the last key below 0 of `_under_way`
        self._promises: dict[int, int] = {}  # id of a Work or future → id of the next future
        self._sums: dict[tuple[int, int, int], list[int]] = {}
        self._summed = -1  # the step of `_sums`
        self._calls = timeline.writer.collectives
        self._record = self._calls.append
        self._ring = timeline.writer.ring
        timeline.closing.append(self._settle)
        timeline.renumbering.append(self._renumber)

    def patch(self, patches: Patches, guard: Guard) -> None:
        """Wrap the methods of ProcessGroup, Work and Future that this PyTorch has."""
        from torch._C import Future
        from torch._C._distributed_c10d import ProcessGroup, Work

        for method, (name, argument) in OPERATIONS.items():
            if method in vars(ProcessGroup):
                operation = Operation(name, argument)
                patches.of_class(ProcessGroup, method, self._issuing(operation, guard))
        patches.of_class(Work, "wait", self._waiting(guard))
        for owner, method in ((Work, "get_future"), (Future, "then")):
            patches.of_class(owner, method, lambda raw: guard.behind(raw, self._promised, None))
        around = guard.around
        patches.of_class(
            Future, "wait", lambda raw: around(raw, self._before_future, self._after_future)
        )

    def _issuing(self, operation: Operation, guard: Guard) -> Callable[[Call], Call]:
        return lambda raw: guard.behind(raw, self.issued, operation)

    def _waiting(self, guard: Guard) -> Callable[[Call], Call]:
        return lambda raw: guard.around(raw, self.before_wait, self.after_wait)

    def issued(  # noqa: PLR0917 - called for every collective: positional arguments are faster
        self, operation: Operation, group: Any, args: Any, kwargs: Any, work: Any, begin: int
    ) -> None:
        """A collective was issued. Without a Work to wait for, it is already complete."""
        end = now()
        timeline = self.timeline
        if get_ident() != timeline.thread and timeline.is_elsewhere():
            self._count(operation)
            return
        known = self._groups.get(id(group)) or self._new_group(group)
        place = operation.argument
        if place is None:
            tensors = None
        else:
            tensors = args[place] if len(args) > place else by_name(place, args, kwargs)
        track, stack = timeline.current, timeline.stack
        issued = (
            operation, known, size_of(tensors), begin, track.step if track else -1,
            known.sequence, known.blocks_host or not on_gpu(tensors),
            end - begin, stack[-1] if stack else None, track,
        )  # fmt: skip
        known.sequence += 1
        if work is None:
            self._waited(issued, begin, end - begin, 0)
        else:
            before = self._under_way.setdefault(id(work), issued)
            if before is not issued:  # that Work is gone and its id was reused
                self._under_way[id(work)] = issued
                self._let_go(before, id(work))

    def _promised(self, _: None, owner: Any, *call: Any) -> None:
        """A future was derived from a Work or future: either of the two may be waited for later."""
        future = call[2]
        issued = self._under_way.pop(id(owner), None)
        if issued:
            self._let_go(self._under_way.pop(id(future), None), id(future))
            self._under_way[id(future)] = issued
            self._promises[id(owner)] = id(future)

    def _let_go(self, issued: Issued | None, number: int) -> None:
        """Of a call's Work or future, whose id was `number`, Python has let go. C++ may hold a
        future, and wait for it: until the end of the step its key is no object's id.
        """
        if issued and number in self._promises.values():
            self._aside -= 1
            self._under_way[self._aside] = issued
        else:
            self._forget(issued)

    def _before_future(self, args: Any, _: Any) -> Any:
        """None if the future does not belong to a collective."""
        known = id(args[0]) in self._under_way or id(args[0]) in self._promises
        return self.before_wait(args) if known else None

    def _after_future(self, held: Any) -> None:
        if held:
            self.after_wait(held)

    def _count(self, operation: Operation) -> None:
        if operation.counts:
            self.seen += 1
        elif operation.class_ == WAIT:
            self.sent += 1

    def before_wait(self, args: Any, _: Any = None) -> tuple[Issued | None, int]:
        """The collective that is waited for, if known, and when the wait began.

        Its name goes into the in-flight cell, which shows the operation if the process never
        returns from it. A wait for which training does not wait holds up no phase.
        """
        if get_ident() != self.timeline.thread and not self.timeline.holds_up():
            return None, now()
        work = id(args[0])
        issued = self._under_way.pop(work, None)
        while issued is None and work in self._promises:
            work = self._promises.pop(work)
            issued = self._under_way.pop(work, None)
        if issued is None:
            return None, now()
        return issued, self._is_in(issued[OPERATION], issued[SEQUENCE])

    def _is_in(self, operation: Operation, sequence: int) -> int:
        """Put a wait that begins into the in-flight cell; the time at which it does."""
        name = operation.ids.get(0) or self._first_name(operation)
        begin, cell = now(), self._ring.cell
        cell[1] = begin
        cell[0] = sequence << NAME_BITS | name
        return begin

    def _first_name(self, operation: Operation) -> int:
        """Write the name to the file before the first wait under it, which may never return."""
        name = self._id(operation, 0)
        self.timeline.flush()
        return name

    def after_wait(self, held: tuple[Issued | None, int]) -> None:
        end = now()
        issued, begin = held
        timeline = self.timeline
        if issued:
            stack = timeline.stack
            # Time spent issuing the call is part of the wait if the same phase did both.
            handed = issued[ISSUING] if issued[FRAME] is (stack[-1] if stack else None) else 0
            self._waited(issued, begin, handed + end - begin, ASYNC)
            self._ring.cell[0] = 0
        elif timeline.holds_up():
            timeline.block(end - begin, COMMUNICATION)

    def others_wait(self, name: str, group: Any) -> None:
        """C++ waits from now on for calls that it issued itself."""
        self._is_in(self._other(name), self._known(group).sequence)
        self.wait_begins()

    def others_waited(self) -> None:
        """That wait is over, or never began."""
        self._ring.cell[0] = 0

    def _other(self, name: str) -> Operation:
        return self._others.setdefault(name, Operation(name, None))

    def wait_begins(self) -> None:
        """Called where a wait begins that has no Work. Does nothing here; on a GPU it records a
        mark.
        """

    def is_under_way(self, work: object) -> bool:
        return id(work) in self._under_way

    def count(self, group: Any) -> int:
        """Calls on `group` that were seen here."""
        return self._known(group).sequence

    def by_others(  # noqa: PLR0917
        self, name: str, group: Any, begin: int, blocked: int, count: int, size: int
    ) -> None:
        """Record `count` calls of `size` bytes in total that C++ issued and waited for since
        `begin`.
        """
        self.seen += count
        known = self._known(group)
        self.timeline.block(blocked, COMMUNICATION)
        track, stack = self.timeline.current, self.timeline.stack
        operation = self._other(name)
        self._record(
            (_COLLECTIVE, ASYNC | THINNED, track.number if track else 0,
             self._id(operation, stack[-1].phase.id if stack else 0),
             track.step if track else -1, known.sequence & NUMBERS, begin, begin, blocked, -1,
             size // count, known.id, count, track.micro if track else -1)
        )  # fmt: skip

    def uncounted(self, blocked: int) -> None:
        """C++ waited for `blocked` ns for calls that it issued itself; how many, nobody tells."""
        self.timeline.block(blocked, COMMUNICATION)

    def waited_for(self, group: Any, since: int, begin: int, blocked: int) -> bool:
        """C++ waited for `blocked` ns from `begin` on for what Python issued on `group` after
        `since`. False if there is nothing of that.
        """
        known = self._known(group)
        keys = [
            key
            for key, issued in self._under_way.items()
            if issued[GROUP] is known and issued[BEGIN] >= since
        ]
        for key in keys[:-1]:
            self._forget(self._under_way.pop(key))
        if keys:
            self._waited(self._under_way.pop(keys[-1]), begin, blocked, ASYNC)
        return bool(keys)

    def _waited(self, issued: Issued, wait: int, blocked: int, flags: int) -> None:
        """Charge the wait to the phase it blocked."""
        if not issued[IS_MEASURED]:
            blocked = -1
        where = self.timeline.block(blocked, issued[OPERATION].class_)
        self._write(in_step_of(where, issued), wait, blocked, flags, where)

    def _settle(self, ended: Ended) -> None:
        """A step has ended: what was issued in earlier steps will hardly be waited for any more.

        Each engine counts its own steps. For an engine that ends no steps, those of the engine that
        just ended one count.
        """
        self._promises.clear()
        for key, issued in list(self._under_way.items()):
            track = issued[TRACK]
            over = track.step - 1 if track is not None and track.trains else ended.step
            if issued[STEP] < over or self._is_let_go(key):
                self._forget(self._under_way.pop(key, None))
        if self._sums:
            self._write_sums()

    def _is_let_go(self, key: int) -> bool:
        """Whether no object that could be waited for has this key of `_under_way`."""
        return key < 0

    def _renumber(self, track: Track, step: int) -> None:
        """Change the step of what this engine issued in the current step and nobody has waited for
        yet.
        """
        self._write_sums()
        for key, issued in self._under_way.items():
            frame = issued[FRAME]
            if issued[STEP] == track.step and (frame is None or frame.track is track):
                self._under_way[key] = (*issued[:4], step, *issued[5:])

    def _write(self, issued: Issued, wait: int, blocked: int, flags: int, where: Where) -> None:
        operation, group, size, begin, step, sequence, *_ = issued
        frame, track, micro = where
        self._count(operation)
        phase = frame.phase.id if frame else 0
        engine = track.number if track else 0
        name = operation.ids.get(phase) or self._id(operation, phase)
        if self.every > 1 and step % self.every:
            if step != self._summed:
                self._write_sums()
                self._summed = step
            self._add((name, group.id, engine), size, begin, wait, blocked, step)
            return
        self._record(
            (_COLLECTIVE, flags, engine, name, step, sequence & NUMBERS, begin, wait, blocked, -1,
             size, group.id, 1, micro)
        )  # fmt: skip
        if len(self._calls) >= MOST:
            self.timeline.flush()

    def _add(  # noqa: PLR0917
        self, key: tuple[int, int, int], size: int, begin: int, wait: int, blocked: int, step: int
    ) -> None:
        """Add a call to the step's only row for its kind, in steps that are not recorded call by
        call.
        """
        total = self._sums.get(key)
        if total is None or total[0] == MOST_CALLS:
            if total is not None:
                self._write_sums()
            total = self._sums[key] = [0, 0, 0, begin, wait, step]
        total[0] += 1
        total[1] += size
        total[2] = -1 if blocked < 0 or total[2] < 0 else total[2] + blocked

    def _id(self, operation: Operation, phase: int) -> int:
        found = operation.ids.get(phase)
        if found is None:
            found = operation.ids[phase] = self.timeline.writer.name(operation.name, phase)
        return found

    def _forget(self, issued: Issued | None) -> None:
        """Record a call that nobody waited for: it held up nothing."""
        if issued:
            blocked = 0 if issued[IS_MEASURED] else -1
            self._write(issued, issued[BEGIN], blocked, ASYNC, self.timeline.where())

    def finish(self) -> None:
        """Write the calls that nobody has waited for."""
        while self._under_way:
            self._forget(self._under_way.popitem()[1])
        self._write_sums()

    def _write_sums(self) -> None:
        for (name, group, engine), total in self._sums.items():
            count, size, blocked, begin, wait, step = total
            self._record(
                (_COLLECTIVE, THINNED, engine, name, step, 0, begin, wait, blocked, -1,
                 size // count, group, count, -1)
            )  # fmt: skip
        self._sums.clear()

    def _known(self, group: Any) -> Group:
        return self._groups.get(id(group)) or self._new_group(group)

    def _new_group(self, group: Any) -> Group:
        name, backend = told_of(group)
        groups, number = self._groups, id(group)
        known = Group(
            group, self.timeline.writer.name(name), lambda _: groups.pop(number, None),
            blocks_host=backend == "gloo",
        )  # fmt: skip
        groups[number] = known
        return known


def in_step_of(where: Where, issued: Issued) -> Issued:
    """The call as one of the step that waited for it: an earlier one may have issued it, whose time
    does not hold that wait.
    """
    track = where[1]
    if track is None or track.step == issued[STEP]:
        return issued
    return (*issued[:4], track.step, *issued[5:])
