"""What the kinds of targets have in common: wrapping their methods as phases of a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from dsprof.events import Class
from dsprof.hook.metrics import Metrics
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase


class Parts:
    """One engine's track in the recording, and wrappers that write to it."""

    def __init__(self, recorder: Recorder, patches: Patches, step: int, *, scaled: bool) -> None:
        self.recorder, self.patches = recorder, patches
        self.guard, self.timeline = recorder.guard, recorder.timeline
        self.track = self.timeline.track(step)
        self.metrics = Metrics(self.timeline, self.track, scaled=scaled)
        self.enter, self.leave = self.guard(self.timeline.enter), self.guard(self.timeline.leave)

    def span(self, owner: Any, method: str, path: str, class_: Class) -> None:
        """Time every call of a method as the phase `path`."""
        phase = self.timeline.phase(path, class_)
        self.patches.method(owner, method, lambda raw: self.timed(raw, phase))

    def timed(self, raw: Call, phase: Phase) -> Call:
        """`raw` as a phase."""
        timeline = self.timeline
        return self.guard.around(raw, partial(timeline.enter, self.track, phase), timeline.leave)

    def forward(self, owner: Any, method: str = "forward", then: Call | None = None) -> None:
        """Time a model's forward; without gradients it is evaluation. `then` gets its output."""
        from torch import is_grad_enabled
        from torch.compiler import is_compiling

        timeline, track = self.timeline, self.track
        training = timeline.phase("forward", Class.COMPUTE)
        evaluating = timeline.phase("evaluation", Class.OTHER)

        def begin() -> Frame:
            if is_grad_enabled():
                return timeline.enter_forward(track, training)
            return timeline.enter(track, evaluating)

        def finished(result: Any) -> None:
            self.metrics.output(result)
            if then is not None:
                then(result)

        enter, leave, output = self.guard(begin), self.leave, self.guard(finished)

        def around(raw: Call) -> Call:
            def forward(*args: Any, **kwargs: Any) -> Any:
                if is_compiling():  # a model that is compiled after us: its graph stays whole
                    return raw(*args, **kwargs)
                frame = enter()
                try:
                    result = raw(*args, **kwargs)
                finally:
                    leave(frame)
                output(result)
                return result

            return forward

        self.patches.method(owner, method, around)

    def optimizer(self, optimizer: Any, path: str) -> None:
        """Time an optimizer's step. PyTorch's own have hooks for it, which others may wrap."""
        if not hasattr(optimizer, "register_step_pre_hook"):
            if hasattr(optimizer, "step"):
                self.span(optimizer, "step", path, Class.OPTIMIZER)
            return
        phase = self.timeline.phase(path, Class.OPTIMIZER)
        frames: list[Frame | None] = []

        def begin(_: Any, args: Any, kwargs: Any) -> Any:
            frames.append(self.enter(self.track, phase))
            return around_closure(paused, args, kwargs)

        def paused(closure: Call) -> Call:
            """Forward and backward inside the optimizer's step are no part of its phase."""

            def call() -> Any:
                self.leave(frames.pop())
                try:
                    return closure()
                finally:
                    frames.append(self.enter(self.track, phase))

            return call

        def end(*_: Any) -> None:
            self.leave(frames.pop())

        pre = optimizer.register_step_pre_hook(self.guard(begin))
        post = optimizer.register_step_post_hook(self.guard(end))
        self.patches.undo_with(pre.remove, post.remove)

    def closing(self, owner: Any, method: str, closed: Callable[[Any, Parts], None]) -> None:
        """Call `closed(owner, parts)` after every call of a method, outside of its phase."""
        reference, close = weakref.ref(owner), self.guard(closed)

        def around(raw: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Any:
                result = raw(*args, **kwargs)
                close(reference(), self)
                return result

            return call

        self.patches.method(owner, method, around)

    def backward_done(self) -> None:
        self.track.backward_done = True


def around_closure(around: Callable[[Call], Call], args: Any, kwargs: Any) -> Any:
    """The arguments of `step` with `around` its closure; None if it was given none."""
    if len(args) > 1 and callable(args[1]):
        return (args[0], around(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": around(kwargs["closure"])}
    return None


def before(action: Call, raw: Call) -> Call:
    def call(*args: Any, **kwargs: Any) -> Any:
        action()
        return raw(*args, **kwargs)

    return call


def after(raw: Call, action: Call) -> Call:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return raw(*args, **kwargs)
        finally:
            action()

    return call
