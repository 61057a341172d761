"""The file format that recording and reading share: written inside training, read anywhere.

    Writer ─ rows of a step ─► rank-00000.4242.dsprof ─► Recording, Recordings

Importing this loads only the standard library; the names for reading import numpy and pyarrow when
they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsprof.recording.layout import ASYNC, ON_DEVICE, THINNED, RowKind, Unit
from dsprof.recording.writer import Writer

if TYPE_CHECKING:
    from dsprof.recording.detail import read_rows
    from dsprof.recording.read import Recording, Recordings, is_recording, read_folder

__all__ = [
    "ASYNC",
    "ON_DEVICE",
    "THINNED",
    "Recording",
    "Recordings",
    "RowKind",
    "Unit",
    "Writer",
    "is_recording",
    "read_folder",
    "read_rows",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dsprof.recording import detail, read

    return getattr(detail if name == "read_rows" else read, name)
