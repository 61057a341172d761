"""Says in one sentence why a DeepSpeed training job is slow, and proves it.

>>> import dsprof
>>> run = dsprof.load("run.log")  # doctest: +SKIP
>>> run.findings[0].title         # doctest: +SKIP

Nothing heavy is imported until it is used: training scripts import this too.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes time that every recorded Python would wait
if TYPE_CHECKING:
    from typing import Any

    from dsprof.hook.attach import attach
    from dsprof.run import Run, load

__all__ = ["Run", "__version__", "attach", "load"]

__version__ = "0.1.0"

_HOME = {
    "Run": "dsprof.run",
    "attach": "dsprof.hook",
    "load": "dsprof.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dsprof' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
