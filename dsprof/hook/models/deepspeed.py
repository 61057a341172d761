"""Records a DeepSpeedEngine: forward, backward, step and optimizer, by wrapping methods of the
instance.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.guard import Failing
from dsprof.hook.models.layout import Batch, sizes
from dsprof.hook.models.muon import time_updates
from dsprof.hook.models.parts import Parts, taken_over
from dsprof.hook.patches import Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase, Timeline, Track


def attach(engine: Any, recorder: Recorder, patches: Patches) -> None:
    """Record `engine` (ZeRO 0 to 3, without pipeline).

    DeepSpeed 0.18.3 and later run `_backward_prologue` and `_backward_epilogue` for
    `loss.backward()`, too. Older versions support only `engine.backward`, which calls both. Before
    0.16 neither exists, and `allreduce_gradients` does what the epilogue does.
    """
    parts = parts_of(engine, recorder, patches)
    parts.forward(engine, is_engine=True)
    _backward(engine, parts)
    parts.span(engine, "step", "step", Class.OPTIMIZER, parts.closing(engine, _closed))
    parts.optimizer(engine.optimizer, "step/optimizer_step")
    time_updates(engine, parts)
    checkpoints(engine, parts)
    _states(engine, parts)


def parts_of(engine: Any, recorder: Recorder, patches: Patches) -> Parts:
    track = taken_over(recorder, patches, lambda inside: inside.model() is engine.module)
    if track is not None and track.trains:
        track = None  # the engine counts its steps from the first one on
    parts = Parts(recorder, patches, _next(engine), track, scaled=bool(engine.fp16_enabled()))
    parts.batch = Batch(engine)
    if recorder.backward is not None:
        recorder.backward.ask()
    return parts


def tell_step(engine: Any, parts: Parts, step: int, micros: int) -> None:
    """Record the metrics of a step of `micros` micro-batches that ends.

    At the first step of an engine whose settings the header lacks, they are recorded, too.
    """
    track, writer = parts.track, parts.recorder.writer
    if not (parts.is_in_header or track.trains):  # not earlier: an engine may only evaluate
        for name, value in config(engine).items():
            said = json.dumps(value, default=str) if isinstance(value, Mapping) else value
            writer.config(name, said, track.number)
    samples = parts.batch.other(engine, micros)
    if samples is not None:
        parts.metrics.tell_samples(step, samples)
    parts.metrics.write(step, engine.optimizer, engine.get_global_grad_norm(), engine.skipped_steps)


def checkpoints(engine: Any, parts: Parts) -> None:
    timeline, reference = parts.timeline, weakref.ref(engine)
    save = partial(timeline.enter_once, parts.track, timeline.phase("checkpoint", Class.CHECKPOINT))
    enter = partial(
        timeline.enter, parts.track, timeline.phase("load_checkpoint", Class.CHECKPOINT)
    )

    def loaded(frame: Frame) -> None:
        parts.counts_on(_next(reference()))
        timeline.leave(frame)

    def falls_back(_: Any) -> None:
        parts.falls_back(_next(reference()))

    around = parts.guard.around
    saving = ("save_checkpoint", "save_16bit_model")
    for method in (name for name in saving if hasattr(engine, name)):
        parts.patches.method(engine, method, lambda raw: around(raw, save, timeline.leave))
    parts.patches.method(
        engine, "load_checkpoint", lambda raw: around(raw, enter, loaded, falls_back)
    )


def _states(engine: Any, parts: Parts) -> None:
    """What moves the states of ZeRO off the device and back, as around the generation of answers
    (DeepSpeed 0.15 and later).
    """
    timeline = parts.timeline
    for method in ("offload_states", "reload_states"):
        if hasattr(engine, method):
            enter = partial(timeline.enter_once, parts.track, timeline.phase(method, Class.OFFLOAD))
            around = partial(parts.guard.around, before=enter, after=timeline.leave)
            parts.patches.method(engine, method, around)


def _next(engine: Any) -> int:
    return int(engine.global_steps) + 1


def _backward(engine: Any, parts: Parts) -> None:
    timeline, track, metrics = parts.timeline, parts.track, parts.metrics
    phase = parts.backward
    reduce = timeline.phase("backward/reduce", Class.COMPUTE)
    failing = Failing()
    direct = _Direct(timeline, track, phase, failing)

    def begin(args: Any, kwargs: Any) -> Frame | None:
        failing.begins()
        loss = args[0] if args else kwargs.get("loss")
        metrics.give(loss, part=_is_divided(args, kwargs), again=track.backward_done)
        return timeline.enter(track, phase)

    def ended(frame: Frame) -> None:
        timeline.leave(frame)
        if failing.failed():
            metrics.take_back()
        else:
            track.backward_done = True

    def reduced(frame: Frame) -> None:
        ended(frame)
        if direct.frame:
            direct.end()

    guard, patches = parts.guard, parts.patches
    enter = partial(timeline.enter, track, reduce)
    patches.method(engine, "backward", lambda raw: guard.around(raw, begin, ended))
    epilogue = "allreduce_gradients"
    if hasattr(engine, "_backward_epilogue"):
        patches.method(engine, "_backward_prologue", lambda raw: guard.ahead(raw, direct.begin))
        epilogue = "_backward_epilogue"
    patches.method(engine, epilogue, lambda raw: guard.around(raw, enter, reduced))


def _is_divided(args: Any, kwargs: Any) -> bool:
    """Whether the caller of `backward(loss, retain_graph, scale_wrt_gas)` has already divided the
    loss by the step's micro-batches, as transformers' Trainer does.
    """
    return (args[2] if len(args) > 2 else kwargs.get("scale_wrt_gas", True)) is False


def _closed(engine: Any, parts: Parts) -> None:
    """Handle the end of a call of `step`. The engine's counter says whether it was an optimizer
    step.
    """
    step = engine.global_steps
    parts.falls_back(step + 1)
    if step >= parts.track.step:
        tell_step(engine, parts, step, parts.track.micro + 1)
        parts.timeline.close_step(parts.track, step)
    else:  # a micro-batch; an old version may have run its backward unseen
        parts.backward_done()
        parts.metrics.micro_batch_ends()


class _Direct:
    """Backward by `loss.backward()`: from the first prologue to the end of the epilogue."""

    def __init__(self, timeline: Timeline, track: Track, phase: Phase, failing: Failing) -> None:
        self.timeline, self.track, self.phase = timeline, track, phase
        self.failing = failing
        self.frame: Frame | None = None

    def begin(self) -> None:
        """Open the phase, unless it is open: `engine.backward` is timed as a whole, and a reentrant
        backward counts once.
        """
        if not self.timeline.is_open(self.phase):
            self.failing.begins()
            self.frame = self.timeline.enter(self.track, self.phase)
        elif self.timeline.stack[-1].track is not self.track:  # of a model without an engine
            self.track.blind = self.timeline.stack[-1].track.blind = True

    def end(self) -> None:
        self.timeline.leave(self.frame)
        self.frame = None


def config(engine: Any) -> dict[str, Any]:
    """The settings of the engine that reports need, by their names in `events.CONFIG`."""
    found: dict[str, Any] = {"framework": "deepspeed"} | _settings(engine)
    found["dtype"] = _dtype(engine)
    found |= costly_defaults(engine, _comms_logger(), waits=_device_waits())
    raw = getattr(engine.config, "_param_dict", None) or getattr(engine, "config", None)
    if isinstance(raw, Mapping):
        found["ds_config"] = dict(raw)
    return {name: value for name, value in found.items() if value is not None}


_SETTINGS: Final = {
    "zero_stage": "zero_optimization_stage",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "steps_per_print": "steps_per_print",
}


def _settings(engine: Any) -> dict[str, Any]:
    """The settings that may differ between the engines of one process."""
    asked = {name: getattr(engine, method, None) for name, method in _SETTINGS.items()}
    told = {name: method() for name, method in asked.items() if callable(method)}
    told |= sizes(engine)
    return {name: value for name, value in told.items() if value is not None}


def _dtype(engine: Any) -> str:
    if engine.fp16_enabled():
        return "fp16"
    return "bf16" if engine.bfloat16_enabled() else "fp32"


def _device_waits() -> bool:
    """Whether synchronizing with the device can take time; on a CPU calls return only when done."""
    from deepspeed.accelerator import get_accelerator

    synchronous = getattr(get_accelerator(), "is_synchronized_device", None)
    return not (synchronous and synchronous())


def _comms_logger() -> bool | None:
    """Whether the comms logger is on; it belongs to the process, not to the engine. None if
    unknown.
    """
    module = sys.modules.get("deepspeed.comm.comm")
    return getattr(getattr(module, "comms_logger", None), "enabled", None)


def costly_defaults(engine: Any, comms_logger: bool | None, *, waits: bool) -> dict[str, float]:
    """Settings that make the host wait for the device, 1 if on; this costs time and prevents
    overlap.

    `throughput_timer_synchronized` is on by default and waits at both ends of every micro-batch.
    """
    timer = getattr(getattr(engine, "tput_timer", None), "config", None)
    settings = {
        "wall_clock_breakdown": engine.wall_clock_breakdown(),
        "memory_breakdown": engine.memory_breakdown(),
    }
    if timer is not None:
        settings["throughput_timer_synchronized"] = waits and timer.enabled and timer.synchronized
    if comms_logger is not None:
        settings["comms_logger"] = comms_logger
    return {name: float(bool(value)) for name, value in settings.items()}
