"""Where the compute stream waits for another stream, or the host for the device.

Frameworks run collectives on separate streams. What such a collective costs shows where the compute
stream waits for that stream. If the host waits for a stream, an event or the whole device, the
compute stream is idle from its last kernel until the next one arrives; that time, too, lies between
two marks, and there is none of it while the stream still has work.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from dsprof.events import Class
from dsprof.hook.cuda import ASIDE
from dsprof.hook.device import DeviceTimeline
from dsprof.hook.device_collectives import DeviceCollectives
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import CLASSES, Frame, Phase

STREAM_WAIT, SYNCHRONIZE = "stream_wait", "synchronize"


class Streams:
    """Records such waits as phases of their own, inside the phase that they hold up."""

    def __init__(self, timeline: DeviceTimeline, collectives: DeviceCollectives) -> None:
        self.timeline, self.collectives = timeline, collectives
        #: Event on a stream with collectives → that stream, and how many any had carried by then.
        self._communicating: weakref.WeakKeyDictionary[Any, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )

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

        def inside(opens: Callable[[Any, Any], Frame | None]) -> Callable[[Call], Call]:
            return lambda raw: guard.around(raw, opens, self.timeline.leave)

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
        if here in self.collectives.streams:
            self._communicating[event] = here, self.collectives.carried
        elif self._communicating:
            self._communicating.pop(event, None)

    def waits(self, args: Any, kwargs: Any) -> Frame | None:
        """Open a phase if the compute stream waits for a stream that carried collectives. A third
        stream that waits for one passes the wait on to whoever waits for it.
        """
        event, stream = args[0], args[1] if len(args) > 1 else kwargs.get("stream")
        if event not in self._communicating:
            return None
        marks = self.timeline.marks
        here = marks.here if stream is None else handle(stream)
        if here != marks.stream:
            self.collectives.streams.add(here)
            return None
        self._is_waited_for(event)
        return self._enter(STREAM_WAIT, Class.COMMUNICATION)

    def for_event(self, args: Any, _: Any) -> Frame | None:
        """Open a phase where the host waits for an event."""
        return self._idles(communicates=self._is_waited_for(args[0]))

    def _is_waited_for(self, event: Any) -> bool:
        """Whether an event lies on a stream with collectives. If it lies behind the last of them,
        nobody needs to wait for these any more.
        """
        on, carried = self._communicating.get(event, (None, 0))
        pending = self.collectives.pending
        if on in pending and pending[on] <= carried and not self.timeline.is_elsewhere():
            del pending[on]
        return on is not None

    def for_stream(self, args: Any, _: Any) -> Frame | None:
        """Open a phase where the host waits for all that is on a stream."""
        stream = args[0].cuda_stream
        if not self.timeline.is_elsewhere():
            self.collectives.pending.pop(stream, None)
        return self._idles(communicates=stream in self.collectives.streams)

    def for_device(self, *_: Any) -> Frame | None:
        """Open a phase where the host waits for the whole device.

        It counts as a wait for collectives if nobody has waited for some on other streams.
        """
        frame = self._idles(communicates=self.collectives.is_pending)
        if not self.timeline.is_elsewhere():
            self.collectives.synchronized()
        return frame

    def _idles(self, *, communicates: bool) -> Frame | None:
        if self.timeline.is_elsewhere():
            return None
        if communicates:
            frame = self._enter(STREAM_WAIT, Class.COMMUNICATION)
        else:
            frame = self._enter(SYNCHRONIZE, Class.OTHER)
        if frame is not None and frame.device.begin == ASIDE:  # yet the compute stream idles
            frame.device.begin = self.timeline.marks.mark(always=True)
        return frame

    def _enter(self, name: str, class_: Class) -> Frame | None:
        timeline = self.timeline
        if timeline.current is None or not timeline.current.begin:
            return None
        above = timeline.stack[-1].phase.id if timeline.stack else 0
        phase = Phase(timeline.writer.name(name, above, class_), CLASSES.index(class_))
        return timeline.enter(timeline.current, phase)


def handle(stream: Any) -> int:
    """CUDA's handle of a stream, also of one of `torch.accelerator`, which may not know it."""
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    from torch.cuda import Stream

    known = Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    return int(known.cuda_stream)
