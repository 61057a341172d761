"""Activation checkpointing that runs a backward of its own inside backward."""

from __future__ import annotations

from typing import Any

from dsprof.hook.backward import Backward, first_with_gradient
from dsprof.hook.patches import Call
from dsprof.hook.recorder import Recorder


class Reentrant:
    """`torch.utils.checkpoint` with `use_reentrant=True`.

    Its first forward has no gradients and is training all the same. What DDP reduces in the inner
    backward it waits for at the end of that one, where callbacks of the outer one are not run.
    """

    def __init__(self, recorder: Recorder, backward: Backward) -> None:
        import torch.autograd
        from torch.utils.checkpoint import CheckpointFunction

        self.backward, self._guard = backward, recorder.guard
        guard = recorder.guard
        recorder.patches.of_class(
            CheckpointFunction, "forward", lambda raw: guard.around(raw, self._begin, self._end)
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
        """An inner backward begins at these: be there, in it, when it has begun."""
        output = first_with_gradient(outputs)
        if output is not None:
            output.register_hook(self._guard(self.backward.reducing[-1].inside))
