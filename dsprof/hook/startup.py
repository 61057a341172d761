"""Runs first in every Python process under `dsprof attach -- COMMAND`: see `launch`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

from dsprof.hook.attach import attach


def start() -> None:
    """Go on with the `sitecustomize` we stand in front of, then wait for what can be recorded."""
    _next_sitecustomize()
    attach()


def _next_sitecustomize() -> None:
    """The one that Python would have run without us. It may fail, as it would have."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
