"""The number of a step that all ranks of a joined job give it.

Models count no steps, and `dsprof attach --pid` reaches the ranks one after the other, each in
another step. What is the same on all of them is how many collectives were issued by the end of a
step in the groups that hold all of these ranks. So each rank notes how many there were when it was
joined; the highest of these numbers was passed in the same step by all, and from that step on they
count. Ranks that another command joins, as those of other hosts, count from another step on: these
are another launch.

A rank whose host is whole steps ahead of the others, as on a GPU, may learn late that all are
joined, and counts the steps since then as those of its optimizer. If several optimizers take turns
on one model, that makes fewer than the model has (`optimizers.Steps`): not solved.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.hook.byid import ById

#: Steps that may end until all have been joined: whoever asks them may have been ended meanwhile.
MOST: Final = 10_000


class Calls(NamedTuple):
    """How many collectives a group has issued, and the global ranks that it holds."""

    ranks: Collection[int]
    issued: int


class End(NamedTuple):
    """A step of an optimizer that has ended."""

    optimizer: weakref.ref[Any]
    calls: Sequence[Calls]


class Together:
    """Counts the steps that optimizers end, from the same step on in all ranks."""

    def __init__(self, mine: str, all_: Sequence[str]) -> None:
        """Note in the file `mine` how many collectives there were; `all_` are those of all ranks.

        Raises:
            OSError: the file cannot be written.
            DsprofError: it was left out meanwhile, so the others may count already.
        """
        if Path(mine).exists():
            raise DsprofError("it has answered too late", "", "try again")
        self._files = [Path(one) for one in all_]
        self._ranks: list[int] = []  # those that are joined, once all of them are
        self._since = -1  # the highest of their numbers
        self._ends: list[End] = []  # in order, those since then
        self._begun = ById()  # optimizers whose number is known
        told = [[sorted(ranks), issued] for ranks, issued in _issued()]
        new = Path(f"{mine}.new")
        new.write_text(json.dumps([_rank(), told]), encoding="ascii")
        new.replace(mine)

    def number(self, optimizer: Any) -> int | None:
        """The number of the step that `optimizer` has just ended, from 1; None if it is not known
        yet, because not all have been joined, or have not communicated in one group since, or do it
        by a backend of PyTorch that does not count; or if the turn is another optimizer's, which
        all ranks must find first, to number models alike.

        Raises:
            DsprofError: after `MOST` steps some have not been joined.
        """
        self._ends.append(End(weakref.ref(optimizer), list(_issued())))
        if len(self._ends) > MOST:
            raise DsprofError("not all ranks that were asked have answered", "attach --pid")
        if not self.is_complete():
            return None
        self._ends = [one for one in self._ends if self._counts(one)]
        steps = [one.optimizer() for one in self._ends]
        turn = next((one for one in steps if one not in self._begun), None)
        if turn is optimizer:
            self._begun[optimizer] = True
        return sum(one is optimizer for one in steps) if optimizer in self._begun else None

    def _counts(self, end: End) -> bool:
        """Whether all ranks were joined before this step of an optimizer that is still there; a
        rank alone needs no collectives.
        """
        if end.optimizer() is None:
            return False
        return len(self._files) == 1 or _sum(end.calls, self._ranks) > self._since

    def is_complete(self) -> bool:
        """Whether all have been joined. Until then steps may take longer: a rank stands still while
        it is, and others wait for it.
        """
        if self._since < 0:
            with suppress(OSError, ValueError):  # not there yet
                notes = [json.loads(one.read_bytes()) for one in self._files]
                told = [note for note in notes if note]
                self._ranks = [rank for rank, _ in told]
                self._since = max(
                    _sum([Calls(*one) for one in issued], self._ranks) for _, issued in told
                )
        return self._since >= 0


def leave_out(file: str | os.PathLike[str]) -> None:
    """Note for a rank that it is not joined: the others do not wait for it."""
    Path(file).write_text("null", encoding="ascii")


def _sum(calls: Sequence[Calls], ranks: Sequence[int]) -> int:
    """The collectives that all of these ranks issued together."""
    return sum(issued for held, issued in calls if all(rank in held for rank in ranks))


def _rank() -> int:
    dist = _distributed()
    return int(dist.get_rank() if dist else os.environ.get("RANK", "0"))


def _issued() -> Iterator[Calls]:
    """By PyTorch's own counts, of the groups that hold this rank."""
    dist = _distributed()
    if not dist:
        return
    groups = dist.distributed_c10d._world.pg_group_ranks  # noqa: SLF001
    for group, ranks in list(groups.items()):
        if isinstance(group, dist.ProcessGroup):  # not of others: a number stands for these
            yield Calls(ranks, _issued_in(group))


def _issued_in(group: Any) -> int:
    """By all backends of a group, as far as these count."""
    backends = [group._get_backend(device) for device in group._device_types]  # noqa: SLF001
    each = {id(backend): backend for backend in backends}
    issued = 0
    for one in each.values():
        with suppress(RuntimeError):  # it does not count
            issued += int(one._get_sequence_number_for_group())  # noqa: SLF001
    return issued


def _distributed() -> Any:
    """PyTorch's module, if ranks are connected by it."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist and dist.is_available() and dist.is_initialized() else None
