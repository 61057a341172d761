"""Hugging Face: `Trainer(..., callbacks=[DsprofCallback()])`, with any backend."""

from __future__ import annotations

import os
from typing import Any, Final

from transformers import TrainerCallback

from dsprof.hook import Handle, attach
from dsprof.hook.attach import is_attached

_NAMES: Final = {"loss": "loss", "learning_rate": "lr", "grad_norm": "grad_norm"}


class DsprofCallback(TrainerCallback):  # type: ignore[misc]  # the base may be untyped
    """Records `Trainer.train`, one file per rank.

    Create it before training starts, because DeepSpeed engines and models under DDP or FSDP2 are
    found when accelerate creates them.
    """

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        """`out` as in `dsprof.attach`."""
        self.out = out
        self._search = attach(out=out)
        self._model: Handle | None = None

    def on_train_begin(self, args: Any, state: Any, *_: Any, **objects: Any) -> None:
        """Attach to a model that nothing wraps, because such a model is not found by the search."""
        self._search.step = state.global_step + 1
        if args.world_size == 1 and not is_attached():
            optimizer = objects["optimizer"]
            if optimizer is None:  # transformers 4.49 passes it in the state
                optimizer = getattr(state, "optimizer", None)
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper has no hooks
            step = state.global_step + 1
            self._model = attach(objects["model"], optimizer=inner, step=step, out=self.out)

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
        if self._model is not None:
            self._model.detach()
        self._search.detach()
        self._search, self._model = attach(out=self.out), None
