"""The operations of process groups: what PyTorch's methods do, and with which tensors."""

from __future__ import annotations

from typing import Any, Final

from dsprof.hook.spans import COMMUNICATION, WAIT

#: Method of ProcessGroup → canonical name, and index of the argument whose bytes count. They are
#: those of DeepSpeed's comms logger: the local shard of a gather, the full input of a scatter.
OPERATIONS: Final = {
    "allreduce": ("all_reduce", 0),
    "allreduce_coalesced": ("all_reduce_coalesced", 0),
    "allgather": ("all_gather", 1),
    "all_gather_single": ("all_gather_into_tensor", 1),
    "_allgather_base": ("all_gather_into_tensor", 1),
    "allgather_coalesced": ("all_gather_coalesced", 1),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", 1),
    "all_gather_single_coalesced": ("all_gather_into_tensor_coalesced", 1),
    "reduce_scatter": ("reduce_scatter", 1),
    "reduce_scatter_single": ("reduce_scatter_tensor", 1),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", 1),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor_coalesced", 1),
    "alltoall": ("all_to_all", 1),
    "alltoall_base": ("all_to_all_single", 1),
    "all_to_all_single": ("all_to_all_single", 1),
    "broadcast": ("broadcast", 0),
    "reduce": ("reduce", 0),
    "gather": ("gather", 1),
    "gather_single": ("gather", 1),  # in PyTorch 2.15, on NCCL
    "gather_into_tensor": ("gather", 1),
    "scatter": ("scatter", 0),
    "barrier": ("barrier", None),
    "monitored_barrier": ("monitored_barrier", None),
    "send": ("send", 0),
    "recv": ("recv", 0),
    "recv_anysource": ("recv", 0),
}
POINT_TO_POINT: Final = ("send", "recv")
UNCOUNTED: Final = (*POINT_TO_POINT, "monitored_barrier")  # not in PyTorch's count of collectives
_SEQUENCE: Final = (list, tuple)


class Operation:
    """A kind of call. `ids` maps the phase that it blocks to the id of its name in the
    recording.
    """

    __slots__ = ("argument", "class_", "counts", "ids", "name")

    def __init__(self, name: str, argument: int | None) -> None:
        self.name, self.argument = name, argument
        self.class_ = WAIT if name in POINT_TO_POINT else COMMUNICATION
        self.counts = name not in UNCOUNTED
        self.ids: dict[int, int] = {}


def size_of(tensors: Any) -> int:
    """Bytes of a tensor, or of nested lists of tensors."""
    if tensors is None:
        return 0
    while isinstance(tensors, _SEQUENCE):
        if len(tensors) != 1:
            return sum(map(size_of, tensors))
        tensors = tensors[0]
    return tensors.nbytes  # type: ignore[no-any-return]


def by_name(place: int, args: Any, kwargs: Any) -> Any:
    """The tensors where arguments are passed by name; names are taken to be in positional order."""
    every = (*args, *kwargs.values())
    return every[place] if len(every) > place else None


def on_gpu(tensors: Any) -> bool:
    while isinstance(tensors, _SEQUENCE):
        if not tensors:
            return False
        tensors = tensors[0]
    return tensors is not None and not tensors.is_cpu
