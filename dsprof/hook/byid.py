"""Information about objects that are held weakly, by identity."""

from __future__ import annotations

import weakref
from typing import Any


class ById:
    """Objects of classes that training made: they may have no hash, and equal others."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ReferenceType[Any], Any]] = {}

    def __contains__(self, one: object) -> bool:
        return id(one) in self._known

    def __getitem__(self, one: object) -> Any:
        return self._known[id(one)][1]

    def __setitem__(self, one: object, value: object) -> None:
        number, known = id(one), self._known
        known[number] = weakref.ref(one, lambda _: known.pop(number, None)), value
