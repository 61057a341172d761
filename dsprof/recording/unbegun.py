"""Where ranks stand that have not begun to train, in words."""

from __future__ import annotations

import os
from typing import Final

from dsprof.recording.beginnings import Begins, begins
from dsprof.recording.frames import frames_of, told_of
from dsprof.units import format_ranks, format_seconds

_PLACES: Final = 4  # that are told, those of the fewest ranks first
#: Who builds an extension of PyTorch holds a lock, and leaves it there if it is killed.
_BATON: Final = "torch/utils/file_baton.py"
_LOCK: Final = (
    "That waits for another process that builds this extension; if none does, one that was killed "
    "left its lock: remove the files named lock in TORCH_EXTENSIONS_DIR, or else below "
    "~/.cache/torch_extensions"
)


def said_of(folder: str | os.PathLike[str], launch: str | None = None) -> str:
    """A sentence of where the ranks stood that have not begun to train; "" if nobody knows of any.
    Of the last launch, or of `launch`.

    `Rank 0 stood in barrier (torch/c10d.py), called by train.py:7, for 20.1 s; rank 1 ...`.
    """
    places: dict[str, list[Begins]] = {}
    for one in begins(folder, launch):
        frames = frames_of(one.stack)
        if frames:
            places.setdefault(told_of(frames), []).append(one)
    most = sorted(places, key=lambda place: len(places[place]))[:_PLACES]
    said = "; ".join(
        f"{format_ranks([one.rank for one in places[place]])} stood in {place}, for "
        f"{format_seconds(max(one.seconds for one in places[place]))}"
        for place in most
    )
    left = sum(map(len, places.values())) - sum(len(places[place]) for place in most)
    said += f"; {left:,} more elsewhere" if left else ""
    lock = f". {_LOCK}" if any(_BATON in place for place in most) else ""
    return f"{said[0].upper()}{said[1:]}{lock}" if said else ""
