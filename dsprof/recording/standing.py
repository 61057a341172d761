"""What a recording's last row tells of where training stands still, as long as that holds."""

from __future__ import annotations

from typing import Final

from dsprof.recording.layout import LATE, ROW, STAND, STANDING, RowKind, until_next_stand
from dsprof.recording.table import Names

_TRAINING: Final = (RowKind.SPAN, RowKind.COLLECTIVE, RowKind.STEP)
_NAME, _TEXT, _AT, _SECONDS, _CELL, _KEPT = 3, 5, 6, 7, slice(8, 11), 11  # places in such a row
_SLACK: Final = 10_000_000_000  # ns by which the next row may come late


class LastStand:
    """It is over once rows of training follow.

    Attributes:
        cell: the in-flight cell as that row has it; None if there is no such row.
        kept: the cell is in the file, too. Where files cannot be mapped, as on NFS and Lustre, it
            stays empty there.
        stack: the calls; "" if they are unknown.
        expires: by when another row would have come if all had stayed as it was, in ns of
            `perf_counter`.
    """

    def __init__(self) -> None:
        self.cell: tuple[int, int, int] | None = None
        self.kept, self.stack, self.expires = False, "", 0

    def see(self, rows: bytes, kinds: bytes, names: Names) -> None:
        """Rows in the order in which they were written, and their kinds."""
        trained = max(kinds.rfind(kind) for kind in _TRAINING)
        last = kinds.rfind(RowKind.METRIC)
        row = STAND.unpack_from(rows, last * ROW) if last > trained else None
        if row and names.path.get(row[_NAME]) == STANDING and abs(row[_AT]) < LATE:
            lasted = row[_SECONDS] * 1e9 if 0 <= row[_SECONDS] * 1e9 < LATE else 0.0
            self.cell, self.stack = row[_CELL], names.text.get(row[_TEXT], "")
            self.kept = bool(row[_KEPT])
            self.expires = row[_AT] + int(lasted) + until_next_stand(lasted) + _SLACK
        elif trained >= 0:
            self.cell = None
