"""What the words of recordings mean, and columns of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsprof.events import Class
from dsprof.recording.bulk import Process
from dsprof.run.recorded import spans
from dsprof.run.recorded.woven import Array, Part, Source, woven
from dsprof.run.steps.classes import P2P
from dsprof.run.steps.words import holder_of


@dataclass
class Word:
    """What a path means."""

    path: str
    name: str
    class_: str

    @property
    def phase(self) -> str:
        """The path that it lies in, "" for none."""
        return holder_of(self.path)


class Meanings:
    """Names and classes of words: 2 x path for a span, one more for a call."""

    def __init__(self, words: Sequence[Word], holding: set[str]) -> None:
        """`holding`: paths of phases that hold calls whose exposed time is unknown."""
        self.paths = [word.path for word in words for _ in range(2)]
        self.names, self.classes = [], []
        self.mixed = np.zeros(2 * len(words), bool)
        for number, word in enumerate(words):
            held = word.path in holding and word.class_ == Class.COMPUTE
            moves = Class.WAIT if word.name in P2P else Class.COMMUNICATION
            self.names += [word.name, spans.inside_of(word.path)]
            self.classes += [str(Class.OTHER if held else word.class_), str(moves)]
            self.mixed[2 * number] = held


@dataclass(frozen=True)
class Coded:
    """Words as categories: of each word its code, and behind them that of none."""

    codes: Array
    names: list[str]

    def column(self, codes: Array) -> pd.Categorical:
        kind = pd.CategoricalDtype(pd.Index(self.names, dtype="str"))
        found: pd.Categorical = pd.Categorical.from_codes(codes, dtype=kind, validate=False)
        return found


def coded(words: Sequence[str], met: Array) -> Coded:
    """The words that are met, as categories in order."""
    there = np.flatnonzero(met).tolist()
    names = sorted({words[code] for code in there})
    kind = np.int8 if len(names) < 1 << 7 else np.int16 if len(names) < 1 << 15 else np.int32
    codes = np.full(len(words) + 1, -1, kind)
    codes[there] = [names.index(words[code]) for code in there]
    return Coded(codes, names)


def met(columns: Sequence[Array], size: int) -> Array:
    """Which codes below `size` are among the columns; -1 is none."""
    found = np.zeros(size, np.int64)
    for column in columns:
        found += np.bincount(column + 1, minlength=size + 1)[1:]
    return found > 0


def frame_of(
    processes: Sequence[Process],
    parts: Sequence[Part],
    words: Mapping[str, tuple[str, Coded]],
    more: Mapping[str, Source],
    columns: Sequence[str],
) -> pd.DataFrame:
    """The rows of all processes in order of step and rank.

    Args:
        words: columns of words: which column of the parts has their codes, and their meaning.
        more: other columns that are not of the same name in the parts.
        columns: of the frame, in order.
    """
    own = {name: Source(name) for name in parts[0].columns if name in columns}
    coded_ = {name: Source(source, one.codes) for name, (source, one) in words.items()}
    rows: dict[str, Any] = woven(processes, parts, {**own, **coded_, **more})
    rows |= {name: one.column(rows[name]) for name, (_, one) in words.items()}
    rows["rank"] = _ranks(rows["rank"])
    return pd.DataFrame({name: rows[name] for name in columns}, copy=False)


def _ranks(numbers: Array) -> Any:
    """Missing where -1; a column that lacks none stays plain."""
    lacking = numbers < 0
    return pd.arrays.IntegerArray(numbers.astype(np.int64), lacking) if lacking.any() else numbers
