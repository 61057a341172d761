"""What one rank tells the user on behalf of all: where no recording is that was asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dsprof.hook.guard import say

UNSEEN: Final = (
    "no DeepSpeed engine was made, and no optimizer of PyTorch stepped for a DDP or FSDP model: "
    "dsprof.attach(model, optimizer=optimizer) in the script records any other"
)


def nothing_recorded() -> None:
    """What trained was not found; `dsprof attach -- COMMAND` looks at all ranks itself."""
    if _speaks() and not _is_launched():
        say(f"dsprof: no step was recorded ({UNSEEN})")


def another_folder(place: Path) -> None:
    """The script names another folder than the `dsprof attach -- COMMAND` that started it."""
    meant, mine = os.environ.get("DSPROF_OUT"), place.absolute()
    elsewhere = meant and Path(meant).absolute() not in (mine, *mine.parents)
    if elsewhere and _speaks() and _is_launched():
        say(f"dsprof: nothing goes into {meant}: the script names another folder, {place}")


def _speaks() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _is_launched() -> bool:
    return "DSPROF_LAUNCH" in os.environ
