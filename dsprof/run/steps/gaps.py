"""Timers that a line lacks although its like hold them: unknown, not zero.

A line that is cut off, or broken by another process, still reads as a timer line, of fewer
timers. What those measured is then unknown, and so is what is left of their parents. The same
goes for a line that is gone whole (see `dsprof.run.steps.lost`). Like are the lines of one launch,
engine and rank: another engine may measure less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.logs.columns.codes import groups_of
from dsprof.run.steps.lost import USUAL, lost_lines
from dsprof.run.steps.words import Word
from dsprof.run.table import Codes, keys, known_rank, runs, whole


def gaps(
    rows: pd.DataFrame, words: Sequence[Word], which: Codes, names: Codes, span: Codes
) -> pd.DataFrame:
    """One row per missing timer: its `timer` and `word`, and the line that lacks it.

    Args:
        rows: timers; `which` of `words` each is, `names` the code of each word's name.
        span: segment, engine, step and rank of each row as one code that rises with the step.
    """
    kind = keys(known_rank(rows), "segment", "engine", "rank", "timers")
    flavour = whole(rows["timers"])
    heads = runs(flavour, span)
    odd = heads[_uneven(flavour, kind, which, heads)]
    lacking = _lacking(kind, which, span, kind[odd]), lost_lines(rows, words, which, span)
    place, word = (np.concatenate(parts) for parts in zip(*lacking, strict=True))
    timer = span * max(len(words), 1) + names[which]
    near = np.isin(span, span[place])
    there: dict[int, set[tuple[int, int]]] = {}
    for where, *one in zip(span[near], flavour[near], which[near], strict=True):
        there.setdefault(int(where), set()).add((int(one[0]), int(one[1])))
    kept = [
        not _told(words, int(w), int(flavour[p]), there[int(span[p])])
        for p, w in zip(place, word, strict=True)
    ]
    place, word = place[kept], word[kept]
    found = rows.iloc[place][["segment", "engine", "step", "rank", "raw", "source", "line"]]
    found = found.reset_index(drop=True).assign(
        raw=[words[w].name for w in word],
        timer=timer[place] - names[which[place]] + names[word],
        word=word,
        seconds=np.nan,
        count=np.nan,
    )
    return found.drop_duplicates("timer")  # two lines of a step may lack the same


def _uneven(flavour: Codes, kind: Codes, which: Codes, heads: Codes) -> npt.NDArray[np.bool_]:
    """Lines that are not made of whole sets of the timers of their flavour and printer (`kind`)."""
    width = int(which.max(initial=0)) + 1
    seen = np.bincount(kind * width + which, minlength=(kind.max(initial=0) + 1) * width) > 0
    usual = seen.reshape(-1, width).sum(axis=1)[kind[heads]]
    lengths = np.diff(heads, append=len(flavour))
    odd: npt.NDArray[np.bool_] = (flavour[heads] >= 0) & (lengths % np.maximum(usual, 1) != 0)
    return odd


def _lacking(kind: Codes, which: Codes, span: Codes, some: Codes) -> tuple[Codes, Codes]:
    """The timers that lines of `some` kinds lack and usually hold."""
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    of_some = np.flatnonzero(np.isin(kind, some))
    for alike in groups_of(kind[of_some]):
        mine = of_some[alike]
        _, begins, row = np.unique(span[mine], return_index=True, return_inverse=True)
        words, column = np.unique(which[mine], return_inverse=True)
        shape = len(begins), len(words)
        counts = np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1]).reshape(shape)
        first = (counts > 0).argmax(axis=0)
        later = np.arange(len(counts))[:, None] > first
        usual = (counts > 0).sum(axis=0) >= USUAL * (len(counts) - first)
        short = counts < counts.max(axis=1, keepdims=True)
        at, lack = np.nonzero(short & later & usual)
        found.append((mine[begins[at]], words[lack]))
    place, word = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return place, word


def _told(words: Sequence[Word], word: int, flavour: int, there: set[tuple[int, int]]) -> bool:
    """Another line tells the timer, or it would only be named apart from the rest of its parent."""
    lacked = words[word]
    if any(words[w].name == lacked.name and other != flavour for other, w in there):
        return True
    present = {words[w].name: words[w] for _, w in there}
    parent = next((present[name] for name in lacked.parents if name in present), None)
    return parent is not None and parent.class_ == lacked.class_
