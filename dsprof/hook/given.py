"""The loss as training's own loop knows it, where a library divides it before backward begins.

Over accumulated micro-batches, accelerate divides what `Accelerator.backward` is given by their
number, and a gradient scaler multiplies it; transformers' `Trainer` gives parts of a step's loss,
which together are the loss that it logs.
"""

from __future__ import annotations

import sys
from typing import Any

from dsprof.hook.metrics import Metrics
from dsprof.hook.recorder import Recorder


class Given:
    """What a library was given whose own backward is under way."""

    def __init__(self, recorder: Recorder) -> None:
        self.loss: Any = None
        self.is_part = False
        patches, guard = recorder.patches, recorder.guard
        accelerate = sys.modules.get("accelerate.accelerator")
        if accelerate is not None:
            patches.of_class(
                accelerate.Accelerator, "backward",
                lambda raw: guard.around(raw, self._accelerates, self._is_over),
            )  # fmt: skip
        trainer = sys.modules.get("transformers.trainer")
        if trainer is not None:
            patches.of_class(
                trainer.Trainer, "training_step",
                lambda raw: guard.around(raw, self._trains, self._trained),
            )  # fmt: skip

    def tell(self, metrics: Metrics, start: Any) -> None:
        """Backward begins at `start`."""
        if self.loss is None:
            metrics.backward_of(start)
        else:
            metrics.give(self.loss, part=self.is_part)

    def _accelerates(self, args: Any, kwargs: Any) -> None:
        self.loss = args[1] if len(args) > 1 else kwargs.get("loss")

    def _is_over(self, _: Any) -> None:
        self.loss = None

    def _trains(self, *_: Any) -> None:
        self.is_part = True

    def _trained(self, _: Any) -> None:
        self.is_part = False
