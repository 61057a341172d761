"""Lightning: `Trainer(..., callbacks=[DsprofCallback()])`."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from lightning.pytorch import Callback

from dsprof.hook import Handle, attach


class DsprofCallback(Callback):  # type: ignore[misc]  # the base may be untyped
    """Records `Trainer.fit`, one file per rank, with any strategy.

    If a module has several optimizers, its first one is passed to `attach`.
    """

    _failed: ClassVar[DsprofCallback | None] = None  # whose training an exception ended last

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        """`out` as in `dsprof.attach`."""
        self.out = out
        self._handle: Handle | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach to the strategy's model: the engine, the wrapped model or the module itself.

        A training that an exception ended stays attached until another one starts, so that the
        exception is recorded if it also ends the process.
        """
        self._end()
        if DsprofCallback._failed is not None:
            DsprofCallback._failed._end()  # noqa: SLF001 - of this class
            DsprofCallback._failed = None
        optimizers = trainer.optimizers
        self._handle = attach(
            trainer.strategy.model or pl_module,
            optimizer=optimizers[0] if optimizers else None,
            step=trainer.global_step + 1,
            out=self.out,
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._end()

    def on_exception(self, *_: Any) -> None:
        DsprofCallback._failed = self

    def _end(self) -> None:
        if self._handle is not None:
            self._handle.detach()
            self._handle = None
