"""Backward of models without an engine: whose it is, and what DDP waits for at its end."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter_ns as now
from typing import Any, Final

from dsprof.hook.buffers import by_others_so_far
from dsprof.hook.given import Given
from dsprof.hook.optimizers import Optimizers
from dsprof.hook.parts import Parts
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame

MOST_OUTPUTS: Final = 16  # of one forward that are looked at, where there are several models


class Backward:
    """`loss.backward()`, booked on the models that it goes through.

    Of a single model it is that one's. Where there are several, a hook on each one's outputs
    tells when the gradient comes to it: from there on it is its own. Autograd runs what was
    computed later first, so one model's backward is over when the next one's begins.
    """

    def __init__(self, recorder: Recorder) -> None:
        from torch import Tensor

        self.timeline, self.models = recorder.timeline, recorder.models
        self.optimizers = Optimizers(recorder)
        self.reducing: list[Reducer] = []  # in the backward under way, in their order
        self.ending: list[Callable[[], None]] = []  # steps that end with the one under way
        self._given = Given(recorder)
        self._frame: Frame | None = None
        self._start: Any = None  # what it begins at, while nobody knows whose it is
        recorder.patches.of_class(
            Tensor, "backward", lambda raw: recorder.guard.around(raw, self._begin, self._end)
        )

    def add(self, parts: Parts) -> None:
        """One more model. From the second one on, all are asked whether backward came to them."""
        self.models[parts.track] = parts
        parts.patches.undo_with(lambda: self.models.pop(parts.track))
        if len(self.models) > 1:
            for one in self.models.values():
                if one.returned is None:
                    one.returned = partial(self.watch, one)

    def watch(self, parts: Parts, output: Any, also: Any = None) -> None:
        """Be there when the gradient comes to what a forward gave; then call `also`, too.

        A model inside another one's forward has its backward inside that one's.
        """
        from torch import is_grad_enabled

        inside = bool(self.timeline.stack)
        hook = parts.guard(also or _nothing if inside else partial(self._reached, parts, also))
        tensors = list(islice(tensors_in(output), MOST_OUTPUTS))
        for tensor in tensors:
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(hook)
        parts.unseen = not tensors and not inside and is_grad_enabled()

    def _begin(self, args: Any, _: Any) -> Frame | None:
        timeline = self.timeline
        parts = self.models.get(timeline.current)
        if parts is None or timeline.is_open(parts.backward):
            return None
        if self.reducing:  # an exception ended that backward
            self.forget()
        if len(self.models) > 1:
            self._start = args[0]
        else:
            self._given.tell(parts.metrics, args[0])
            if parts.backward_begins is not None:
                parts.backward_begins(args[0])
        self._frame = timeline.enter(parts.track, parts.backward)
        return self._frame

    def _reached(self, parts: Parts, also: Any, gradient: Any) -> None:
        timeline, frame = self.timeline, self._frame
        if frame is not None and timeline.stack and timeline.stack[-1] is frame:
            if self._start is not None:
                self._is_of(frame, parts)
            elif frame.track is not parts.track:
                self._leave(frame)
                self._frame = timeline.enter(parts.track, parts.backward)
        if also is not None:
            also(gradient)

    def _is_of(self, frame: Frame, parts: Parts) -> None:
        start, self._start = self._start, None
        self.timeline.give(frame, parts.track)
        self._given.tell(parts.metrics, start)

    def _leave(self, frame: Frame) -> None:
        self.timeline.leave(frame)
        frame.track.backward_done = True

    def _end(self, begun: Frame | None) -> None:
        frame = self._frame
        if begun is None or frame is None:
            return
        if len(self.models) > 1:
            self._tell_of_several(frame)
        self._frame = None
        self._leave(frame)
        while self.ending:
            self.ending.pop()()

    def _tell_of_several(self, frame: Frame) -> None:
        """Through a model whose output is no tensor backward may have gone unseen."""
        parts = self.models.get(frame.track)
        if self._start is not None and parts is not None:
            self._is_of(frame, parts)
        unseen = [parts for parts in self.models.values() if parts.unseen]
        for parts in unseen:
            parts.track.blind, parts.unseen = True, False
        frame.track.blind = frame.track.blind or bool(unseen)

    def tell(self, parts: Parts) -> None:
        """A step of that model ends."""

    def forget_told(self) -> None:
        """A forward begins."""

    def forget(self) -> None:
        for reducer in self.reducing:
            reducer.queued = False
        self.reducing.clear()


class Reducer:
    """DDP's gradient all-reduce, which C++ issues and waits for at the end of backward.

    Autograd runs final callbacks in the order in which they were queued. One that is queued
    when backward begins runs as soon as the last gradient is there, before the reducer's
    own, which waits for the buckets; one that it queues itself runs after that. What lies
    between is the time that communication kept backward waiting. Of several models, where
    one's wait begins that of the one before is over: no moment counts twice.
    """

    def __init__(self, model: Any, parts: Parts, backward: Backward) -> None:
        from torch.autograd import Variable

        self.model, self.parts, self.backward = weakref.ref(model), parts, backward
        self.queue = Variable._execution_engine.queue_callback  # noqa: SLF001
        self.begun, self.computed = parts.guard(self._begun), parts.guard(self._computed)
        self.reduced = parts.guard(self._reduced)
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.on_cpu = all(parameter.is_cpu for parameter in learned)
        self.bytes = sum(parameter.nbytes for parameter in learned)
        self.group = model.process_group  # the model holds it too
        self.began = self.issued = self.since = self.buckets = 0
        self.queued = False  # backward is under way, and its end awaited

    def watch(self, output: Any) -> None:
        """Be there when backward through `output` begins, whoever begins it."""
        if len(self.backward.models) > 1:
            self.backward.watch(self.parts, output, self._begun)
        else:
            self.begins_at(_first_with_gradient(output))

    def begins_at(self, tensor: Any) -> None:
        """Be there when backward through `tensor` begins. What a model returns may be any object
        that holds its loss; `Tensor.backward` always has one."""
        self.backward.forget()  # one that an exception ended
        if getattr(tensor, "requires_grad", False) and not tensor.is_leaf:
            tensor.register_hook(self.begun)

    def _begun(self, _: Any) -> None:
        """Whether it will reduce anything, DDP has decided in forward: what it issues tells."""
        if self.queued:
            return
        for other in self.backward.reducing:  # what is issued from here on is ours
            other.count_buckets()
        self.backward.reducing.append(self)
        self.queued = True
        self.began, self.issued, self.buckets = now(), self._count(), -1
        self.queue(self.computed)

    def _computed(self) -> None:
        for other in self.backward.reducing.copy():
            if other is not self and other.since:
                other.tell()
        self.since = now()
        self.parts.recorder.collectives.wait_begins()
        self.queue(self.reduced)

    def _reduced(self) -> None:
        if self.queued:
            self.tell()

    def count_buckets(self) -> None:
        if self.buckets < 0:
            self.buckets = self._count() - self.issued

    def tell(self) -> None:
        """Its wait is over."""
        self.count_buckets()
        blocked = now() - self.since if self.on_cpu else -1
        since, self.since, self.queued = self.since, 0, False
        self.backward.reducing.remove(self)
        collectives = self.parts.recorder.collectives
        if self.buckets > 0:
            collectives.by_others(
                "all_reduce", self.group, since, blocked, self.buckets, self.bytes
            )
        else:  # nothing, or a communication hook issues them in Python
            collectives.waited_for(self.group, self.began, since, blocked)

    def _count(self) -> int:
        return by_others_so_far(self.parts.recorder.collectives, self.group)


def _nothing(gradient: Any) -> None:
    """What is done where the gradient of a model's inner one comes."""


def _first_with_gradient(output: Any) -> Any:
    """Not a parameter that the model returns as it is: hooks on it would outlive the step."""
    return next((one for one in tensors_in(output) if one.requires_grad and not one.is_leaf), None)


def tensors_in(output: Any, *, of_objects: bool = True) -> Iterator[Any]:
    """The tensors of what a model returned; of an object of its own, those that it holds."""
    if hasattr(output, "requires_grad"):
        yield output
        return
    if isinstance(output, dict):
        output = list(output.values())
    elif of_objects and hasattr(output, "__dict__"):
        of_objects, output = False, list(vars(output).values())
    if isinstance(output, list | tuple):
        for part in output:
            yield from tensors_in(part, of_objects=of_objects)
