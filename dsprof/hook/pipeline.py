"""PipelineEngine: one phase an instruction of its schedule, one step a `train_batch`."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.deepspeed import checkpoints, parts_of
from dsprof.hook.parts import Parts
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder

#: Instruction: the phase, by the name of DeepSpeed's own timer where it has one, and class.
INSTRUCTIONS: Final = {
    "LoadMicroBatch": ("batch_input", Class.DATA),
    "ForwardPass": ("forward", Class.COMPUTE),
    "BackwardPass": ("backward", Class.COMPUTE),
    "SendActivation": ("pipe_send_output", Class.WAIT),
    "SendGrad": ("pipe_send_grad", Class.WAIT),
    "RecvActivation": ("pipe_recv_input", Class.WAIT),
    "RecvGrad": ("pipe_recv_grad", Class.WAIT),
    "ReduceGrads": ("reduce_grads", Class.COMMUNICATION),
    "ReduceTiedGrads": ("reduce_tied_grads", Class.COMMUNICATION),
    "OptimizerStep": ("step", Class.OPTIMIZER),
}


def attach(engine: Any, recorder: Recorder, patches: Patches) -> None:
    """Record `engine`: its map of instructions is replaced by one of timed functions."""
    parts = parts_of(engine, recorder, patches)
    timed_map = {}
    for instruction, function in engine._INSTRUCTION_MAP.items():  # noqa: SLF001
        timed_map[instruction] = _instruction(instruction.__name__, function, parts)
    patches.value(engine, "_INSTRUCTION_MAP", timed_map)
    parts.optimizer(engine.optimizer, "step/optimizer_step")
    _close_after(engine, parts)
    checkpoints(engine, parts)


def _instruction(name: str, function: Any, parts: Parts) -> Any:
    """A plain function, for the engine binds it to itself at each use."""
    path, class_ = INSTRUCTIONS.get(name, (name, Class.OTHER))
    phase = parts.timeline.phase(path, class_)
    timeline = parts.timeline
    enter = timeline.enter_forward if path == "forward" else timeline.enter
    done = parts.backward_done if path == "backward" else None
    wrapper = parts.guard.around(function, partial(enter, parts.track, phase), timeline.leave, done)
    return functools.wraps(function)(wrapper)


def _close_after(engine: Any, parts: Parts) -> None:
    closed = parts.guard(parts.closing(engine, _closed))

    def around(raw: Call) -> Call:
        def train_batch(*args: Any, **kwargs: Any) -> Any:
            result = raw(*args, **kwargs)
            closed(result)
            return result

        return train_batch

    parts.patches.method(engine, "train_batch", around)


def _closed(engine: Any, parts: Parts) -> None:
    step = engine.global_steps
    parts.falls_back(step + 1)
    if step >= parts.track.step:
        parts.track.micro = engine.micro_batches - 1  # stages run several forwards in a row
        parts.metrics.add(getattr(engine, "agg_train_loss", None))
        parts.metrics.write(
            step, engine.optimizer, engine.get_global_grad_norm(), engine.skipped_steps
        )
        parts.timeline.close_step(parts.track, step)
