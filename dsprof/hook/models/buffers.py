"""DDP's broadcasts of buffers in forward: collectives that C++ issues and waits for."""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from dsprof.hook.calls.collectives import Collectives
from dsprof.hook.recorder import Recorder


class Buffers:
    """Times `DistributedDataParallel._sync_buffers` for all DDP models of this process.

    If a model has buffers, such as BatchNorm's statistics, every rank waits there for rank 0.
    """

    def __init__(self, recorder: Recorder) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self.collectives, self.timeline = recorder.collectives, recorder.timeline
        if "_sync_buffers" in vars(DistributedDataParallel):
            recorder.patches.of_class(
                DistributedDataParallel, "_sync_buffers",
                lambda raw: recorder.guard.around(raw, self._begin, self._end),
            )  # fmt: skip

    def _begin(self, args: Any, _: Any) -> tuple[Any, int | None, int] | None:
        if self.timeline.is_elsewhere():
            return None
        (model,) = args
        issued = by_others_so_far(self.collectives, model.process_group)
        self.collectives.others_wait("broadcast", model.process_group)
        return model, issued, now()

    def _end(self, held: tuple[Any, int | None, int] | None) -> None:
        if held is None:
            return
        (model, issued, begin), end = held, now()
        self.collectives.others_waited()
        group, buffers = model.process_group, model.modules_buffers
        count = issued_between(issued, by_others_so_far(self.collectives, group))
        blocked = end - begin if all(buffer.is_cpu for buffer in buffers) else -1
        if count is None:
            self.collectives.uncounted(blocked)
        elif count > 0:
            size = sum(buffer.nbytes for buffer in buffers)
            self.collectives.by_others("broadcast", group, begin, blocked, count, size)


def by_others_so_far(collectives: Collectives, group: Any) -> int | None:
    """How many collectives of the group Python did not issue, according to the group's own count;
    None if its backend does not count.
    """
    try:
        return int(group._get_sequence_number_for_group()) - collectives.count(group)  # noqa: SLF001
    except RuntimeError:
        return None


def issued_between(before: int | None, after: int | None) -> int | None:
    """How many collectives there were between two counts; None if unknown."""
    return None if before is None or after is None else after - before
