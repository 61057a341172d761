"""Recording from inside training: `dsprof.attach(engine)`.

This is the only package that imports torch, and only when it is called. Any failure in here is
reported once on standard error and switches recording off; training goes on.

It runs in training's Python, 3.9 or later, and needs nothing beyond the standard library. Only
`launch` and `deaths`, and `join` with `injection` and `ranks`, run in dsprof's own process.
"""

from __future__ import annotations

from dsprof.hook.attach import Handle, attach

__all__ = ["Handle", "attach"]
