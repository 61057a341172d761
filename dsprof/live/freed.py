"""Memory that was let go of goes back to the machine: the C library keeps it otherwise."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def give_back() -> None:
    """Give back what is free; costs a millisecond."""
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim:
        trim(0)


@cache
def _trim() -> Callable[[int], object] | None:
    """glibc's `malloc_trim`; other C libraries have none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
