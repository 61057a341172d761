"""From where ranks had called the collective that timed out, as PyTorch's flight recorder says:
each rank whose recorder is on prints the stack of its call.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind
from dsprof.findings.facts import Facts
from dsprof.quotes import quoted
from dsprof.run.table import among, where
from dsprof.units import format_ranks

_PLACES: Final = 3  #: that are told


def callers(facts: Facts, waited: pd.DataFrame) -> dict[str, list[int]]:
    """Places in the code and the ranks that called from there, the place of most ranks first.

    Args:
        facts: of the run.
        waited: the problems of the launch that hung.
    """
    told = facts.run.told
    stacks = where(told, (told["kind"] == Kind.METRIC) & among(told["name"], ["called_from"]))
    stacks = stacks[stacks["segment"].isin(waited["segment"].unique())]
    places: dict[str, list[int]] = {}
    for place, rows in stacks.groupby(stacks["text"].astype("str")):
        places[str(place)] = sorted({int(rank) for rank in rows["rank"].dropna()})
    return dict(sorted(places.items(), key=lambda one: -len(one[1])))


def said_of_callers(places: dict[str, list[int]]) -> str:
    """A sentence behind a blank; "" of no place."""
    if not places:
        return ""
    said = [
        f"{format_ranks(ranks) if ranks else 'a rank'} in {quoted(place, 160)}"
        for place, ranks in list(places.items())[:_PLACES]
    ]
    left = len(places) - len(said)
    return f" The call was made by {'; by '.join(said)}{f'; {left:,} places more' * (left > 0)}."
