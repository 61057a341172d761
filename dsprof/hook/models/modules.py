"""Records models without an engine: plain, under DDP, under FSDP2. Their optimizers end a step."""

from __future__ import annotations

import weakref
from typing import Any

from dsprof.hook.models import sizes
from dsprof.hook.models.backward import Backward
from dsprof.hook.models.buffers import Buffers
from dsprof.hook.models.compiling import Compiling, held_if_compiled
from dsprof.hook.models.optimizers import Steps
from dsprof.hook.models.parts import Parts, taken_over
from dsprof.hook.models.reducer import Reducer
from dsprof.hook.models.reentrant import Reentrant
from dsprof.hook.patches import Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Track


def attach(model: Any, optimizer: Any, step: int, recorder: Recorder, patches: Patches) -> None:
    """Record `model`, which `optimizer` trains; its next step has the number `step`."""
    optimizer = _unwrapped(optimizer)
    track = _taken_over(model, optimizer, recorder, patches)
    parts = Parts(recorder, patches, step, track, scaled=False)
    if step > parts.track.step:
        parts.timeline.renumber(parts.track, step)
    backward = _backward_of(recorder)
    held_if_compiled(patches)
    inner = getattr(model, "_orig_mod", model)  # the model inside a compiled one
    names = {kind.__name__ for kind in type(inner).__mro__}
    wrapped = sizes.wrapped_in(inner)
    if sizes.wrapper_of(wrapped) == "DDP":
        reducer = Reducer(wrapped, parts, backward)
        parts.returned, parts.backward_begins = reducer.watch, reducer.begins_at
        parts.forward(model, _entry(model))
    elif "LightningModule" in names:  # Lightning calls this and not `forward` if nothing wraps it
        parts.forward(model.trainer.strategy, "training_step")
    else:
        parts.forward(model, _entry(model))
    sizes.tell(wrapped, parts)
    parts.model = weakref.ref(model)
    backward.add(parts)
    parts.steps = Steps(parts, optimizer)


def _taken_over(model: Any, optimizer: Any, recorder: Recorder, patches: Patches) -> Track | None:
    """The track of a model inside this one that has the same optimizer."""
    inside = {id(part) for part in model.modules()}
    return taken_over(
        recorder,
        patches,
        lambda parts: id(parts.model()) in inside and parts.steps.trains_by(optimizer),
    )


def _unwrapped(optimizer: Any) -> Any:
    """The optimizer that really steps. A wrapper such as accelerate's, or PyTorch's own
    `PostLocalSGDOptimizer`, is an Optimizer by class only and has no hooks of its own.
    """
    if _has_hooks(optimizer):
        return optimizer
    held = filter(_has_hooks, getattr(optimizer, "__dict__", {}).values())
    return next(held, getattr(optimizer, "optimizer", optimizer))


def _has_hooks(one: Any) -> bool:
    return hasattr(one, "_optimizer_step_pre_hooks")


def _entry(model: Any) -> str:
    """The name of the method to time, so that all that a call of the model does is included."""
    if getattr(model, "_compiled_call_impl", None) is not None:
        return "_compiled_call_impl"  # `model.compile()`
    # FSDP2 gathers parameters in hooks, which run around `forward` but inside `_call_impl`.
    sharded = any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__)
    return "_call_impl" if sharded else "forward"


def _backward_of(recorder: Recorder) -> Backward:
    """The process's only `Backward`; the first call also patches what else all models share.

    That is `loss.backward()`, the buffers that DDP broadcasts, and compiling. These patches belong
    to the recorder, not to a handle, because handles may be detached in any order.
    """
    if recorder.backward is None:
        recorder.backward = Backward(recorder)
        Reentrant(recorder, recorder.backward)
        recorder.backward.patch(recorder)
        Buffers(recorder)
        Compiling(recorder)
    return recorder.backward  # type: ignore[no-any-return]
