"""What PyTorch says of a GPU that was full: who held it, and in how large pieces."""

from __future__ import annotations

import re
from typing import Final

from dsprof.units import format_bytes, size

TRIED: Final = re.compile(
    r"(?:[Tt]ried|Unable) to allocate ([\d.]{1,12} [KMGT]?i?B|\d{1,19} bytes)"
    r"|(?<!memory allocation of )memory allocation of (\d{1,19} bytes)"
)  #: not where processes wrote through each other: the digits are of several numbers
_UNUSED: Final = re.compile(r"([\d.]{1,12} [KMGT]?i?B) is reserved by PyTorch but unallocated")
_HELD: Final = re.compile(
    r"([\d.]{1,12} [KMGT]?i?B) already allocated; .{1,60}; "
    r"([\d.]{1,12} [KMGT]?i?B) reserved in total"
)
_ALLOCATED: Final = re.compile(r"([\d.]{1,12} [KMGT]?i?B) is allocated by PyTorch")
#: PyTorch does not know itself in a container with numbers of its own: where it names no "this
#: process", the one with a number may be itself.
_OTHERS: Final = re.compile(r"\bProcess (\d{1,10}) has ([\d.]{1,12} [KMGT]?i?B) memory in use")
_ITSELF: Final = re.compile(r"this process has ([\d.]{1,12} [KMGT]?i?B) memory in use")
_FILLED: Final = re.compile(
    r"total capaci?ty of ([\d.]{1,12} [KMGT]?i?B) of which ([\d.]{1,12} [KMGT]?i?B) is free"
    r"|([\d.]{1,12} [KMGT]?i?B) total capacity; .{1,60}?([\d.]{1,12} [KMGT]?i?B) free;"
)
_TOTAL: Final = re.compile(
    r"total capaci?ty of ([\d.]{1,12} [KMGT]?i?B)|([\d.]{1,12} [KMGT]?i?B) total capacity"
)
_UNTOLD: Final = 0.05  #: of a GPU: less of what nobody is said to hold is the driver's own
_OUTSIDE: Final = 0.1  #: of a GPU: less may be what CUDA and NCCL hold of it for this process


def is_fragmented(text: str) -> bool:
    """Whether PyTorch had reserved more than was asked for, beside what it had given out."""
    asked, unused, held = TRIED.search(text), _UNUSED.search(text), _HELD.search(text)
    if not asked or not (unused or held) or said_of_unmapped(text):
        return False
    free = _size(unused[1]) if unused else _size(held[2]) - _size(held[1]) if held else 0.0
    return free > _size(asked[1])


def said_of_unmapped(text: str) -> str:
    """That PyTorch counts more as reserved than the GPU has, where it does: some of that is none of
    the GPU's memory, so what is unused of it makes no room."""
    total, mine = _total(text), _reserved(text)
    if mine is None or not mine > total > 0:
        return ""
    return (
        f"PyTorch counts {format_bytes(mine)} as its own on a GPU of {format_bytes(total)}: some "
        "of it is mapped to no memory of that GPU (as of a pool that sleeps), or is the host's. "
    )


def is_larger_than(text: str) -> float:
    """How many times the whole memory of the GPU was asked for at once; 0 where that is not told,
    or fits."""
    tried, total = TRIED.search(text), _total(text)
    if not tried or not tried[1]:
        return 0.0
    times = _size(tried[1]) / total if total else 0.0
    return times if times > 1 else 0.0


def said_of_others(text: str) -> str:
    """Who else held the GPU, where that would have been enough."""
    tried, itself, others = TRIED.search(text), _ITSELF.search(text), _OTHERS.findall(text)
    if not tried or not tried[1]:
        return ""
    asked = _size(tried[1])
    if not itself:
        return _said_of_several(others, asked) or _said_of_outside(text, asked)
    held = sum(_size(of) for _, of in others)
    unseen = _unseen(text, _size(itself[1]) + held, _UNTOLD)
    if held + unseen < asked:
        return ""
    beyond = f"{format_bytes(unseen)} (no process named, as of another container)"
    return (
        "Other processes held part of that GPU, which would have been enough: "
        f"{_listed(others, *[beyond] * (unseen > 0))}. "
    )


def _said_of_several(others: list[tuple[str, str]], asked: float) -> str:
    """Of processes by their numbers, one of which may be the one that asked."""
    held = [_size(of) for _, of in others]
    if len(held) < 2 or sum(held) - max(held) < asked:
        return ""
    return f"Several processes held that GPU, at most one of them this one: {_listed(others)}. "


def _said_of_outside(text: str, asked: float) -> str:
    """Of a GPU that holds far more than the allocator that asked had of it."""
    mine = _reserved(text)
    outside = _unseen(text, mine, _OUTSIDE) if mine is not None else 0.0
    if mine is None or outside < asked or not outside:
        return ""
    return (
        f"Of what was in use there, PyTorch's allocator held {format_bytes(mine)} in this process: "
        f"{format_bytes(outside)} were held by other processes, or past that allocator. "
    )


def _total(text: str) -> float:
    """Bytes that the GPU has; 0 where that is not told."""
    told = _TOTAL.search(text)
    return _size(told[1] or told[2]) if told else 0.0


def _reserved(text: str) -> float | None:
    """Bytes that the allocator of this process holds, given out or not."""
    allocated, unused, held = _ALLOCATED.search(text), _UNUSED.search(text), _HELD.search(text)
    if held:
        return _size(held[2])
    return _size(allocated[1]) + _size(unused[1]) if allocated and unused else None


def _listed(others: list[tuple[str, str]], *more: str) -> str:
    named = ", ".join([f"{of} (process {who})" for who, of in others[:3]] + [*more])
    return f"{named} and {len(others) - 3} more" if len(others) > 3 else named


def _unseen(text: str, told: float, least: float) -> float:
    """Bytes of the GPU that are neither free nor told of. 0 if they are less than that share of it.

    A process sees only those of its own container.
    """
    filled = _FILLED.search(text)
    if not filled:
        return 0.0
    total, free = (_size(one) for one in filled.groups() if one)
    left = total - free - told
    return left if left > least * total else 0.0


def _size(text: str) -> float:
    return size(text) or 0.0
