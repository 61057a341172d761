"""The loss as training's own loop knows it, where a library changes it before backward begins.

Over accumulated micro-batches, accelerate divides what `Accelerator.backward` is given by their
number. A gradient scaler multiplies it, there or in a custom loop. transformers' `Trainer` gives
parts of a step's loss, since 4.48, which together are the loss that it logs. A custom loop may
divide it, too: what autograd knows about the division tells the divisor.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from dsprof.hook.metrics import Metrics
from dsprof.hook.recorder import Recorder

_Call = Callable[..., None]


class Loss(NamedTuple):
    """What a backward begins at, as training's own loop knows it."""

    value: Any  # a tensor, or nothing
    is_part: bool | None  # of a step's; None: no library was given it
    divisor: float | None = None  # by what the loop divided it

    def tell(self, metrics: Metrics) -> None:
        if self.is_part is None:
            metrics.backward_of(self.value, self.divisor)
        else:
            metrics.give(self.value, part=self.is_part)


class Given:
    """What a library was given whose own backward is under way."""

    def __init__(self, recorder: Recorder) -> None:
        self.loss: Any = None
        self.is_part = False
        self._scaled: Callable[[], Any] = _nothing  # a reference to what a scaler made last
        self._unscaled: Any = None  # of what
        self._divisor: float | None = None  # of that
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
        if hasattr(trainer, "get_batch_samples"):  # before 4.46 accelerate alone divides
            around("transformers.trainer", "Trainer", "training_step", *trains)

    def loss_of(self, start: Any) -> Loss:
        """What the loop gave where backward begins at `start`."""
        unscaled, self._unscaled = self._unscaled, None
        if self.loss is not None:
            return Loss(self.loss, self.is_part)
        if start is not None and self._scaled() is start:
            return Loss(unscaled, None, self._divisor)
        return Loss(start, None, _divisor_of(start))

    def _scales(self, _: Any, __: Any, args: Any, kwargs: Any, scaled: Any, *___: Any) -> None:
        given = args[0] if args else kwargs["outputs"]
        if getattr(given, "is_cpu", False):  # one tensor, whose number can be read
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


def gives_parts(version: str, *, of_all_items: bool) -> bool:
    """Whether the losses that a `Trainer` of 4.46 or later gives accelerate are a step's together.

    4.46.0 and 4.46.1 multiply each by the number of micro-batches first, whatever it is; up to 4.47
    only what is logged is divided, unless each was by the items of all micro-batches.
    """
    if version in {"4.46.0", "4.46.1"}:
        return False
    return of_all_items or not version.startswith(("4.46.", "4.47."))


def scaler() -> Any:
    """The class of all gradient scalers. Before PyTorch 2.3 CUDA's is the only one."""
    import torch

    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


def _divisor_of(loss: Any) -> float | None:
    """The number by which a loss in host memory was divided last, NaN where nobody tells."""
    made_by: Any = getattr(loss, "grad_fn", None)
    if type(made_by).__name__ != "DivBackward0" or not loss.is_cpu:
        return None
    with contextlib.suppress(RuntimeError):  # a graph that is freed: backward will say so
        saved = made_by._raw_saved_other  # noqa: SLF001 - as it is: no hook unpacks it
        if not hasattr(saved, "data"):  # as in PyTorch 2.8: to unpack it may run code
            return math.nan
        divisor = saved.data
        if divisor is not None and divisor.is_cpu and divisor.numel() == 1:
            return float(divisor.item())
    return None


def _nothing() -> None:
    """Of before anything was scaled."""
