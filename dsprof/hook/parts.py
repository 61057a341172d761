"""What the kinds of targets have in common: wrapping their methods as phases of a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.between import GENERATE
from dsprof.hook.metrics import Metrics
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase

_CALLED: Final = "_call_impl"  # of a model: what `model.compile()` has the compiler make


class Parts:
    """One engine's track in the recording, and wrappers that write to it."""

    def __init__(self, recorder: Recorder, patches: Patches, step: int, *, scaled: bool) -> None:
        self.recorder, self.patches = recorder, patches
        self.guard, self.timeline = recorder.guard, recorder.timeline
        self.track = self.timeline.track(step)
        self._first = step
        self.backward = self.timeline.phase("backward", Class.COMPUTE)
        self.metrics = Metrics(self.timeline, self.track, scaled=scaled)
        self.returned: Call | None = None  # gets what a forward gave
        self.backward_begins: Call | None = None  # gets the tensor that `backward` begins at
        self.unseen = False  # no tensor was in it: backward through it cannot be seen
        self.checkpointing = False  # a forward without gradients, which backward runs again
        self.forward_begins: Callable[[], None] | None = None  # of the first forward of a step
        self.model: Callable[[], Any] = _nobody  # a reference, of one without an engine
        self.steps: Any = None  # what ends its steps
        self.batch: Any = None  # of an engine: how many samples its steps have
        self._stepping: list[_Stepping] = []
        patches.undo_with(self._take_hooks_off)

    def span(
        self, owner: Any, method: str, path: str, class_: Class, then: Call | None = None
    ) -> None:
        """Time every call of a method as the phase `path`; `then` gets what it returned."""
        phase = self.timeline.phase(path, class_)
        self.patches.method(owner, method, lambda raw: self.timed(raw, phase, then))

    def timed(self, raw: Call, phase: Phase, then: Call | None = None) -> Call:
        """`raw` as a phase."""
        timeline = self.timeline
        enter = partial(timeline.enter, self.track, phase)
        return self.guard.around(raw, enter, timeline.leave, then)

    def forward(self, owner: Any, method: str = "forward", *, is_engine: bool = False) -> None:
        """Time a model's forward; without gradients it is evaluation.

        An engine is not compiled itself, but what it holds.
        """
        from torch import is_grad_enabled

        timeline, track, metrics = self.timeline, self.track, self.metrics
        backward, generating = self.backward, timeline.phase(*GENERATE)
        training = timeline.phase("forward", Class.COMPUTE)
        evaluating = timeline.phase("evaluation", Class.OTHER)

        def begin(*_: Any) -> Frame | None:
            if track.begin and timeline.is_elsewhere() and not self._moves_here():
                return None
            if timeline.stack and (timeline.is_open(backward) or timeline.is_open(generating)):
                return None  # activation checkpointing computes it again there, or it is a token's
            self.look_at_compiled()
            if self.forward_begins is not None:
                self.forward_begins()
            if is_grad_enabled() or self.checkpointing:
                return timeline.enter_forward(track, training)
            return timeline.enter_once(track, evaluating)

        def finished(result: Any) -> None:
            if not metrics.given:
                metrics.output(result)
            if self.returned is not None:
                self.returned(result)

        def around(raw: Call) -> Call:
            timed = self.guard.around(raw, begin, timeline.leave, finished)
            return timed if is_engine else unless_compiling(raw, timed)

        wrap = self.patches.method if is_engine else self.patches.method_of_a_model
        self._uncover = wrap(owner, method, around)
        self._owner, self._around = weakref.ref(owner), around

    def _moves_here(self) -> bool:
        """Whether a forward in another thread than the one that trained is training's next."""
        from torch import is_grad_enabled

        return is_grad_enabled() and self.timeline.moves_here()

    def to_compile(self, given: Any) -> Any:
        """What `model.compile()` gives to the compiler: nothing of ours, as if it had never been.

        The compiler leaves out frames of PyTorch's own classes (`nn.Sequential`, DDP), and would
        not ours around them. Its calls then run what was made, which is timed.
        """
        model = self._owner()
        if model is None or getattr(given, "__name__", "") != _CALLED:
            return given
        if given is vars(model).get(_CALLED) or getattr(given, "__self__", None) is model:
            self._uncover()
            return getattr(model, _CALLED)
        return given

    def compiled(self, given: Any, made: Any) -> Any:
        """What `torch.compile` made of something: timed where it replaces the model's forward."""
        model = self._owner()
        if model is None:
            return made
        if given is model:
            self.patches.method_of_a_model(made, "forward", self._around)
        elif getattr(given, "__self__", None) is model:
            return self._around(made)  # `model.compile()`, or of one of its methods
        return made

    def optimizer(self, optimizer: Any, path: str, then: Call | None = None) -> None:
        """Time an optimizer's step. PyTorch's own have hooks for it, which others may wrap.

        An optimizer that steps inside backward, for a part of the model, is a phase of that.
        `then` gets the optimizer when its step is over; only PyTorch's own tell.
        """
        if not hasattr(optimizer, "register_step_pre_hook"):
            if hasattr(optimizer, "step"):
                self.span(optimizer, "step", path, Class.OPTIMIZER)
            return
        steps = _Stepping(self, path, then, weakref.ref(optimizer))
        begin, end = self.guard(steps.begin), self.guard(steps.end)
        pre = optimizer.register_step_pre_hook(unless_compiling(nothing, begin))
        post = optimizer.register_step_post_hook(unless_compiling(steps.ends_compiled, end))
        steps.hooks = pre, post
        # Some loops make an optimizer a step: of those that are gone nothing is kept.
        self._stepping = [one for one in self._stepping if one.optimizer() is not None]
        self._stepping.append(steps)

    def _take_hooks_off(self) -> None:
        for steps in self._stepping:
            for hook in steps.hooks:
                hook.remove()

    def look_at_compiled(self, *, is_timed: bool = False) -> None:
        """End what optimizers stepped in compiled functions since; how long they took nobody saw,
        unless it `is_timed` from outside."""
        for steps in self._stepping:
            if steps.compiled:
                steps.compiled = False
                if self.first_went_unseen():
                    return
                self.track.blind = self.track.blind or not is_timed
                if steps.then is not None:
                    steps.then(steps.optimizer())

    def first_went_unseen(self) -> bool:
        """Whether a first step ends of which there was no phase: the second begins at this moment,
        and of the first nothing can be told."""
        unseen = not self.track.begin
        if unseen:
            self.timeline.begin(self.track)
            self.track.step += 1
        return unseen

    def closing(self, owner: Any, closed: Callable[[Any, Parts], None]) -> Call:
        """`closed(owner, parts)`, to be called after what may end a step of `owner`."""
        reference = weakref.ref(owner)
        return lambda _: closed(reference(), self)

    def counts_on(self, step: int) -> None:
        """The engine's counter was set: its next step is `step`. Back behind steps that are
        recorded it goes with `falls_back`."""
        if self.track.step == self._first or step > self.track.step:
            self._first = step
            self.timeline.renumber(self.track, step)

    def falls_back(self, step: int) -> None:
        """Where the next step, `step`, is told already, it is of another launch's recording."""
        if step < self.track.step:
            self.recorder.begin_anew()

    def backward_done(self, *_: Any) -> None:
        self.track.backward_done = True


