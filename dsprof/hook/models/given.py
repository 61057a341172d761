"""The loss as the training loop knows it, where a library changes it before backward begins.

With gradient accumulation, accelerate divides what `Accelerator.backward` is given by the number of
micro-batches. A gradient scaler multiplies the loss, inside accelerate or in a custom loop. Since
4.48, transformers' `Trainer` passes parts of a step's loss, whose sum is the loss that it logs.
Composer's multiplies the loss of a micro-batch by its part of the batch and logs the sum, too. A
custom loop may divide the loss; the divisor is read from what autograd saved for the division.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from dsprof.hook.models.metrics import Metrics
from dsprof.hook.recorder import Recorder

_Call = Callable[..., None]


class Loss(NamedTuple):
    """The loss from which a backward starts, as the training loop knows it."""

    value: Any  # a tensor, or None
    is_part: bool | None  # whether it is part of a step's loss; None: not passed to a library
    divisor: float | None = None  # what the loop divided it by

    def tell(self, metrics: Metrics) -> None:
        if self.is_part is None:
            metrics.backward_of(self.value, self.divisor)
        else:
            metrics.give(self.value, part=self.is_part)


class Given:
    """Keeps the loss that was passed to a library, while that library's backward runs."""

    def __init__(self, recorder: Recorder) -> None:
        self.loss: Any = None
        self.is_part = False
        self._in_composer = False
        self._scaled: Callable[[], Any] = _nothing  # weak reference to the scaler's last result
        self._unscaled: Any = None  # the loss from which that was computed
        self._divisor: float | None = None  # what the loop had divided that loss by
        patches, guard = recorder.patches, recorder.guard
        patches.of_class(scaler(), "scale", lambda raw: guard.behind(raw, self._scales, None))

        def around(module: str, owner: str, method: str, before: _Call, after: _Call) -> None:
            loaded = sys.modules.get(module)
            if loaded is not None:
                kind = getattr(loaded, owner)
                patches.of_class(kind, method, lambda raw: guard.around(raw, before, after))

        accelerates, trains = (self._accelerates, self._is_over), (self._trains, self._trained)
        around("accelerate.accelerator", "Accelerator", "backward", *accelerates)
        trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
        if hasattr(trainer, "get_batch_samples"):  # before 4.46 only accelerate divides
            around("transformers.trainer", "Trainer", "training_step", *trains)
        composer = getattr(sys.modules.get("composer.trainer.trainer"), "Trainer", None)
        if hasattr(composer, "_train_microbatch"):
            composes = (self._composes, self._composed)
            around("composer.trainer.trainer", "Trainer", "_train_microbatch", *composes)

    def loss_of(self, start: Any) -> Loss:
        """The loss that the loop passed, for a backward that starts from `start`."""
        unscaled, self._unscaled = self._unscaled, None
        if self.loss is not None:
            return Loss(self.loss, self.is_part)
        if start is not None and self._scaled() is start:
            if self._in_composer:
                return Loss(unscaled, is_part=True)
            return Loss(unscaled, None, self._divisor)
        if self._in_composer and start is not None:
            return Loss(start, is_part=True)
        return Loss(start, None, _divisor_of(start))

    def _scales(self, _: Any, __: Any, args: Any, kwargs: Any, scaled: Any, *___: Any) -> None:
        given = args[0] if args else kwargs["outputs"]
        if getattr(given, "is_cpu", False):  # a single tensor that can be read without waiting
            self._scaled, self._unscaled = weakref.ref(scaled), given.detach()
            self._divisor = _divisor_of(given)

    def _accelerates(self, args: Any, kwargs: Any) -> None:
        self.loss = args[1] if len(args) > 1 else kwargs.get("loss")

    def _is_over(self, _: Any) -> None:
        self.loss = None

    def _trains(self, args: Any, kwargs: Any) -> None:
        items = args[3] if len(args) > 3 else kwargs.get("num_items_in_batch")
        version = getattr(sys.modules.get("transformers"), "__version__", "")
        self.is_part = gives_parts(version, of_all_items=items is not None)

    def _trained(self, _: Any) -> None:
        self.is_part = False

    def _composes(self, _: Any, __: Any) -> None:
        self._in_composer = True

    def _composed(self, _: Any) -> None:
        self._in_composer = False


def gives_parts(version: str, *, of_all_items: bool) -> bool:
    """Whether the losses that `Trainer` (4.46 or later) gives accelerate add up to the step's loss.

    4.46.0 and 4.46.1 always multiply each of them by the number of micro-batches first. Up to 4.47
    only the logged loss is divided, unless each loss was divided by the number of items of all
    micro-batches.
    """
    if version in {"4.46.0", "4.46.1"}:
        return False
    return of_all_items or not version.startswith(("4.46.", "4.47."))


def scaler() -> Any:
    """The common base class of gradient scalers; before PyTorch 2.3 there is only CUDA's."""
    import torch

    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


def _divisor_of(loss: Any) -> float | None:
    """What a loss in host memory was last divided by; NaN if PyTorch does not tell, None if
    undivided.
    """
    made_by: Any = getattr(loss, "grad_fn", None)
    if type(made_by).__name__ != "DivBackward0" or not loss.is_cpu:
        return None
    with contextlib.suppress(RuntimeError):  # the graph was freed: backward itself will say so
        saved = made_by._raw_saved_other  # noqa: SLF001 - the raw value: no hook unpacks it
        if not hasattr(saved, "data"):  # as in PyTorch 2.8, where unpacking may run code
            return math.nan
        divisor = saved.data
        if divisor is not None and divisor.is_cpu and divisor.numel() == 1:
            return float(divisor.item())
    return None


def _nothing() -> None:
    """The default of `_scaled`: nothing was scaled yet."""
