"""Models without an engine: plain, under DDP, under FSDP2. A step is their optimizer's."""

from __future__ import annotations

import weakref
from time import perf_counter_ns as now
from typing import Any

from dsprof.hook.parts import Parts
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame


def attach(model: Any, optimizer: Any, step: int, recorder: Recorder, patches: Patches) -> None:
    """Record `model`, trained by `optimizer`, whose next step has the number `step`."""
    parts = Parts(recorder, patches, step, scaled=False)
    inner = getattr(model, "_orig_mod", model)  # of one that is compiled
    names = {kind.__name__ for kind in type(inner).__mro__}
    if "DistributedDataParallel" in names:
        reducer = Reducer(inner, parts)
        parts.forward(model, _entry(model), then=reducer.watch)
        parts.backward_begins = reducer.begins_at
    elif "LightningModule" in names:  # not wrapped: Lightning calls no forward, but this
        parts.forward(model.trainer.strategy, "training_step")
    else:
        parts.forward(model, _entry(model))
    _time_others(parts)
    parts.optimizer(optimizer, "step")
    _close_after(optimizer, parts)


def _entry(model: Any) -> str:
    """The method that a call of the model runs, whatever is done around its forward."""
    if getattr(model, "_compiled_call_impl", None) is not None:
        return "_compiled_call_impl"  # `model.compile()`
    # FSDP2 gathers parameters in hooks, which run around `forward` and inside this.
    sharded = any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__)
    return "_call_impl" if sharded else "forward"


def _time_others(parts: Parts) -> None:
    """Time `loss.backward()` while the forward that ran last is this model's, and what the
    model is compiled to later.

    These are the process's, whose patches all models share: handles end in any order.
    """
    models, track = parts.recorder.models, parts.track
    if not models:
        _patch_backward(parts.recorder)
        _patch_compile(parts.recorder)
    models[track] = parts
    parts.patches.undo_with(lambda: models.pop(track))


def _patch_backward(recorder: Recorder) -> None:
    from torch import Tensor

    timeline, models = recorder.timeline, recorder.models

    def begin(args: Any, _: Any) -> Frame | None:
        parts = models.get(timeline.current)
        if parts is None or timeline.is_open(parts.backward):
            return None
        parts.metrics.backward_of(args[0])
        if parts.backward_begins is not None:
            parts.backward_begins(args[0])
        return timeline.enter(parts.track, parts.backward)

    def end(frame: Frame | None) -> None:
        if frame is not None:
            timeline.leave(frame)
            frame.track.backward_done = True

    recorder.patches.of_class(
        Tensor, "backward", lambda raw: recorder.guard.around(raw, begin, end)
    )


def _patch_compile(recorder: Recorder) -> None:
    import torch

    def timed(given: Any, made: Any) -> Any:
        for parts in recorder.models.values():
            made = parts.compiled(given, made)
        return made

    guarded = recorder.guard(timed)

    def around(raw: Call) -> Call:
        def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            made = raw(model, *args, **kwargs)
            found = guarded(model, made)
            return made if found is None else found

        return compile_

    recorder.patches.method(torch, "compile", around)


def _close_after(optimizer: Any, parts: Parts) -> None:
    """The end of the optimizer's step, in a hook that runs after the one that times it."""

    def close(stepped: Any) -> None:
        parts.metrics.write(parts.track.step, stepped)
        parts.timeline.close_step(parts.track, parts.track.step)

    closed = parts.guard(close)
    hook = optimizer.register_step_post_hook(lambda stepped, *_: closed(stepped))
    parts.patches.undo_with(hook.remove)


class Reducer:
    """DDP's gradient all-reduce, which C++ issues and waits for at the end of backward.

    Autograd runs final callbacks in the order in which they were queued. One that is queued
    when backward begins runs as soon as the last gradient is there, before the reducer's
    own, which waits for the buckets; one that it queues itself runs after that. What lies
    between is the time that communication kept backward waiting.
    """

    def __init__(self, model: Any, parts: Parts) -> None:
        from torch.autograd import Variable

        self.model, self.parts = weakref.ref(model), parts
        self.queue = Variable._execution_engine.queue_callback  # noqa: SLF001
        self.begun, self.computed = parts.guard(self._begun), parts.guard(self._computed)
        self.reduced = parts.guard(self._reduced)
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.on_cpu = all(parameter.is_cpu for parameter in learned)
        self.bytes = sum(parameter.nbytes for parameter in learned)
        self.group = model.process_group  # the model holds it too
        self.issued = self.since = 0
        self.queued = False  # backward is under way, and its end awaited

    def watch(self, output: Any) -> None:
        """Be there when backward through `output` begins, whoever begins it."""
        self.begins_at(_first_with_gradient(output))

    def begins_at(self, tensor: Any) -> None:
        """Be there when backward through `tensor` begins. What a model returns may be any object
        that holds its loss; `Tensor.backward` always has one."""
        self.queued = False  # of a backward that an exception ended
        if getattr(tensor, "requires_grad", False):
            tensor.register_hook(self.begun)

    def _begun(self, _: Any) -> None:
        if self.queued:
            return
        if getattr(self.model(), "require_backward_grad_sync", False):
            self.queued = True
            self.issued = self._count()
            self.queue(self.computed)

    def _computed(self) -> None:
        self.since = now()
        self.parts.recorder.collectives.wait_begins()
        self.queue(self.reduced)

    def _reduced(self) -> None:
        self.queued = False
        blocked = now() - self.since if self.on_cpu else -1
        buckets = max(self._count() - self.issued, 1)
        self.parts.recorder.collectives.by_others(
            "all_reduce", self.group, self.since, blocked, buckets, self.bytes
        )

    def _count(self) -> int:
        """Collectives of the group so far, by its own count, that Python did not issue."""
        collectives = self.parts.recorder.collectives
        return int(self.group._get_sequence_number_for_group()) - collectives.count(self.group)  # noqa: SLF001


def _first_with_gradient(output: Any) -> Any:
    if getattr(output, "requires_grad", False):
        return output
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, list | tuple):
        found = (_first_with_gradient(part) for part in output)
        return next((tensor for tensor in found if tensor is not None), None)
    return None
