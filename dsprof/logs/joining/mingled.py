"""Sources that cannot be read as they are: upside down, or of two jobs whose lines are mingled."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from dsprof.errors import DsprofError
from dsprof.grammar import Grammar
from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.columns.codes import groups_of
from dsprof.logs.joining.sheet import Sheet
from dsprof.logs.placing.launches import is_upside_down

_SHARED: Final = 3  # steps that both tell
_TURNS: Final = 4  # a job that went on elsewhere changes its host once
_EACH_WAY: Final = 0.4  # of the turns: half of two jobs' go on, and half go back


def unreadable(sheet: Sheet, grammar: Grammar) -> DsprofError | None:
    """Why nothing true can be said of a source; None if it can be read."""
    if is_upside_down(sheet.columns["at"], sheet.columns["step"]):
        todo = "turn it round (tac), or export it with the oldest line first"
        return DsprofError("lists its newest line first", sheet.name, todo)
    pair = _two_first_ranks(sheet, grammar)
    if pair is not None:
        what = f"holds two jobs: rank 0 of {pair[0]} and rank 0 of {pair[1]} print the same steps"
        return DsprofError(what, sheet.name, "keep the lines of one of them")
    return None


def _two_first_ranks(sheet: Sheet, grammar: Grammar) -> tuple[str, str] | None:
    """Two hosts on which a rank 0 tells the same steps, by turns and at other times; one job has
    one rank 0.

    From one job to the other the step goes back, and on from that to the first one. A job with two
    prefixes for one host goes on at each turn, and one that restarts on another host goes back.
    """
    told = {name: sheet.columns[name] for name in ("pattern", "step", "rank", "host", "at")}
    own = np.array([pattern.place == "own" for pattern in grammar.patterns])[told["pattern"]]
    first = own & (told["rank"] == 0) & (told["host"] >= 0)
    first &= (told["step"] > 0) & (told["at"] != UNKNOWN)
    for pattern in np.unique(told["pattern"][first]):
        places = np.flatnonzero(first & (told["pattern"] == pattern))
        each = [places[alike] for alike in groups_of(told["host"][places])]
        for pair in combinations(each, 2):
            one, other = pair
            if one[-1] < other[0] or other[-1] < one[0]:
                continue  # no turns
            both = np.sort(np.concatenate(pair))
            forward = np.diff(told["step"][both])[np.diff(told["host"][both]) != 0] > 0
            times = [dict(zip(told["step"][own], told["at"][own], strict=True)) for own in pair]
            apart = sum(times[0][n] != times[1][n] for n in times[0].keys() & times[1].keys())
            by_turns = min(forward.sum(), (~forward).sum()) >= _EACH_WAY * len(forward)
            if len(forward) >= _TURNS and by_turns and apart >= _SHARED:
                names = sheet.records.senders.hosts.values
                return names[told["host"][one[0]]], names[told["host"][other[0]]]
    return None
