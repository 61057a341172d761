"""Losses of a loop that stand behind the line of the step they are of.

DeepSpeed prints the line of a step inside `engine.step()`. A loop that prints a loss thereafter has
the one of a marked step behind its mark, and those of all other steps in front of the next mark.
"""

from __future__ import annotations

from typing import Final

import numpy as np

_MOST: Final = 0.9  # of all turns from mark to mark; few may lack a line, or have one too many


def behind_marks(
    losses: np.ndarray, pattern: np.ndarray, marks: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The losses that are of the mark before them, and those marks.

    Of a loop that prints after steps, one line less stands in front of the first mark than between
    it and the second. That tells only where the first launch begins as far in front of them, and as
    many stand between all others: those of a loop that prints every few steps may not.
    """
    told, of = np.empty(0, np.intp), np.empty(0, np.intp)
    if len(marks) < 2 or steps[marks[1]] != 2 * steps[marks[0]]:
        return told, of
    for one in np.unique(pattern[losses]):
        mine = losses[pattern[losses] == one]
        group = np.searchsorted(marks, mine)
        turns = np.bincount(group, minlength=len(marks))[: len(marks)]
        if turns[1] == turns[0] + 1 and np.mean(turns[1:] == turns[1]) >= _MOST:
            first = np.diff(group, prepend=0) > 0
            told = np.concatenate([told, mine[first]])
            of = np.concatenate([of, marks[group[first] - 1]])
    return told, of
