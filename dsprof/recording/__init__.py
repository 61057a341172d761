"""The file that recording and reading share: written inside training, read anywhere.

    Writer ─ one write a step ─► rank-00000.4242.dsprof ─► Recording, read, Follower

Importing this loads the standard library only; reading brings numpy and pyarrow.
"""

from __future__ import annotations

from dsprof.recording.layout import ASYNC, THINNED, RowKind, Unit
from dsprof.recording.writer import Writer

__all__ = ["ASYNC", "THINNED", "RowKind", "Unit", "Writer"]
