"""The step of one optimizer as a phase, by the hooks that PyTorch's optimizers have for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dsprof.events import Class
from dsprof.hook.patches import Call
from dsprof.hook.spans import Frame, Phase

if TYPE_CHECKING:
    from dsprof.hook.models.parts import Parts


class OptimizerStep:
    """The step of one optimizer. If its hooks are nested, only the outermost pair counts.

    PyTorch runs the hooks for each class that defines `step`, so they are nested where such a
    method calls `super().step()`. An optimizer that another one steps is part of that one's step.
    A compiled step does not time itself: it only sets `compiled`.
    """

    def __init__(
        self, parts: Parts, path: str, then: Call | None, optimizer: Callable[[], Any]
    ) -> None:
        self.optimizer, self.compiled = optimizer, False
        self.timeline, self.track, self.guard = parts.timeline, parts.track, parts.guard
        self.phase, self.backward = self.timeline.phase(path, Class.OPTIMIZER), parts.backward
        self.inside = self.timeline.phase("backward/optimizer_step", Class.OPTIMIZER)
        self.then, self.metrics = then, parts.metrics
        self.evaluated = False  # the closure has run in this step
        self.hooks: tuple[Any, ...] = ()  # handles that remove the hooks
        self.frame: Frame | None = None
        self.depth = 0
        self.within = 0  # ns; when the phase began whose part its last step was
        self.is_over = False  # detached; the hooks may be called once more, or stay for a while

    def begin(self, _: Any, args: Any, kwargs: Any) -> Any:
        timeline = self.timeline
        if self.is_over:
            return None
        if self.depth and self._goes_on():
            self.depth += 1
            return None
        within = timeline.stack and timeline.is_open(self.backward)
        phase = self.inside if within else self.phase
        self.within = self._began_around(phase)
        self.depth, self.evaluated = int(not self.within), False
        if not self.depth:
            return None
        self.frame = timeline.enter(self.track, phase)
        return _around_closure(self._paused, args, kwargs)

    def ends_compiled(self, *_: Any) -> None:
        """Runs after the graph of a compiled optimizer step. Compiled code only writes this flag
        and never reads it, so that it causes no recompilation.
        """
        self.compiled = True

    def _goes_on(self) -> bool:
        """Whether the step that began is still running: no phase has ended since. Otherwise an
        exception ended it, and training went on.
        """
        return self.frame is not None and self.track.left <= self.frame.begin

    def _began_around(self, phase: Phase) -> int:
        """When another optimizer's step began that makes this one and is timed as a whole, as of
        ZeroRedundancyOptimizer, or a look-ahead; or a compiled function that steps. 0 if there is
        none. Frames that an exception left open do not count.
        """
        track = self.track
        around = (
            frame.begin
            for frame in self.timeline.stack
            if frame.track is track and frame.phase == phase and track.left <= frame.begin
        )
        return next(around, 0)

    def end(self, optimizer: Any, *_: Any) -> None:
        """End the step; does nothing if recording began or ended inside it."""
        if self.depth and not self.is_over:
            self.depth -= 1
            if not self.depth:
                self._pause()
                if self.then is not None:
                    self.then(optimizer)

    def _paused(self, closure: Call) -> Call:
        """`closure`, whose forward and backward are kept out of the optimizer's phase.

        The step's loss is that of the first evaluation, which `step` returns: L-BFGS evaluates the
        closure again.
        """
        return self.guard.around(closure, self._evaluates, self._evaluated)

    def _evaluates(self, *_: Any) -> None:
        self.metrics.aside = self.evaluated
        self._pause()

    def _evaluated(self, _: Any) -> None:
        self.metrics.aside, self.evaluated = False, True
        self._resume()

    def _pause(self) -> None:
        frame, self.frame = self.frame, None
        self.timeline.leave(frame)

    def _resume(self) -> None:
        self.frame = self.timeline.enter(self.track, self.phase)


def _around_closure(around: Callable[[Call], Call], args: Any, kwargs: Any) -> Any:
    """The arguments of `step` with its closure wrapped by `around`; None without a closure."""
    if len(args) > 1 and callable(args[1]):
        return (args[0], around(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": around(kwargs["closure"])}
    return None
