"""Tells evaluation with gradients, without `torch.no_grad`, from training."""

from __future__ import annotations

import sys
import weakref
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dsprof.hook.models.outputs import MOST_OUTPUTS, tensors_in
from dsprof.hook.spans import Frame, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsprof.hook.models.parts import Parts

#: Wrappers, and where each holds the model: `model.eval()` may be called on that alone.
_HELD: Final = {
    "DeepSpeedEngine": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
}


class Evaluations:
    """A model's forwards in evaluation mode (`model.eval()`) with gradients.

    Models are also tuned, and attacks crafted, in that mode. So such a forward counts as evaluation
    until a gradient comes back to what it returned, and as training from then on.
    """

    def __init__(self, parts: Parts, owner: Any, training: Phase) -> None:
        from torch import is_grad_enabled

        self.parts, self.training = parts, training
        self._has_gradients = is_grad_enabled
        self._model = weakref.ref(_inside(owner))
        self._is_one = False  # of the current forward
        self._frame: Frame | None = None  # the phase of the outermost one
        self._ended: Frame | None = None  # the same, once it has ended
        self._is_awaited = False  # a gradient is expected
        self._came = True  # a gradient came back from the last one
        self._is_tuned = False  # one came too late for its row: from now on all are training

    def begin(self) -> bool:
        """Whether the forward that begins is one, as far as is known."""
        is_training = getattr(self._model(), "training", True)
        self._is_one = not (is_training or self._is_tuned or self.parts.checkpointing)
        self._is_one = self._is_one and self._has_gradients() and not _is_backward_compiled()
        return self._is_one

    def enter(self, phase: Phase) -> Frame | None:
        """Open its phase; None inside an evaluation, as where a model calls itself.

        It is of the model's own step, also of the first one: it may be training.
        """
        timeline = self.parts.timeline
        frame = None if timeline.is_open(phase) else timeline.enter(self.parts.track, phase)
        if frame is not None:
            self._frame = frame
            self._is_awaited, self._came = self._came, False
        return frame

    def leave(self, frame: Frame | None) -> None:
        """A forward ends. If a gradient came back from the one before, its row waits for that."""
        timeline = self.parts.timeline
        self._ended = None
        if frame is not None and frame is self._frame:
            self._ended, self._frame, self._is_one = frame, None, True
            if self._is_awaited:
                timeline.put_off()
        timeline.leave(frame)

    def end(self, result: Any) -> None:
        """A forward ended. The loss of an evaluation is not the step's: where backward follows, it
        begins at the loss.
        """
        if self._is_one:
            self._is_one = False
            if self._ended is not None:
                self._watch(self._ended, result)
        elif not self.parts.metrics.given:
            self.parts.metrics.output(result)

    def _watch(self, frame: Frame, result: Any) -> None:
        """Notice a gradient, by autograd's nodes: a hook of the tensor would be seen by training
        that saves it.
        """
        reached = partial(self._reached, frame, frame.track.step)
        tensors = list(islice(tensors_in(result), MOST_OUTPUTS + 1))
        if not 0 < len(tensors) <= MOST_OUTPUTS:  # a gradient might come unseen
            reached()
            return
        hook = _unless_compiling(self.parts.guard(reached))
        for node in (tensor.grad_fn for tensor in tensors):
            if node is not None:
                node.register_prehook(hook)

    def _reached(self, frame: Frame, step: int, *_: Any) -> None:
        if frame.phase == self.training or frame.track.step != step:
            return
        timeline, track = self.parts.timeline, self.parts.track
        self._came = True
        self._is_tuned = not timeline.revise(frame, self.training) or self._is_tuned
        timeline.count_forward(track)


def _inside(owner: Any) -> Any:
    """The model inside of wrappers."""
    kinds = (kind.__name__ for kind in type(owner).__mro__)
    held = next((_HELD[kind] for kind in kinds if kind in _HELD), "")
    model = getattr(owner, held, None)
    return owner if model is None else _inside(model)


def _unless_compiling(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """A hook of a node. Compiled autograd would compile it as well, and fails if it must not break
    the graph: nothing of it is left there.
    """
    import torch

    is_compiling: Any = getattr(torch.compiler, "is_compiling", None)  # since PyTorch 2.3

    def called(gradient: Any) -> None:
        if not is_compiling():
            hook(gradient)

    return hook if is_compiling is None else called


def _is_backward_compiled() -> bool:
    """Whether compiled autograd has run: no hook tells then where a gradient comes."""
    utils = sys.modules.get("torch._dynamo.utils")
    counted = getattr(utils, "counters", {}).get("compiled_autograd", {})
    return bool(counted.get("captures"))
