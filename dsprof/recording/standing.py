"""The in-flight cell as a recording's last row of where training stands still has it.

Where files cannot be mapped, as on NFS and Lustre, the cell in the file stays empty.
"""

from __future__ import annotations

from typing import Final

from dsprof.recording.layout import ROW, STAND, STANDING, RowKind
from dsprof.recording.table import Names

_TRAINING: Final = (RowKind.SPAN, RowKind.COLLECTIVE, RowKind.STEP)
_NAME, _CELL = 3, -3  # places in such a row


class LastStand:
    """The three words of the cell; none, if training went on since, or never stood still."""

    def __init__(self) -> None:
        self.cell: tuple[int, int, int] | None = None

    def see(self, rows: bytes, kinds: bytes, names: Names) -> None:
        """Rows in the order in which they were written, and their kinds."""
        trained = max(kinds.rfind(kind) for kind in _TRAINING)
        last = kinds.rfind(RowKind.METRIC)
        row = STAND.unpack_from(rows, last * ROW) if last > trained else None
        if row and names.path.get(row[_NAME]) == STANDING:
            self.cell = row[_CELL:]
        elif trained >= 0:
            self.cell = None