class _Stepping:
    """One optimizer's `step`, of whose hooks only the outermost pair counts.

    PyTorch runs them for each class with a `step` of its own: twice, nested, where a class that
    calls `super().step()` and its base are both in use. A compiled one runs no hooks: it sets
    `compiled`.
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
        self.hooks: tuple[Any, ...] = ()  # what takes them off
        self.frame: Frame | None = None
        self.depth = 0

    def begin(self, _: Any, args: Any, kwargs: Any) -> Any:
        timeline = self.timeline
        if self.depth and self._goes_on():
            self.depth += 1
            return None
        within = timeline.stack and timeline.is_open(self.backward)
        self.depth, self.evaluated = 1, False
        self.frame = timeline.enter(self.track, self.inside if within else self.phase)
        return around_closure(self._paused, args, kwargs)

    def ends_compiled(self, *_: Any) -> None:
        """Compiled with the optimizer's step: set whenever that runs, behind its graph, and never
        read there, so that no graph is made anew for it."""
        self.compiled = True

    def _goes_on(self) -> bool:
        """No phase has ended since: else an exception ended that step, and training survived."""
        return self.frame is not None and self.track.left <= self.frame.begin

    def end(self, optimizer: Any, *_: Any) -> None:
        """Where recording began meanwhile, nothing is open."""
        if self.depth:
            self.depth -= 1
            if not self.depth:
                self._pause()
                if self.then is not None:
                    self.then(optimizer)

    def _paused(self, closure: Call) -> Call:
        """Forward and backward inside the optimizer's step are no part of its phase.

        The loss is that of the first time, which `step` returns: L-BFGS goes on to try others.
        """
        return self.guard.around(closure, self._evaluates, self._evaluated)

    def _evaluates(self, *_: Any) -> None:
        self.metrics.aside = self.evaluated
        self._pause()

    def _evaluated(self, _: Any) -> None:
        self.metrics.aside, self.evaluated = False, True
        self._resume()

    def _pause(self, *_: Any) -> None:
        frame, self.frame = self.frame, None
        self.timeline.leave(frame)

    def _resume(self) -> None:
        self.frame = self.timeline.enter(self.track, self.phase)


def _nobody() -> None:
    """What an engine refers to."""


def nothing(*_: Any) -> None:
    """Where an optimizer's compiled step begins, and where a scaler's has ended or failed."""


def unless_compiling(raw: Call, timed: Call) -> Call:
    """What is compiled or traced after us has `raw`: its graph stays whole."""
    import torch
    from torch.jit import is_tracing

    # Since PyTorch 2.3. The one before is a constant for whoever compiles, as this one is.
    is_compiling = getattr(torch.compiler, "is_compiling", None)
    is_compiling = is_compiling or torch._utils.is_compiling  # noqa: SLF001

    def call(*args: Any, **kwargs: Any) -> Any:
        return (raw if is_compiling() or is_tracing() else timed)(*args, **kwargs)

    return call


def around_closure(around: Callable[[Call], Call], args: Any, kwargs: Any) -> Any:
    """The arguments of `step` with `around` its closure; None if it was given none."""
    if len(args) > 1 and callable(args[1]):
        return (args[0], around(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": around(kwargs["closure"])}
    return None
