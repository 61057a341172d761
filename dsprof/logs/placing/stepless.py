"""Of which launch the lines are that a file holds in which no step is marked.

The logs of other ranks, and of launchers, often tell no step. Where files that do were begun anew
several times, times say of which launch such a line is. A failure without a time stands between
others: what reports it comes behind it, else it is of what was written before it. A file that
tells no time at all is of the launch of those beside which its name puts it, else of the last one:
that nobody says when something failed does not make it past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dsprof.logs.columns.arrow import numbers, numpy_of
from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.several import Extent


class Lines(NamedTuple):
    """Rows of one file, in order: parallel arrays.

    Attributes:
        segment: counted in the file.
        at: microseconds, or `UNKNOWN`.
        stepped: of a step.
        failed: tells that a launch went wrong.
    """

    segment: np.ndarray
    at: np.ndarray
    stepped: np.ndarray
    failed: np.ndarray


def beside_others(
    launches: Sequence[int], files: Sequence[Extent], families: Sequence[str]
) -> list[int]:
    """The launches of files, where those without steps and times are of the last one of their
    family, or of all."""
    telling = [i for i, one in enumerate(files) if one.who]
    of_family = dict.fromkeys(families, -1)
    for i in telling:
        of_family[families[i]] = max(of_family[families[i]], launches[i])
    last = max(launches, default=0)
    return [
        launch
        if one.who or one.end != UNKNOWN
        else (of_family[family] if of_family[family] >= 0 else last)
        for launch, one, family in zip(launches, files, families, strict=True)
    ]


def counted_beside(
    segments: Sequence[list[pa.Array]],
    columns: Mapping[str, list[pa.Array]],
    files: Sequence[Extent],
    launches: Sequence[int],
    wrong: np.ndarray,
) -> list[list[pa.Array]]:
    """The segments of each file; where it marks no step, as the others of its launch count them.

    Args:
        segments: batches of each file.
        columns: batches of all, one file behind the other.
        wrong: of each pattern, whether it tells that a launch went wrong.
    """
    first = np.cumsum([0, *map(len, segments)]).tolist()

    def lines_of(file: int) -> Lines:
        here = slice(first[file], first[file + 1])
        at = [numpy_of(part.cast(pa.int64())) for part in columns["at"][here]]
        return Lines(
            np.concatenate([numpy_of(part)[0] for part in segments[file]]),
            np.concatenate([np.where(missing, UNKNOWN, values) for values, missing in at]),
            ~np.concatenate([numpy_of(part)[1] for part in columns["step"][here]]),
            wrong[np.concatenate([numpy_of(part)[0] for part in columns["pattern"][here]])],
        )

    found = [*segments]
    for launch in set(launches):
        mine = [i for i, of in enumerate(launches) if of == launch and segments[i]]
        stepless = [i for i in mine if not files[i].who]
        telling = [lines_of(i) for i in mine if files[i].who] if stepless else []
        for i in stepless:
            counted = _segments(telling, lines_of(i))
            cuts = np.cumsum([len(part) for part in segments[i]])[:-1]
            found[i] = [numbers(part) for part in np.split(counted, cuts)]
    return found


def _segments(telling: Sequence[Lines], file: Lines) -> np.ndarray:
    """The segments of a file without steps, as files of the same launch count them."""
    last = max((int(lines.segment.max(initial=0)) for lines in telling), default=0)
    own = int(file.segment.max(initial=0))
    if own > last or not last:
        return file.segment
    dated = np.flatnonzero(file.at != UNKNOWN)
    ends, begins = _between(telling, last)
    if not len(dated) or (begins == UNKNOWN).any():
        return file.segment + np.int32(last - own)
    by = _dating(file, dated)
    # Before a launch marks a step its ranks begin, at about the same time; nothing fails anew.
    middles = np.where(ends == UNKNOWN, begins, begins - (begins - ends) // 2)
    found = np.where(
        file.failed[by],
        np.searchsorted(begins, file.at[by], side="right"),
        np.searchsorted(middles, file.at[by], side="right"),
    )
    counted: np.ndarray = found.astype(np.int32)
    return counted


def _between(telling: Sequence[Lines], last: int) -> tuple[np.ndarray, np.ndarray]:
    """When each launch but the last one marks its last step, and the next one begins."""
    ends, begins = np.full(last, UNKNOWN), np.full(last, UNKNOWN)
    for number in range(last):
        for lines in telling:
            known = lines.at != UNKNOWN
            before = lines.at[(lines.segment == number) & lines.stepped & known]
            behind = lines.at[(lines.segment == number + 1) & known]
            ends[number] = max(ends[number], before.max(initial=UNKNOWN))
            if len(behind):
                first = int(behind.min())
                begins[number] = first if begins[number] == UNKNOWN else min(begins[number], first)
    return ends, begins


def _dating(file: Lines, dated: np.ndarray) -> np.ndarray:
    """The line whose time stands for that of each: its own, else that of the failure that is told
    next, else of the line before, else of the next one."""
    following = np.searchsorted(dated, np.arange(len(file.at)))
    behind = dated[np.minimum(following, len(dated) - 1)]
    before = dated[np.maximum(following - 1, 0)]
    reported = file.failed & file.failed[behind] & (following < len(dated))
    takes: np.ndarray = np.where((behind == np.arange(len(file.at))) | reported, behind, before)
    return takes
