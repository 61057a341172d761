"""Recording from inside training: `dsprof.attach(engine)`.

The only package that imports torch, and it does so when it is called. Whatever fails in
here is said once on standard error and switches recording off; training goes on.

It runs in training's Python, 3.9 or later, and needs nothing beside the standard library:
only `launch` and `deaths` run in dsprof's own process.
"""

from __future__ import annotations

from dsprof.hook.attach import Handle, attach

__all__ = ["Handle", "attach"]
