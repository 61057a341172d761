"""A thread whose stack and phases are known, and who looks at it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

from dsprof.events import CLASSES, Class
from dsprof.hook.looking.looker import EVERY
from dsprof.hook.looking.looks import Looks
from dsprof.hook.spans import Phase
from dsprof.recording import Writer
from dsprof.recording.layout import OVER
from tests.hook.rows import read


class Job:
    """A thread that waits at a known line, and what the hook knows of its phases."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self._ends, here = writer, threading.Event(), threading.Event()

        def waits_here() -> None:
            here.set()
            self._ends.wait()

        thread = threading.Thread(target=waits_here)
        thread.start()
        here.wait()
        assert thread.ident is not None
        self.timeline = SimpleNamespace(writer=writer, stack=[], thread=thread.ident)
        self._time = 0
        self.begin()

    def begin(self, every: float = EVERY) -> None:
        self.looks = Looks(self.timeline, every)  # type: ignore[arg-type]
        watched = self.looks._watched
        watched._clock = time.pthread_getcpuclockid(self.timeline.thread)  # it is alive
        watched._clock_of = self.timeline.thread

    def enter(self, name: str, class_: Class) -> None:
        number = self.writer.name(name, 0, class_)
        self.timeline.stack.append(SimpleNamespace(phase=Phase(number, CLASSES.index(class_))))
        self._time += OVER << 1
        self.writer.ring.cell[2] = number | self._time

    def leave(self) -> None:
        self.timeline.stack.pop()
        self._time += OVER << 1  # one unit of the cell's clock
        self.writer.ring.cell[2] = self.writer.ring.cell[2] & OVER - 1 | OVER | self._time

    def goes_on(self) -> None:
        """A step that is looked at no more."""
        self.enter("forward", Class.COMPUTE)
        self.leave()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.look_late(0.0)

    def look_late(self, late: float) -> None:
        while again := self.looks._look(late):
            time.sleep(again)

    def told(self) -> list[tuple[str, float, str]]:
        self.looks.end_step()
        self.looks.write(self.writer, 1)
        self.writer.flush()
        rows = read(self.writer.path).metrics
        return [(row.name, row.value, row.text) for row in rows]

    def end(self) -> None:
        self._ends.set()
