"""Functional collectives, used by DTensor, tensor parallelism and gradient clipping under FSDP2.

Code that issues or waits for one in eager mode, also in autograd, calls a packet in
`torch.ops._c10d_functional`, whose C++ calls no method of `ProcessGroup`. Each packet is a single
object that all callers share, so its class is replaced by one that times calls. Compilers see an
unchanged packet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns as now
from typing import Any, Final

from dsprof.hook.calls.collectives import Collectives
from dsprof.hook.calls.operations import Operation
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches
from dsprof.hook.spans import Ended

_OPERATIONS: Final = (
    "all_reduce", "all_reduce_coalesced", "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "all_to_all_single", "broadcast",
)  # fmt: skip
_WAITS: Final = ("wait_tensor", "wait_tensors")  # the second, for all results of a call, since 2.15
_ASYNCHRONOUS: Final = "AsyncCollectiveTensor"  # by name: its module may not be imported


class Functional:
    """Times functional collectives.

    Each call is represented by a stand-in for a Work until the storage of its result is waited for.
    """

    def __init__(self, collectives: Collectives) -> None:
        import torch
        from torch.distributed.distributed_c10d import _resolve_process_group

        self._group = _resolve_process_group
        self._tensor, self._storage = torch.Tensor, torch._C._storage_id  # noqa: SLF001
        self._tensors = (torch.Tensor, torch.nn.Parameter)
        self._is_eager = _eager()
        self.collectives = collectives
        self._works: dict[int, object] = {}  # by storage id; storages are not kept alive
        self._waited = 0  # when the last wait ended
        self._closing = collectives.timeline.closing

    def patch(self, patches: Patches, guard: Guard) -> None:
        """Time the packets that this PyTorch has."""
        import torch

        for name in (*_OPERATIONS, *_WAITS):
            packet = getattr(torch.ops._c10d_functional, name, None)  # noqa: SLF001
            if packet is not None:
                raw = type(packet).__call__
                if name in _WAITS:
                    timed = self._waiting(raw, guard)
                else:
                    timed = self._issuing(Operation(name, 0), raw, guard)
                _give_class(packet, timed, patches)

    def _issuing(self, operation: Operation, raw: Call, guard: Guard) -> Call:
        issuing = guard.behind(raw, self._issued, operation)
        is_eager, begins = self._is_eager, guard(self.collectives.wait_begins)

        def call(packet: Any, /, *args: Any, **kwargs: Any) -> Any:
            if kwargs or not is_eager():
                return raw(packet, *args, **kwargs)
            begins()
            return issuing(packet, *args, **kwargs)

        return call

    def _waiting(self, raw: Call, guard: Guard) -> Call:
        waiting = guard.around(raw, self._before, self._after)
        is_eager, kind = self._is_eager, self._tensor

        def call(packet: Any, /, *args: Any, **kwargs: Any) -> Any:
            known = is_eager() and len(args) == 1 and type(_first(args[0])) is kind
            return (waiting if known else raw)(packet, *args, **kwargs)

        return call

    def _issued(self, operation: Operation, _: Any, args: Any, *call: Any) -> None:
        gave, begin = call[1:]
        given = args[0] if isinstance(args[0], list | tuple) else args[:1]
        first = _first(gave)
        if type(first) is not self._tensor or not all(map(self._is_plain, given)):
            return
        group = self._group(args[-1]) if isinstance(args[-1], str) else args[-1]
        if self._forget not in self._closing:  # only jobs that have such calls pay for `_forget`
            self._closing.append(self._forget)
        work = self._works[self._storage(first)] = object()
        begin = max(begin, self._waited)  # a wait for its inputs may have been part of the call
        self.collectives.issued(operation, group, args, {}, work, begin)

    def _is_plain(self, tensor: Any) -> bool:
        kind = type(tensor)
        return kind in self._tensors or kind.__name__ == _ASYNCHRONOUS

    def _before(self, args: Any, _: Any) -> Any:
        first = self._storage(_first(args[1]))
        return self.collectives.before_wait((self._works.pop(first, None),))

    def _after(self, held: Any) -> None:
        self.collectives.after_wait(held)
        self._waited = now()

    def _forget(self, _: Ended) -> None:
        """Drop calls that nobody waits for any more."""
        known = self.collectives.is_under_way
        self._works = {storage: work for storage, work in self._works.items() if known(work)}


def _first(gave: Any) -> Any:
    """The first result of a call, which represents all of them."""
    return gave[0] if isinstance(gave, list) and gave else gave


def _eager() -> Callable[[], bool]:
    """A function that tells whether calls run eagerly on real tensors: nothing compiles or traces,
    and no mode or transform intercepts calls.
    """
    import torch

    modes, tracing = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state  # noqa: SLF001
    transforms = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001

    def is_eager() -> bool:
        return not modes() and transforms() is None and tracing() is None

    return is_eager


def _give_class(packet: Any, timed: Call, patches: Patches) -> None:
    before = type(packet)
    ours = type(before.__name__, (before,), {"__call__": timed, "__module__": before.__module__})
    packet.__class__ = ours
    patches.undo_with(partial(_take_back, packet, ours, before))


def _take_back(packet: Any, ours: type, before: type) -> None:
    if type(packet) is ours:
        packet.__class__ = before
