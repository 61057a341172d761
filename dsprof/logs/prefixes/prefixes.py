"""Reads the prefixes of a log, whose layers `dsprof.logs.prefixes.wrappers` knows.

Most prefixes of a log differ only in their digits, so what was learnt from one is kept under the
prefix with its digits zeroed, as a *plan* of where each fact stands: the next one costs a
dictionary look-up and a few slices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from dsprof.logs.prefixes.wrappers import LONGEST, Plan, study

_ZEROED: Final = bytes.maketrans(b"123456789", b"000000000")
_KEPT_SHAPES: Final = 4096
_LONGEST_KEPT: Final = 2400  # bytes
_BAR_ENDS: Final = (b"/s]", b"s/it]", b"s/step]", b"s/batch]")

T = TypeVar("T")
#: Where a bar is cut out of a prefix (0, 0 if there is none), and the plan of the rest.
_Known = tuple[int, int, Plan]


class Prefixes:
    """Reads prefixes, remembering what was learnt of each shape."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}
        self._plans: dict[bytes, Plan] = {}
        self._outer: dict[bytes, int] = {}

    def plan(self, prefix: bytes) -> tuple[bytes, Plan]:
        """The prefix as read (progress bars cut out) and its plan."""
        outer, behind, plan = self._known_of(prefix, prefix.translate(_ZEROED))
        return _cut(prefix, outer, behind), plan

    def alike(self, prefixes: Iterable[bytes]) -> Iterator[tuple[list[bytes], list[bytes], Plan]]:
        """The prefixes of each shape: as they are, as read, and the plan of them all."""
        prefixes = list(prefixes)
        text = b"".join(prefix + b"\n" for prefix in prefixes)  # each is of one line
        shapes = text.translate(_ZEROED).split(b"\n")[:-1]
        of_shape: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for shape, prefix in zip(shapes, prefixes, strict=True):
            of_shape[shape].append(prefix)
        for shape, alike in of_shape.items():
            outer, behind, plan = self._known_of(alike[0], shape)
            short = not behind and len(shape) <= LONGEST
            yield alike, alike if short else [_cut(p, outer, behind) for p in alike], plan

    def _known_of(self, prefix: bytes, shape: bytes) -> _Known:
        known = self._known.get(shape)
        if known is None:
            bar = prefix.find(b"%|")
            outer, behind = self._around_bar(prefix, bar) if bar >= 0 else (0, 0)
            known = outer, behind, self._plan_of(_cut(prefix, outer, behind))
            if len(shape) <= _LONGEST_KEPT:
                _keep(self._known, shape, known)
        return known

    def _plan_of(self, prefix: bytes) -> Plan:
        shape = prefix.translate(_ZEROED)
        plan = self._plans.get(shape)
        return plan or _keep(self._plans, shape, study(prefix))

    def _around_bar(self, prefix: bytes, bar: int) -> tuple[int, int]:
        """Where what wrapped the line of the last progress bar ends, and where text begins
        behind that bar."""
        ends = [at + len(end) for end in _BAR_ENDS if (at := prefix.rfind(end)) >= 0]
        if not ends:
            return 0, 0
        shape = prefix[: min(bar, LONGEST)].translate(_ZEROED)
        outer = self._outer.get(shape)
        if outer is None:
            outer = _keep(self._outer, shape, study(shape, whole=False).end)
        return outer, max(ends)


def _cut(prefix: bytes, outer: int, behind: int) -> bytes:
    """What is read of a prefix: without the bar that stands between these places."""
    return (prefix[:outer] + prefix[behind:])[-LONGEST:]


def _keep(kept: dict[bytes, T], shape: bytes, value: T) -> T:
    if len(kept) >= _KEPT_SHAPES:
        kept.clear()
    kept[shape] = value
    return value
