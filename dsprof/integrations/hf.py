"""Hugging Face: `Trainer(..., callbacks=[DsprofCallback()])`, whatever runs beneath it."""

from __future__ import annotations

import os
from typing import Any, Final

from transformers import TrainerCallback

from dsprof.hook import Handle, attach
from dsprof.hook.attach import is_attached

_NAMES: Final = {"loss": "loss", "learning_rate": "lr", "grad_norm": "grad_norm"}


class DsprofCallback(TrainerCallback):  # type: ignore[misc]  # types are the library's
    """Records what `Trainer.train` does, one file a rank.

    Make it before training starts: DeepSpeed engines and models under DDP or FSDP2 are found
    as accelerate makes them.
    """

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        """`out` as in `dsprof.attach`."""
        self.out = out
        self._search = attach(out=out)
        self._model: Handle | None = None

    def on_train_begin(self, args: Any, state: Any, *_: Any, **objects: Any) -> None:
        """A model that nothing wraps is not found by itself, but given here."""
        self._search.step = state.global_step + 1
        if args.world_size == 1 and not is_attached():
            optimizer = objects["optimizer"]
            if optimizer is None:  # transformers 4.49 tells callbacks of it by their state
                optimizer = getattr(state, "optimizer", None)
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper has no hooks
            step = state.global_step + 1
            self._model = attach(objects["model"], optimizer=inner, step=step, out=self.out)

    def on_log(self, args: Any, state: Any, *_: Any, logs: Any = None, **__: Any) -> None:
        """Numbers that lie on a GPU the hook leaves there; the trainer has read them anyway."""
        if args.device.type == "cpu":
            return
        for key, name in _NAMES.items():
            if isinstance((logs or {}).get(key), float):
                self._search.metric(name, logs[key], state.global_step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The recording ends; a second training would be another one."""
        if self._model is not None:
            self._model.detach()
        self._search.detach()
        self._search, self._model = attach(out=self.out), None
