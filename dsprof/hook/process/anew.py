"""What some steps do anew, as metrics of these steps: make iterators of loaders, compile."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from dsprof.hook.spans import Ended, Timeline
from dsprof.recording import RowKind, Writer


class Anew:
    """Counts per step, recorded only for steps in which there are any."""

    def __init__(self, writer: Writer, timeline: Timeline) -> None:
        self._values, self._timeline = writer.values, timeline
        self._iterators, self._compilations = map(writer.name, ("data_iterators", "compilations"))
        self._made: Counter[int] = Counter()  # iterators by engine, in the step under way
        self._compiled = _compiled()
        timeline.closing.append(self._tell)

    def iterator(self, *_: Any) -> None:
        """A `DataLoader` makes an iterator, in the step under way."""
        track = self._timeline.current
        if track is not None:
            self._made[track.number] += 1

    def _tell(self, ended: Ended) -> None:
        made = self._made.pop(ended.track, 0)
        if made:
            self._put(ended, self._iterators, made)
        compiled, before = _compiled(), self._compiled
        if compiled != before:
            self._compiled = compiled
            new = compiled - before if compiled > before else compiled  # the counters were cleared
            if new:
                self._put(ended, self._compilations, new)

    def _put(self, ended: Ended, name: int, count: int) -> None:
        track, step, _, end, _ = ended
        self._values.append((int(RowKind.METRIC), 0, track, name, step, 0, end, float(count)))


def _compiled() -> int:
    """How many frames of code `torch.compile` has compiled so far; 0 if it is not loaded.

    Its count of graphs lacks those of a model under DDP, into which it cannot look from outside.
    """
    utils = sys.modules.get("torch._dynamo.utils")
    frames = getattr(utils, "counters", {}).get("frames") or {}
    return int(frames.get("total", 0))
