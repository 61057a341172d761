"""Where the compute stream waits for another stream, or the host for the whole device.

Frameworks run collectives on separate streams. What such a collective costs shows where the compute
stream waits for that stream. If the host waits for the device, the device is idle from its last
kernel until the next one arrives; that time, too, lies between two marks.
"""

from __future__ import annotations

import weakref
from typing import Any

from dsprof.events import Class
from dsprof.hook.device import DeviceCollectives, DeviceTimeline
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import CLASSES, Frame, Phase

STREAM_WAIT, SYNCHRONIZE = "stream_wait", "synchronize"


class Streams:
    """Records such waits as phases of their own, inside the phase that they hold up."""

    def __init__(self, timeline: DeviceTimeline, collectives: DeviceCollectives) -> None:
        self.timeline, self.collectives = timeline, collectives
        self._communicating: weakref.WeakSet[Any] = weakref.WeakSet()  # events on their streams

    def patch(self, cuda: Any, patches: Patches, guard: Guard) -> None:
        """`cuda` is `torch.cuda`."""
        remember, leave = guard(self.recorded), guard(self.timeline.leave)
        waits, idles = guard(self.waits), guard(self.idles)

        def recording(raw: Call) -> Call:
            def record_event(stream: Any, *args: Any, **kwargs: Any) -> Any:
                event = raw(stream, *args, **kwargs)
                remember(stream, event)
                return event

            return record_event

        def waiting(raw: Call) -> Call:
            def wait_event(stream: Any, event: Any) -> Any:
                frame = waits(stream, event)
                try:
                    return raw(stream, event)
                finally:
                    leave(frame)

            return wait_event

        def idling(raw: Call) -> Call:
            def synchronize(*args: Any, **kwargs: Any) -> Any:
                frame = idles()
                try:
                    return raw(*args, **kwargs)
                finally:
                    leave(frame)

            return synchronize

        patches.of_class(cuda.Stream, "record_event", recording)
        patches.of_class(cuda.Stream, "wait_event", waiting)
        patches.method(cuda, "synchronize", idling)

    def recorded(self, stream: Any, event: Any) -> None:
        """Remember an event on a stream with collectives: torch's `wait_stream` records one and
        waits for it.
        """
        if stream.cuda_stream in self.collectives.streams:
            self._communicating.add(event)

    def waits(self, stream: Any, event: Any) -> Frame | None:
        """Open a phase if the compute stream waits for a stream that carried collectives."""
        if stream.cuda_stream != self.timeline.marks.stream or event not in self._communicating:
            return None
        return self._enter(STREAM_WAIT, Class.COMMUNICATION)

    def idles(self) -> Frame | None:
        """Open a phase where the host waits for the whole device.

        It counts as a wait for collectives if any were issued to other streams since the last one.
        """
        if self.timeline.is_elsewhere():
            return None
        if self.collectives.aside:
            self.collectives.aside = False
            return self._enter(STREAM_WAIT, Class.COMMUNICATION)
        return self._enter(SYNCHRONIZE, Class.OTHER)

    def _enter(self, name: str, class_: Class) -> Frame | None:
        timeline = self.timeline
        if timeline.current is None or not timeline.current.begin:
            return None
        above = timeline.stack[-1].phase.id if timeline.stack else 0
        phase = Phase(timeline.writer.name(name, above, class_), CLASSES.index(class_))
        return timeline.enter(timeline.current, phase)
