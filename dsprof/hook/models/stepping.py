"""When hooks of PyTorch's optimizers may come and go: not while PyTorch calls them, because then it
raises inside training.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

_LEFT: Final[list[Any]] = []  # hooks that could not be taken off yet; they do nothing


def is_calling_hooks() -> bool:
    """Whether a hook of an optimizer has called us, directly or not.

    PyTorch's wrapper of `step` calls the hooks and `step` itself, whose closure may do as it likes.
    """
    optimizers = sys.modules.get("torch.optim.optimizer")
    if optimizers is None:
        return False
    code = optimizers.Optimizer.profile_hook_step(is_calling_hooks).__code__
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - `inspect` would read source files
    called = None
    while frame is not None:
        if frame.f_code is code and called is not _step_of(frame):
            return True
        called, frame = frame.f_code, frame.f_back
    return False


def _step_of(wrapper: FrameType) -> Any:
    """The code of the `step` that is wrapped; None if this PyTorch has another name for it."""
    return getattr(wrapper.f_locals.get("func"), "__code__", None)


def take_off(*hooks: Any) -> None:
    """Remove hooks of optimizers, and those that an earlier call had to leave.

    Where PyTorch calls hooks right now, all stay until the next call.
    """
    _LEFT.extend(hooks)
    if not is_calling_hooks():
        while _LEFT:
            _LEFT.pop().remove()
