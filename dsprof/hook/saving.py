"""Saves that training makes without an engine: what they keep it waiting for.

Libraries write a model, an optimizer and more in several ways: one save is all of that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from dsprof.hook.patches import Call, Patches

#: Of modules, where they are loaded.
_FUNCTIONS: Final = (
    ("torch", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint", "async_save"),
)
_METHODS: Final = (
    ("accelerate.accelerator", "Accelerator", "save_state"),
    ("transformers.trainer", "Trainer", "_save_checkpoint"),
    ("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", "Trainer", "save_checkpoint"),
)


def patch(patches: Patches, around: Callable[[Call], Call]) -> None:
    """Put `around` whatever saves, in the libraries that are loaded by now."""
    for module, name in _FUNCTIONS:
        if hasattr(sys.modules.get(module), name):
            patches.method(sys.modules[module], name, around)
    for module, kind, name in _METHODS:
        owner = getattr(sys.modules.get(module), kind, object)
        if name in vars(owner):
            patches.of_class(owner, name, around)
