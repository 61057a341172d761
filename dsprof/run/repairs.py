"""Known defects of the sources: corrected where they can be, doubted where they cannot.

Each is a pure function in `dsprof.run.defects`. A repair changes numbers and says so; a doubt
leaves them and says why they are not to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from dsprof.grammar import TimerFlavour
from dsprof.run.steps.zero import Mixture, Zero
from dsprof.run.versions import Versions

COLUMNS: Final = ("name", "kind", "text", "rows", "source", "line", "lines")


PLACES: Final = 5  #: lines that show a defect, of as many as there are


@dataclass(frozen=True)
class Repair:
    """One defect that was met."""

    name: str
    kind: Literal["repair", "doubt"]
    text: str  # what is wrong, why, and what was done
    rows: int  # events concerned
    places: tuple[tuple[str, int], ...] = ()  # source and line of the first ones


@dataclass(frozen=True)
class Source:
    """What a defect may depend on, besides the events."""

    version: Versions
    flavours: Mapping[str, TimerFlavour]
    config: Mapping[str, Any]
    zero: Zero
    mixture: Mixture | None
    from_zero: Collection[str] = ()  # patterns whose steps count from 0
    windows: Mapping[str, int] = field(default_factory=dict)  # of such patterns, in steps
    numbered: bool = True  # a step's number is the job's own, not a count of what was printed


Outcome = tuple[pd.DataFrame, Repair | None]
Defect = Callable[[pd.DataFrame, Source], Outcome]


def met(
    name: str, kind: Literal["repair", "doubt"], text: str, rows: pd.DataFrame
) -> Repair | None:
    """A repair of `rows`; None if there are none."""
    if not len(rows):
        return None
    known = np.flatnonzero(rows["source"].notna().to_numpy() & rows["line"].notna().to_numpy())
    for many in (1000, len(known)):  # five are found soon
        lines = (rows[name].iloc[known[:many]] for name in ("source", "line"))
        found = dict.fromkeys(zip(*lines, strict=True))
        if len(found) >= PLACES:
            break
    places = tuple((str(source), int(line)) for source, line in islice(found, PLACES))
    return Repair(name, kind, text, len(rows), places)


def repair(
    events: pd.DataFrame, source: Source, defects: Sequence[Defect]
) -> tuple[pd.DataFrame, list[Repair]]:
    """The events with `defects` corrected, and those that were met."""
    found = []
    for defect in defects:
        events, one = defect(events, source)
        if one is not None:
            found.append(one)
    return events, found


def table_of(repairs: Sequence[Repair]) -> pd.DataFrame:
    """One row per defect met: `name kind text rows source line lines`; `lines` is a sentence."""
    rows = []
    for one in repairs:
        source, line = one.places[0] if one.places else (None, None)
        lines = ", ".join(str(number) for _, number in one.places)
        more = f"{lines} and more" if one.rows > len(one.places) else lines
        rows.append((one.name, one.kind, one.text, one.rows, source, line, more))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype(
        {"name": "str", "kind": "str", "text": "str", "rows": "int64", "source": "str",
         "line": "Int64", "lines": "str"}
    )  # fmt: skip
