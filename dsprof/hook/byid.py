"""A mapping by identity that holds its keys weakly."""

from __future__ import annotations

import weakref
from typing import Any


class ById:
    """Maps objects to values by identity: objects of training's classes may be unhashable, or equal
    to others.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ReferenceType[Any], Any]] = {}

    def __contains__(self, one: object) -> bool:
        return id(one) in self._known

    def __getitem__(self, one: object) -> Any:
        return self._known[id(one)][1]

    def __setitem__(self, one: object, value: object) -> None:
        number, known = id(one), self._known
        known[number] = weakref.ref(one, lambda _: known.pop(number, None)), value

    def drop(self, value: object) -> None:
        """Forget the objects that have this value."""
        for number in [number for number, (_, held) in self._known.items() if held is value]:
            del self._known[number]
