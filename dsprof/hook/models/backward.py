"""Backward of models without an engine: which model it belongs to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsprof.events import Class
from dsprof.hook.guard import Failing
from dsprof.hook.models.given import Given, Loss
from dsprof.hook.models.optimizers import Optimizers
from dsprof.hook.models.outputs import MOST_OUTPUTS, at_gradient, first_with_gradient, tensors_in
from dsprof.hook.models.parts import Parts
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Track

if TYPE_CHECKING:
    from dsprof.hook.models.reducer import Reducer

MOST_LOSSES: Final = 256  # losses that wait for the end of their step


class Told(NamedTuple):
    """The loss of one backward, and the models to which it may belong."""

    loss: Loss
    models: set[Track]  # those that backward went through
    taken: list[Track]  # those whose steps have ended since and took this loss


class Backward:
    """Assigns `loss.backward()` and `torch.autograd.backward` to the models they go through.

    A single model has all of it. If there are several models, or an engine, hooks on each model's
    outputs tell when the gradient reaches that model, and its backward begins there. Autograd runs
    first what was computed last, so one model's backward ends when the next one's begins.

    A loss belongs to the models that backward went through and that step next: that of a generator
    goes through its discriminator, which does not learn from it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.timeline, self.models = recorder.timeline, recorder.models
        self.optimizers = Optimizers(recorder)
        self.reducing: list[Reducer] = []  # those in the current backward, in order of begin
        self.ending: list[Callable[[], None]] = []  # end the steps that end with this backward
        self._given = Given(recorder)
        self._phase = self.timeline.phase("backward", Class.COMPUTE)
        self._on_host = recorder.gpu is None
        self._frame: Frame | None = None
        self._is_anybodys = False  # it is not known yet to which model the frame belongs
        self._since = 0  # ns; begin of a backward with no frame yet: no model's forward came last
        self._told: Told | None = None  # of the current backward
        self._failing = Failing()
        self._through: set[Track] = set()  # models whose part of the current backward has ended
        self._keeps = False  # it retains the graph for another loss
        self._losses: deque[Told] = deque(maxlen=MOST_LOSSES)

    def patch(self, recorder: Recorder) -> None:
        """Wrap the functions that run backward. To be called after other patches of them, whose
        code then runs inside backward.
        """
        from torch import Tensor, autograd
        from torch.nn.parallel import DistributedDataParallel

        around, patches = recorder.guard.around, recorder.patches
        patches.of_class(Tensor, "backward", lambda raw: around(raw, self._of_loss, self._end))
        patches.method(autograd, "backward", lambda raw: around(raw, self._of_losses, self._end))
        if hasattr(DistributedDataParallel, "finalize_backward"):
            patches.of_class(
                DistributedDataParallel, "finalize_backward",
                lambda raw: around(raw, self._finalizes, self._finalized),
            )  # fmt: skip

    @property
    def several(self) -> bool:
        return len(self.timeline.tracks) > 1

    def add(self, parts: Parts) -> None:
        """Add a model."""
        for other in self.models.values():
            other.metrics.doubt()
        self.models[parts.track] = parts
        parts.patches.undo_with(partial(self._remove, parts))
        self.ask()

    def _remove(self, parts: Parts) -> None:
        """Forget a model, and what trained it: that may train another one from now on."""
        del self.models[parts.track]
        self.optimizers.known.drop(parts.steps)

    def ask(self) -> None:
        """Once there are two models or engines, watch the outputs of all models."""
        if self.several:
            for one in self.models.values():
                if one.returned is None:
                    one.returned = partial(self.watch, one)

    def watch(self, parts: Parts, output: Any, also: Any = None) -> None:
        """Register hooks for when the gradient reaches the output of a forward; they also call
        `also`.

        The backward of a model that was called inside another one's forward counts as that of the
        other one.
        """
        from torch import is_grad_enabled

        inside = bool(self.timeline.stack)
        action = also if inside else partial(self._reached, parts, also)
        tensors = list(islice(tensors_in(output), MOST_OUTPUTS))
        if action is not None:
            hook = parts.guard(action)
            for tensor in tensors:
                if tensor.requires_grad and not tensor.is_leaf:
                    at_gradient(tensor, hook)
        parts.unseen = not tensors and not inside and is_grad_enabled()

    def _of_loss(self, args: Any, kwargs: Any) -> bool:
        return self._begin(args[0]) and self._begun(args, kwargs)

    def _of_losses(self, args: Any, kwargs: Any) -> bool:
        """Inside a phase it is not counted: `loss.backward()` called it, or it is a detail of some
        other function.
        """
        if self.timeline.stack or self._since:
            return False
        losses = args[0] if args else kwargs.get("tensors")
        alone = isinstance(losses, list | tuple) and len(losses) == 1
        return self._begin(losses[0] if alone else losses) and self._begun(args, kwargs)

    def _begun(self, args: Any, kwargs: Any) -> bool:
        """Note `retain_graph`. Both functions take it and `create_graph` as third and fourth
        argument.
        """
        keeps, creates = (*args[2:4], None, None)[:2]
        keeps, creates = kwargs.get("retain_graph", keeps), kwargs.get("create_graph", creates)
        self._keeps = bool(creates if keeps is None else keeps)
        return True

    def _begin(self, start: Any) -> bool:
        """Begin a backward; False if it is not to be timed. From a list of several losses none is
        recorded, because it is unknown which of them is the training loss.
        """
        timeline = self.timeline
        if not self.models or timeline.is_elsewhere() or timeline.is_open(self._phase):
            return False
        self._failing.begins()
        self._through.clear()
        for one in list(self.models.values()):
            one.look_at_compiled()
        parts = self.models.get(timeline.current)
        if parts is not None:
            parts.steps.backward_begins()
        if self.reducing:  # left over from a backward that an exception ended
            self.forget()
        loss = self._given.loss_of(start)
        if self.several:
            if parts is None or not parts.metrics.aside:
                self._told = Told(_kept(loss), set(), [])
            self._is_anybodys = True
        elif parts is not None:
            loss.tell(parts.metrics)
            if parts.backward_begins is not None:
                parts.backward_begins(first_with_gradient(start))
        if parts is None:
            self._since = now()
        else:
            self._frame = timeline.enter(parts.track, self._phase)
        return True

    def _reached(self, parts: Parts, also: Any, gradient: Any) -> None:
        """The gradient has reached the output of a model: its backward begins."""
        timeline, frame, told = self.timeline, self._frame, self._told
        if frame is None and self._since and not timeline.stack:
            self._frame = frame = timeline.enter(parts.track, self._phase)
            self._is_anybodys = False
            if frame is not None and self._on_host:
                frame.begin = self._since
        if frame is not None and timeline.stack and timeline.stack[-1] is frame:
            if self._is_anybodys:
                self._is_anybodys = False
                timeline.give(frame, parts.track)
            elif frame.track is not parts.track:
                self._tell_of_inner()
                self._leave(frame)
                self._frame = timeline.enter(parts.track, self._phase)
        elif timeline.is_open(self._phase):  # an engine's backward, which also goes through this
            parts.track.blind = timeline.stack[-1].track.blind = True
        if told is not None:
            told.models.add(parts.track)
        if also is not None:
            also(gradient)

    def _tell_of_inner(self) -> None:
        """Record the waits of a backward inside this one that has ended, for the model that
        waited.
        """
        for reducer in self.reducing.copy():
            if reducer.waited:
                reducer.tell()

    def _leave(self, frame: Frame) -> None:
        self.timeline.leave(frame)
        if not self._failing.failed():
            frame.track.backward_done = True
            self._through.add(frame.track)

    def _end(self, begun: bool) -> None:
        if not begun:
            return
        frame, self._frame, self._since = self._frame, None, 0
        told, self._told = self._told, None
        if self.several:
            self._look_at_unseen(frame)
        if frame is not None:
            self._leave(frame)
        if self._failing.failed():
            self._take_back(frame)
        else:
            self._count(frame, told)
        while self.ending:
            self.ending.pop()()

    def _count(self, frame: Frame | None, told: Told | None) -> None:
        if not self._keeps:
            for track in self._through:
                track.backwards += 1
        if told is not None:
            if not told.models and frame is not None:
                told.models.add(frame.track)
            self._losses.append(told)

    def _take_back(self, frame: Frame | None) -> None:
        """Drop the loss of a backward that an exception ended, in case training goes on."""
        parts = self.models.get(frame.track) if frame is not None else None
        if parts is not None and not self.several:
            parts.metrics.take_back()

    def _look_at_unseen(self, frame: Frame | None) -> None:
        """Backward may have gone unseen through a model whose output has no tensor: its step has no
        division into classes.
        """
        unseen = [parts for parts in self.models.values() if parts.unseen]
        for parts in unseen:
            parts.track.blind, parts.unseen = True, False
        if unseen and frame is not None:
            frame.track.blind = True

    def tell(self, parts: Parts) -> None:
        """A step of a model ends: record the losses since the last one that went through it.

        If a loss went through several models, as a sum of their losses, a model that returned its
        own loss keeps that.
        """
        for told in self._losses:
            if parts.track in told.models:
                told.taken.append(parts.track)
                if len(told.models) == 1 or not parts.metrics.returned:
                    told.loss.tell(parts.metrics)

    def forget_told(self) -> None:
        """A forward begins: forget the losses whose steps have ended."""
        if self._losses:
            left = [told for told in self._losses if not told.taken]
            self._losses.clear()
            self._losses.extend(left)

    def _finalizes(self, args: Any, _: Any) -> Reducer | None:
        mine = (reducer for reducer in self.reducing if reducer.model() is args[0])
        reducer = next(mine, None)
        if reducer is not None:
            reducer.finalizes()
        return reducer

    def _finalized(self, reducer: Reducer | None) -> None:
        if reducer is not None:
            reducer.tell()

    def forget(self) -> None:
        for reducer in self.reducing:
            reducer.queued = False
            reducer.parts.recorder.collectives.others_waited()
        self.reducing.clear()


def _kept(loss: Loss) -> Loss:
    """A copy of the loss as it is now, to keep until its model is known; without its value if that
    is in device memory.
    """
    value = loss.value
    is_read = getattr(value, "is_cpu", False) and value.numel() == 1
    return loss._replace(value=value.detach().clone() if is_read else None)
