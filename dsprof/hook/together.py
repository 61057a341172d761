"""The number of a step that all ranks of a joined job give it.

Models count no steps, and `dsprof attach --pid` reaches the ranks one after the other, each in
another step. What is the same on all of them is how many collectives of all ranks were issued by
the end of a step. So each rank notes how many there were when it was joined; the highest of these
numbers was passed in the same step by all, and from that step on they count. Ranks that another
command joins, as those of other hosts, count from another step on: these are another launch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsprof.hook.byid import ById


class Together:
    """Counts the steps that optimizers end, from the same step on in all ranks."""

    def __init__(self, mine: str, all_: Sequence[str]) -> None:
        """Note in the file `mine` how many collectives there were; `all_` are those of all ranks.

        Raises:
            OSError: the file cannot be written.
        """
        self._files = [Path(one) for one in all_]
        self._since = -1  # the highest of these numbers; -1 until all are known
        self._ends = ById()  # optimizer → how many collectives there were as each step ended
        new = Path(f"{mine}.new")
        new.write_text(str(_issued()), encoding="ascii")
        new.replace(mine)

    def number(self, optimizer: Any) -> int | None:
        """The number of the step that `optimizer` has just ended, from 1; None if it is not known
        yet, because not all have been joined, or they have not communicated since, or do it by a
        backend of PyTorch that does not count.
        """
        if optimizer not in self._ends:
            self._ends[optimizer] = []
        ends = self._ends[optimizer]
        ends.append(_issued())
        if not self.is_complete():
            return None
        if len(self._files) == 1:
            return len(ends)
        return sum(end > self._since for end in ends) or None

    def is_complete(self) -> bool:
        """Whether all have been joined. Until then steps may take longer: a rank stands still while
        it is, and others wait for it.
        """
        if self._since < 0:
            with suppress(OSError, ValueError):  # not there yet
                self._since = max(int(one.read_bytes()) for one in self._files)
        return self._since >= 0


def leave_out(file: str | os.PathLike[str]) -> None:
    """Note for a rank that it is not joined: the others do not wait for it."""
    Path(file).write_text("-1", encoding="ascii")


def _issued() -> int:
    """How many collectives of all ranks were issued, by PyTorch's own count."""
    dist: Any = sys.modules.get("torch.distributed")
    if not (dist and dist.is_available() and dist.is_initialized()):
        return 0
    world = dist.group.WORLD
    backends = [world._get_backend(device) for device in world._device_types]  # noqa: SLF001
    each = {id(backend): backend for backend in backends}
    with suppress(RuntimeError):  # this backend does not count
        return sum(one._get_sequence_number_for_group() for one in each.values())  # noqa: SLF001
    return 0
