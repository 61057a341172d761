"""Hugging Face: `Trainer(..., callbacks=[DsprofCallback()])`, with any backend."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any, ClassVar, Final

from transformers import TrainerCallback

from dsprof.hook import Handle, attach
from dsprof.hook.attach import is_attached

_NAMES: Final = {"loss": "loss", "learning_rate": "lr", "grad_norm": "grad_norm"}


class DsprofCallback(TrainerCallback):  # type: ignore[misc]  # the base may be untyped
    """Records `Trainer.train`, one file per rank.

    Create it before training starts, because DeepSpeed engines and models under DDP or FSDP2 are
    found when accelerate creates them.
    """

    _unended: ClassVar[DsprofCallback | None] = None  # the last that recorded an unwrapped model

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        """`out` as in `dsprof.attach`."""
        self.out = out
        self._search = attach(out=out)
        self.model: Handle | None = None

    def on_train_begin(self, args: Any, state: Any, *_: Any, **objects: Any) -> None:
        """Attach to a model that nothing wraps, because such a model is not found by the search."""
        self._end_what_failed()
        self._search = attach(out=self.out)  # the end of another trainer's training ends it, too
        self._search.step = state.global_step + 1
        if args.world_size == 1 and not is_attached():
            optimizer = objects["optimizer"]
            if optimizer is None:  # transformers 4.49 passes it in the state
                optimizer = getattr(state, "optimizer", None)
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper has no hooks
            step = state.global_step + 1
            self.model = attach(objects["model"], optimizer=inner, step=step, out=self.out)
            DsprofCallback._unended = self

    def on_log(self, args: Any, state: Any, *_: Any, logs: Any = None, **__: Any) -> None:
        """Record metrics that the trainer logs. On a GPU the hook does not read them, because that
        would make the host wait, but the trainer has read them anyway.
        """
        if args.device.type == "cpu":
            return
        for key, name in _NAMES.items():
            if isinstance((logs or {}).get(key), float):
                self._search.metric(name, logs[key], state.global_step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the recording; another call of `train` gets a recording of its own."""
        _end(self)
        self._search.detach()
        self._search = attach(out=self.out)

    def _end_what_failed(self) -> None:
        """End the recording of a training that an exception ended, which no callback is told.

        Not earlier, so that the exception is recorded if it also ends the process. The trainer may
        also have caught it to begin anew with a smaller batch (`auto_find_batch_size`). A training
        inside which this one runs goes on.
        """
        before = DsprofCallback._unended
        if before is self or not _is_under_way(before):
            _end(before)


def _is_under_way(callback: DsprofCallback | None) -> bool:
    """Whether a method of the trainer that has this callback is running."""
    trainers: Any = getattr(sys.modules.get("transformers.trainer"), "Trainer", ())
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - `inspect` would read source files
    while frame is not None:
        owner = frame.f_locals.get("self")
        handler = getattr(owner, "callback_handler", None) if isinstance(owner, trainers) else None
        if callback in getattr(handler, "callbacks", ()):
            return True
        frame = frame.f_back
    return False


def _end(callback: DsprofCallback | None) -> None:
    """End what a callback records of an unwrapped model, if it does."""
    if callback is not None and callback.model is not None:
        callback.model.detach()
        callback.model = None
