"""Records a PipelineEngine: one phase per instruction of its schedule, one step per
`train_batch`.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.models.deepspeed import checkpoints, parts_of, tell_step
from dsprof.hook.models.parts import Parts
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase

#: Instruction → phase and class. The phase has the name of DeepSpeed's own timer if there is one.
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
    """Record `engine` by replacing its map of instructions with one of timed functions."""
    parts = parts_of(engine, recorder, patches)
    evaluation = parts.timeline.phase("evaluation", Class.OTHER)
    timed = {
        instruction: _instruction(instruction.__name__, function, parts, evaluation)
        for instruction, function in engine._INSTRUCTION_MAP.items()  # noqa: SLF001
    }
    patches.value(engine, "_INSTRUCTION_MAP", timed)
    parts.span(engine, "eval_batch", "evaluation", Class.OTHER)
    parts.optimizer(engine.optimizer, "step/optimizer_step")
    _close_after(engine, parts)
    checkpoints(engine, parts)


def _instruction(name: str, function: Any, parts: Parts, evaluation: Phase) -> Any:
    """A timed plain function, because the engine binds it to itself at each use.

    Inside an evaluation it is not timed: that is one phase as a whole.
    """
    path, class_ = INSTRUCTIONS.get(name, (name, Class.OTHER))
    phase = parts.timeline.phase(path, class_)
    timeline = parts.timeline
    opens = timeline.enter_forward if path == "forward" else timeline.enter
    done = parts.backward_done if path == "backward" else None

    def enter(*_: Any) -> Frame | None:
        return None if timeline.is_open(evaluation) else opens(parts.track, phase)

    wrapper = parts.guard.around(function, enter, timeline.leave, done)
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
        parts.track.micro = engine.micro_batches - 1  # forwards may run in a row, uncounted
        parts.metrics.add(getattr(engine, "agg_train_loss", None))
        tell_step(engine, parts, step, engine.micro_batches)
        parts.timeline.close_step(parts.track, step)
