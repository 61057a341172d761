"""Shared by all kinds of targets: wrapping their methods as phases of a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.models.evaluations import Evaluations
from dsprof.hook.models.metrics import Metrics
from dsprof.hook.models.optimizer_step import OptimizerStep
from dsprof.hook.models.stepping import take_off
from dsprof.hook.patches import Call, Patches
from dsprof.hook.process.between import GENERATE
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase, Track

_CALLED: Final = "_call_impl"  # the method of a model that `model.compile()` compiles


class Parts:
    """The track of one engine or model in the recording, and the wrappers that write to it."""

    def __init__(
        self, recorder: Recorder, patches: Patches, step: int, track: Track | None = None,
        *, scaled: bool,
    ) -> None:  # fmt: skip
        """`track` is one that goes on here; by default there is a new one."""
        self.recorder, self.patches = recorder, patches
        self.guard, self.timeline = recorder.guard, recorder.timeline
        self.track = track or self.timeline.track(step)
        self._first = step
        self.backward = self.timeline.phase("backward", Class.COMPUTE)
        self.metrics = Metrics(self.timeline, self.track, scaled=scaled)
        self.returned: Call | None = None  # called with the result of a forward
        self.backward_begins: Call | None = None  # called with the tensor that backward begins at
        self.unseen = False  # its output had no tensor, so backward through it cannot be seen
        self.checkpointing = False  # forward without gradients is training: backward reruns it
        self.forward_begins: Callable[[], None] | None = None  # called at a step's first forward
        self.model: Callable[[], Any] = _nobody  # weak reference to a model without an engine
        self.steps: Any = None  # the `Steps` of a model without an engine
        self.batch: Any = None  # the `Batch` of an engine: samples of its steps
        self.is_in_header = track is None and not self.track.number  # its settings are
        self._optimizer_steps: list[OptimizerStep] = []
        patches.undo_with(self._take_hooks_off)

    def span(
        self, owner: Any, method: str, path: str, class_: Class, then: Call | None = None
    ) -> None:
        """Time every call of a method as the phase `path`; `then` is called with its result."""
        phase = self.timeline.phase(path, class_)
        self.patches.method(owner, method, lambda raw: self.timed(raw, phase, then))

    def timed(self, raw: Call, phase: Phase, then: Call | None = None) -> Call:
        """Wrap `raw` so that its calls are recorded as `phase`."""
        timeline = self.timeline
        enter = partial(timeline.enter, self.track, phase)
        return self.guard.around(raw, enter, timeline.leave, then)

    def forward(self, owner: Any, method: str = "forward", *, is_engine: bool = False) -> None:
        """Time a model's forward; without gradients it is evaluation.

        An engine needs no care for compilation: not the engine is compiled but the model in it.
        """
        from torch import is_grad_enabled

        timeline, track = self.timeline, self.track
        backward, generating = self.backward, timeline.phase(*GENERATE)
        training = timeline.phase("forward", Class.COMPUTE)
        evaluating = timeline.phase("evaluation", Class.OTHER)
        evaluations = Evaluations(self, owner, training)

        def begin(*_: Any) -> Frame | None:
            if track.begin and timeline.is_elsewhere() and not self._moves_here():
                return None
            if timeline.stack and (timeline.is_open(backward) or timeline.is_open(generating)):
                return None  # recomputed by activation checkpointing, or one token of generation
            self.look_at_compiled()
            if self.forward_begins is not None:
                self.forward_begins()
            if evaluations.begin():
                return evaluations.enter(evaluating)
            if is_grad_enabled() or self.checkpointing:
                return timeline.enter_forward(track, training)
            return timeline.enter_once(track, evaluating)

        def finished(result: Any) -> None:
            evaluations.end(result)
            if self.returned is not None:
                self.returned(result)

        def around(raw: Call) -> Call:
            timed = self.guard.around(raw, begin, evaluations.leave, finished)
            return timed if is_engine else unless_compiling(raw, timed)

        wrap = self.patches.method if is_engine else self.patches.method_of_a_model
        self._uncover = wrap(owner, method, around)
        self._owner, self._around = weakref.ref(owner), around

    def _moves_here(self) -> bool:
        """Whether a forward on another thread means that training has moved to that thread."""
        from torch import is_grad_enabled

        return is_grad_enabled() and self.timeline.moves_here()

    def to_compile(self, given: Any) -> Any:
        """The function that `model.compile()` should compile instead of `given`: the model's own,
        without our wrapper.

        The compiler skips frames of PyTorch's own classes (`nn.Sequential`, DDP), but would not
        skip our frames around them. The compiled result is timed by `compiled`.
        """
        model = self._owner()
        if model is None or getattr(given, "__name__", "") != _CALLED:
            return given
        if given is vars(model).get(_CALLED) or getattr(given, "__self__", None) is model:
            self._uncover()
            return getattr(model, _CALLED)
        return given

    def compiled(self, given: Any, made: Any) -> Any:
        """`made`, which `torch.compile` made of `given`; timed if it replaces the model's
        forward.
        """
        model = self._owner()
        if model is None:
            return made
        if given is model:
            self.patches.method_of_a_model(made, "forward", self._around)
        elif getattr(given, "__self__", None) is model:
            return self._around(made)  # by `model.compile()`, or of a method of the model
        return made

    def optimizer(self, optimizer: Any, path: str, then: Call | None = None) -> None:
        """Time an optimizer's step as the phase `path`.

        PyTorch optimizers have hooks for it, which also work if other objects wrap the optimizer.
        One that steps inside backward, for a part of the model, is a phase of backward.

        Args:
            optimizer: an optimizer; without hooks its `step` is wrapped instead.
            path: of the phase.
            then: called with the optimizer after each step.
        """
        if not hasattr(optimizer, "step"):
            return
        reference = weakref.ref(optimizer)
        if not hasattr(optimizer, "register_step_pre_hook"):
            stepped = None if then is None else lambda _: then(reference())
            self.span(optimizer, "step", path, Class.OPTIMIZER, stepped)
            return
        steps = OptimizerStep(self, path, then, reference)
        begin, end = self.guard(steps.begin), self.guard(steps.end)
        pre = optimizer.register_step_pre_hook(unless_compiling(nothing, begin))
        post = optimizer.register_step_post_hook(unless_compiling(steps.ends_compiled, end))
        steps.hooks = pre, post
        # Some loops create a new optimizer for every step: forget those that are gone.
        self._optimizer_steps = [
            one for one in self._optimizer_steps if one.optimizer() is not None
        ]
        self._optimizer_steps.append(steps)

    def _take_hooks_off(self) -> None:
        for steps in self._optimizer_steps:
            steps.is_over = True
            take_off(*steps.hooks)

    def look_at_compiled(self, timed: Frame | None = None) -> None:
        """Handle optimizer steps that compiled functions have run since the last call.

        Their duration was not seen, so the step has no division into classes, unless the compiled
        function was `timed` as a whole. Where PyTorch could not compile what calls the hooks of an
        optimizer, they have run as they are, inside that.
        """
        for steps in self._optimizer_steps:
            if steps.compiled or (timed is not None and steps.within == timed.begin):
                steps.compiled, steps.within = False, 0
                if self.first_went_unseen():
                    return
                self.track.blind = self.track.blind or timed is None
                if steps.then is not None:
                    steps.then(steps.optimizer())

    def first_went_unseen(self) -> bool:
        """Whether the first step ends without any phase. If so, the second begins now, and nothing
        is recorded of the first.
        """
        unseen = not self.track.begin
        if unseen:
            self.timeline.begin(self.track)
            self.track.step += 1
        return unseen

    def closing(self, owner: Any, closed: Callable[[Any, Parts], None]) -> Call:
        """A callback that calls `closed(owner, parts)`, for calls that may end a step of `owner`.

        It keeps only a weak reference to `owner`.
        """
        reference = weakref.ref(owner)
        return lambda _: closed(reference(), self)

    def counts_on(self, step: int) -> None:
        """The engine's counter was set, as by loading a checkpoint: its next step is `step`.

        A step before one that is already recorded is handled by `falls_back` instead.
        """
        if self.track.step == self._first or step > self.track.step:
            self._first = step
            self.timeline.renumber(self.track, step)

    def falls_back(self, step: int) -> None:
        """If the next step, `step`, is already recorded, continue in a new recording, which counts
        as another launch.
        """
        if step < self.track.step:
            self.recorder.begin_anew()

    def backward_done(self, *_: Any) -> None:
        self.track.backward_done = True


def taken_over(
    recorder: Recorder, patches: Patches, is_inside: Callable[[Parts], bool]
) -> Track | None:
    """The track of a model that is recorded already and is, as `is_inside` says of its parts, in
    what is to be recorded with `patches`.

    It is one training, and what wraps a model knows more of it. Whoever detaches the model inside
    also ends what goes on here.
    """
    for parts in recorder.models.values():
        if is_inside(parts):
            parts.patches.undo()
            parts.patches.undo_with(patches.undo)
            return parts.track  # type: ignore[no-any-return]
    return None


def _nobody() -> None:
    """Stands for the weak reference to a model where there is none."""


def nothing(*_: Any) -> None:
    """Does nothing: where a compiled optimizer step begins, and for hooks that are not needed."""


def unless_compiling(raw: Call, timed: Call) -> Call:
    """A function that calls `raw` while PyTorch compiles or traces, so that our code causes no
    graph break, and `timed` otherwise.
    """
    import torch
    from torch.jit import is_tracing

    # Public since PyTorch 2.3. The compiler treats both functions as constants.
    is_compiling = getattr(torch.compiler, "is_compiling", None)
    is_compiling = is_compiling or torch._utils.is_compiling  # noqa: SLF001

    def call(*args: Any, **kwargs: Any) -> Any:
        return (raw if is_compiling() or is_tracing() else timed)(*args, **kwargs)

    return call
