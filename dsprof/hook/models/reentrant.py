"""Activation checkpointing that runs a backward of its own inside backward."""

from __future__ import annotations

from typing import Any

from dsprof.hook.models.backward import Backward
from dsprof.hook.models.outputs import at_gradient, first_with_gradient
from dsprof.hook.patches import Call
from dsprof.hook.recorder import Recorder


class Reentrant:
    """Follows `torch.utils.checkpoint` with `use_reentrant=True`.

    Its first forward runs without gradients and is training all the same. What DDP reduces in the
    inner backward is waited for at the end of that backward, where callbacks queued by the outer
    backward do not run.
    """

    def __init__(self, recorder: Recorder, backward: Backward) -> None:
        import torch.autograd
        from torch.utils.checkpoint import CheckpointFunction

        self.backward, self._guard = backward, recorder.guard
        recorder.patches.of_class(
            CheckpointFunction,
            "forward",
            lambda raw: self._guard.around(raw, self._begin, self._end),
        )
        recorder.patches.method(torch.autograd, "backward", self._around)

    def _begin(self, *_: Any) -> None:
        for parts in self.backward.models.values():
            parts.checkpointing = True

    def _end(self, _: Any) -> None:
        for parts in self.backward.models.values():
            parts.checkpointing = False

    def _around(self, raw: Call) -> Call:
        reducing, inside = self.backward.reducing, self._guard(self._inside)

        def backward(*args: Any, **kwargs: Any) -> Any:
            if reducing and args:
                inside(args[0])
            return raw(*args, **kwargs)

        return backward

    def _inside(self, outputs: Any) -> None:
        """An inner backward starts from these outputs: hook the first one with a gradient, to act
        once that backward is running.
        """
        output = first_with_gradient(outputs)
        if output is not None:
            at_gradient(output, self._guard(self.backward.reducing[-1].inside))
