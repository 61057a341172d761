"""Where the compute stream waits for another stream, or the host for the device.

Frameworks run collectives on separate streams. What such a collective costs shows where the compute
stream waits for that stream. If the host waits for a stream, an event or the whole device, the
compute stream is idle from its last kernel until the next one arrives; that time, too, lies between
two marks, and there is none of it while the stream still has work.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any, Final, Union

from dsprof.events import Class
from dsprof.hook.calls.collectives import Issued
from dsprof.hook.guard import Guard
from dsprof.hook.on_gpu.cuda import ASIDE
from dsprof.hook.on_gpu.device import DeviceTimeline
from dsprof.hook.on_gpu.device_collectives import DeviceCollectives
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import CLASSES, Frame, Phase

SYNCHRONIZE: Final = "synchronize"
_NONE: Final[frozenset[int]] = frozenset()
_Held = Union[Frame, tuple[Issued, int], None]  # what begins a wait and ends it


class Streams:
    """Charges such waits to the collectives that lie on the stream, in the phase that they hold up.
    A wait of the host for anything else is a phase of its own.
    """

    def __init__(self, timeline: DeviceTimeline, collectives: DeviceCollectives) -> None:
        self.timeline, self.collectives = timeline, collectives
        #: Event → calls under way that it lies behind, by key.
        self._behind: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()

    def patch(self, cuda: Any, patches: Patches, guard: Guard, accelerator: Any = None) -> None:
        """`cuda` is `torch.cuda`, whose streams record, and wait for, events by their methods.
        Those of `torch.accelerator` are C++ alone: only its `synchronize` is seen.
        """
        remember = guard(self.recorded)

        def recording(raw: Call) -> Call:
            def record(event: Any, stream: Any = None) -> Any:
                done = raw(event, stream)
                remember(event, stream)
                return done

            return record

        def inside(opens: Callable[[Any, Any], _Held]) -> Callable[[Call], Call]:
            return lambda raw: guard.around(raw, opens, self.ends)

        patches.of_class(cuda.Event, "record", recording)
        patches.of_class(cuda.Event, "wait", inside(self.waits))
        patches.of_class(cuda.Event, "synchronize", inside(self.for_event))
        patches.of_class(cuda.Stream, "synchronize", inside(self.for_stream))
        patches.method(cuda, "synchronize", inside(self.for_device))
        if hasattr(accelerator, "synchronize"):
            patches.method(accelerator, "synchronize", inside(self.for_device))

    def recorded(self, event: Any, stream: Any) -> None:
        """Remember an event on a stream with collectives."""
        here = self.timeline.marks.here if stream is None else handle(stream)
        calls = self.collectives.behind.get(here)
        if calls:
            self._behind[event] = frozenset(calls)
        elif self._behind:
            self._behind.pop(event, None)

    def waits(self, args: Any, kwargs: Any) -> _Held:
        """The wait of the compute stream for collectives on another one. A third stream that waits
        for them passes the wait on to whoever waits for it.
        """
        event, stream = args[0], args[1] if len(args) > 1 else kwargs.get("stream")
        calls = self._behind.get(event)
        if not calls or self.timeline.is_elsewhere():
            return None
        marks = self.timeline.marks
        here = marks.here if stream is None else handle(stream)
        if here != marks.stream:
            self.collectives.behind.setdefault(here, set()).update(calls)
            return None
        return self.collectives.wait_begins_for(calls)

    def for_event(self, args: Any, _: Any) -> _Held:
        """The host waits for an event."""
        return self._host_waits(self._behind.get(args[0], _NONE))

    def for_stream(self, args: Any, _: Any) -> _Held:
        """The host waits for all that is on a stream."""
        return self._host_waits(self.collectives.behind.get(args[0].cuda_stream, _NONE))

    def for_device(self, *_: Any) -> _Held:
        """The host waits for the whole device."""
        return self._host_waits(self.collectives.unawaited())

    def ends(self, held: _Held) -> None:
        """A wait is over."""
        if isinstance(held, Frame):
            self.timeline.leave(held)
        elif held is not None:
            self.collectives.after_wait(held)

    def _host_waits(self, calls: Collection[int]) -> _Held:
        """A wait of the host for these calls, or for whatever else the device does."""
        if self.timeline.is_elsewhere():
            return None
        return self.collectives.wait_begins_for(calls) or self._synchronizes()

    def _synchronizes(self) -> Frame | None:
        timeline = self.timeline
        if timeline.current is None or not timeline.current.begin:
            return None
        above = timeline.stack[-1].phase.id if timeline.stack else 0
        name = timeline.writer.name(SYNCHRONIZE, above, Class.OTHER)
        frame = timeline.enter(timeline.current, Phase(name, CLASSES.index(Class.OTHER)))
        if frame is not None and frame.device.begin == ASIDE:  # yet the compute stream idles
            frame.device.begin = timeline.marks.mark(always=True)
        return frame


def handle(stream: Any) -> int:
    """CUDA's handle of a stream, also of one of `torch.accelerator`, which may not know it."""
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    from torch.cuda import Stream

    known = Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    return int(known.cuda_stream)
