"""Times what DeepSpeed's Muon computes for the update while it reduces gradients."""

from __future__ import annotations

import sys
from typing import Any, Final

from dsprof.events import CLASSES, Class
from dsprof.hook.models.parts import Parts
from dsprof.hook.spans import Frame, Phase

_MODULE: Final = "deepspeed.runtime.zero.muon.original_muon"
_UPDATE: Final = "muon_update"


class _Update(Phase):
    """One of these, whichever engine's patch has begun it."""

    __slots__ = ()


def time_updates(engine: Any, parts: Parts) -> None:
    """Record the update of each matrix as a phase inside what calls it: `backward/reduce`, whose
    own time is no optimizer's, or the optimizer's step if that is offloaded.

    DeepSpeed imports the function anew at each call, so its module can be patched. If several
    engines have patched it, the outermost counts.
    """
    module, timeline = sys.modules.get(_MODULE), parts.timeline
    optimizer = getattr(engine, "basic_optimizer", None)
    if "Muon" not in type(optimizer).__name__ or not hasattr(module, _UPDATE):
        return
    class_ = CLASSES.index(Class.OPTIMIZER)

    def begin(*_: Any) -> Frame | None:
        outer = timeline.stack[-1] if timeline.stack else None
        if outer is None or isinstance(outer.phase, _Update):
            return None
        path = timeline.writer.name(_UPDATE, outer.phase.id, Class.OPTIMIZER)
        return timeline.enter(outer.track, _Update(path, class_))

    around = parts.guard.around
    parts.patches.method(module, _UPDATE, lambda raw: around(raw, begin, timeline.leave))
