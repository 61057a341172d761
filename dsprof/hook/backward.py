"""Backward of models without an engine: whose it is, and what DDP waits for at its end."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter_ns as now
from typing import Any, Final, NamedTuple

from dsprof.events import Class
from dsprof.hook.buffers import by_others_so_far
from dsprof.hook.given import Given, Loss
from dsprof.hook.metrics import Failing
from dsprof.hook.optimizers import Optimizers
from dsprof.hook.parts import Parts
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Track

MOST_OUTPUTS: Final = 16  # of one forward that are looked at, where there are several models
MOST_LOSSES: Final = 256  # that wait for a step


class Told(NamedTuple):
    """The loss of one backward, and whose it may be."""

    loss: Loss
    models: set[Track]  # that backward went through
    taken: list[Track]  # whose steps ended with it


class Backward:
    """`loss.backward()` or `torch.autograd.backward`, booked on the models that it goes through.

    Of a single model it is that one's. Where there are several, or an engine, a hook on each
    one's outputs tells when the gradient comes to it: from there on it is its own. Autograd runs
    what was computed later first, so one model's backward is over when the next one's begins.

    A loss is of the models that it went through and that step next: a generator's goes through
    its discriminator, which does not learn from it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.timeline, self.models = recorder.timeline, recorder.models
        self.optimizers = Optimizers(recorder)
        self.reducing: list[Reducer] = []  # in the backward under way, in their order
        self.ending: list[Callable[[], None]] = []  # steps that end with the one under way
        self._given = Given(recorder)
        self._phase = self.timeline.phase("backward", Class.COMPUTE)
        self._on_host = recorder.gpu is None
        self._frame: Frame | None = None
        self._is_anybodys = False  # nobody knows yet whose the frame is
        self._since = 0  # it began where an engine's forward was the last, and came to no model yet
        self._told: Told | None = None  # of the backward under way
        self._failing = Failing()
        self._through: set[Track] = set()  # whose part of the one under way is over
        self._keeps = False  # what it went through, for one more loss
        self._losses: deque[Told] = deque(maxlen=MOST_LOSSES)

    def patch(self, recorder: Recorder) -> None:
        """Around whatever else is put there: backward has begun when that runs."""
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
        """One more model."""
        for other in self.models.values():
            other.metrics.doubt()
        self.models[parts.track] = parts
        parts.patches.undo_with(lambda: self.models.pop(parts.track))
        self.ask()

    def ask(self) -> None:
        """From a second model or engine on, all models are asked whether backward came to them."""
        if self.several:
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

    def _of_loss(self, args: Any, kwargs: Any) -> bool:
        return self._begin(args[0]) and self._begun(args, kwargs)

    def _of_losses(self, args: Any, kwargs: Any) -> bool:
        """Inside of a phase it is what `loss.backward()` calls, or a function's own affair."""
        if self.timeline.stack or self._since:
            return False
        losses = args[0] if args else kwargs.get("tensors")
        alone = isinstance(losses, list | tuple) and len(losses) == 1
        return self._begin(losses[0] if alone else losses) and self._begun(args, kwargs)

    def _begun(self, args: Any, kwargs: Any) -> bool:
        """Both functions have `retain_graph` and `create_graph` behind their first two."""
        keeps, creates = (*args[2:4], None, None)[:2]
        keeps, creates = kwargs.get("retain_graph", keeps), kwargs.get("create_graph", creates)
        self._keeps = bool(creates if keeps is None else keeps)
        return True

    def _begin(self, start: Any) -> bool:
        """Of several losses, a list, none is told: which of them training means is unknown."""
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
        if self.reducing:  # an exception ended that backward
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
        elif timeline.is_open(self._phase):  # an engine's, through this model, too
            parts.track.blind = timeline.stack[-1].track.blind = True
        if told is not None:
            told.models.add(parts.track)
        if also is not None:
            also(gradient)

    def _tell_of_inner(self) -> None:
        """What was waited for in a backward inside this one, which is over, is this model's."""
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
        """An exception ended that backward: its loss is no step's, if training survives it."""
        parts = self.models.get(frame.track) if frame is not None else None
        if parts is not None and not self.several:
            parts.metrics.take_back()

    def _look_at_unseen(self, frame: Frame | None) -> None:
        """Through a model whose output is no tensor backward may have gone unseen."""
        unseen = [parts for parts in self.models.values() if parts.unseen]
        for parts in unseen:
            parts.track.blind, parts.unseen = True, False
        if unseen and frame is not None:
            frame.track.blind = True

    def tell(self, parts: Parts) -> None:
        """A step of that model ends: the losses since are its own.

        Of a sum of losses that several models returned each knows its own.
        """
        for told in self._losses:
            if parts.track in told.models:
                told.taken.append(parts.track)
                if len(told.models) == 1 or not parts.metrics.returned:
                    told.loss.tell(parts.metrics)

    def forget_told(self) -> None:
        """A forward begins, and the steps that some losses were for have ended."""
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
        self.computed_inside = parts.guard(self._computed_inside)
        self.reduced_inside = parts.guard(self._reduced_inside)
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.on_cpu = all(parameter.is_cpu for parameter in learned)
        self.bytes = sum(parameter.nbytes for parameter in learned)
        self.group = model.process_group  # the model holds it too
        self.began = self.issued = self.since = self.buckets = 0
        self.waited = 0  # in a backward inside this one
        self.held: tuple[Frame | None, int] = (None, 0)  # the phase then, and what it had waited
        self.queued = False  # backward is under way, and its end awaited

    def watch(self, output: Any) -> None:
        """Be there when backward through `output` begins, whoever begins it."""
        if self.backward.several:
            self.backward.watch(self.parts, output, self._begun)
        else:
            self.begins_at(first_with_gradient(output))

    def begins_at(self, tensor: Any) -> None:
        """Be there when backward through `tensor` begins. What a model returns may be any object
        that holds its loss; backward always begins at one."""
        if not self.parts.timeline.is_elsewhere():  # who evaluates ends no backward of training's
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
        if self._is_finalized_by_hand():
            self.count_buckets()
            return
        for other in self.backward.reducing.copy():
            if other is not self and other.since:
                other.tell()
        self.since, self.held = now(), self._held()
        self.parts.recorder.collectives.wait_begins()
        self.queue(self.reduced)

    def _reduced(self) -> None:
        if self.queued:
            self.tell()

    def _is_finalized_by_hand(self) -> bool:
        """Whether the loop waits by itself: `finalize_backward`, which PyTorch 2.15 has."""
        return getattr(self.model(), "require_manual_backward_finalization", False)

    def finalizes(self) -> None:
        """The loop begins to wait, in backward or behind it."""
        self.count_buckets()
        self.since, self.held = now(), self._held()
        self.parts.recorder.collectives.wait_begins()

    def count_buckets(self) -> None:
        if self.buckets < 0:
            self.buckets = self._count() - self.issued

    def tell(self) -> None:
        """Its wait is over."""
        self.count_buckets()
        blocked = self.waited + (self._since_then() if self.since else 0) if self.on_cpu else -1
        since, self.since, self.waited, self.queued = self.since or now(), 0, 0, False
        self.backward.reducing.remove(self)
        collectives = self.parts.recorder.collectives
        if self.buckets > 0:
            collectives.by_others(
                "all_reduce", self.group, since, blocked, self.buckets, self.bytes
            )
        else:  # nothing, or a communication hook issues them in Python
            collectives.waited_for(self.group, self.began, since, blocked)

    def inside(self, _: Any) -> None:
        """A backward has begun inside this one, which may reduce: wait for its end, too."""
        if self.queued and self.on_cpu:
            self.queue(self.computed_inside)

    def _computed_inside(self) -> None:
        self.since, self.held = now(), self._held()
        self.queue(self.reduced_inside)

    def _reduced_inside(self) -> None:
        self.waited, self.since = self.waited + self._since_then(), 0

    def _held(self) -> tuple[Frame | None, int]:
        """The phase that is open, and for how long collectives held it up."""
        stack = self.parts.timeline.stack
        return (stack[-1], stack[-1].blocked) if stack else (None, 0)

    def _since_then(self) -> int:
        """What our wait took, without what FSDP2, in the same backward, waited for meanwhile."""
        frame, before = self.held
        inner = frame.blocked - before if frame is not None and frame is self._held()[0] else 0
        return now() - self.since - inner

    def _count(self) -> int:
        return by_others_so_far(self.parts.recorder.collectives, self.group)


def _kept(loss: Loss) -> Loss:
    """As it is now, until it is known whose it is. What a device holds is not read."""
    value = loss.value
    is_read = getattr(value, "is_cpu", False) and value.numel() == 1
    return loss._replace(value=value.detach().clone() if is_read else None)


def _nothing(gradient: Any) -> None:
    """What is done where the gradient of a model's inner one comes."""


def first_with_gradient(output: Any) -> Any:
    """Not a parameter that the model returns as it is: hooks on it would outlive the step."""
    if hasattr(output, "requires_grad"):  # as nearly always, and once a step
        return output if output.requires_grad and not output.is_leaf else None
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
