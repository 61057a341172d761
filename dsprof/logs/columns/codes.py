"""Numbers for what is said again and again, and where each of them stands."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Codes(Generic[T]):
    """Numbers for values in order of first use."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._codes: dict[T, int] = {}

    def __call__(self, value: T) -> int:
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def taken_from(self, other: Codes[T]) -> np.ndarray:
        """For each code of `other` the code here; the last one, for -1, stays -1."""
        return np.array([*map(self, other.values), -1], np.int32)


def groups_of(codes: np.ndarray) -> list[np.ndarray]:
    """Where each code stands, in order, for every one there is."""
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    return groups if len(codes) else []
