"""How many steps the timers of a lone print sum over.

A pipeline's engine prints its timers once in `steps_per_print` steps, as sums. The distance
between two prints tells how many; of one print alone it has to follow from something else.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.steps.phases import phases
from dsprof.run.table import STEP, among, numbers, of_kind, positions, where
from dsprof.units import format_seconds

ROUNDING: Final = 0.02  #: of a window that is computed from printed numbers
TOLERATED: Final = 1.05  #: of a step, which its timers may take by rounding

#: Lines that the engine prints when it is made.
_BORN: Final = ("deepspeed.config", "deepspeed_pipeline.stage", "deepspeed_pipeline.micro_batches")


def lone_print(events: pd.DataFrame, source: Source) -> Outcome:
    """Timers that sum over a window of unknown length: inferred, or left out.

    A window divides the step it is printed at, since prints come at multiples of it.
    """
    sums = [name for name, flavour in source.flavours.items() if flavour.sums == "window"]
    timed = among(events["kind"], [Kind.PHASE]) & among(events["timers"], sums)
    lone = timed & (events["steps"].isna() & events["step"].notna() & events["seconds"].notna())
    rows = where(events, lone)
    if not len(rows):
        return events, None
    table = _prints(events, rows, source)
    windows = numbers(table["window"])[positions(table, rows, *STEP)]
    if np.isnan(windows).any():
        total = float(table.loc[table["window"].isna(), "total"].sum())
        text = (
            f"timers that sum to {format_seconds(total)} over an unknown number of steps (one "
            "print, and steps_per_print is not in the log) say nothing about a single step: left "
            "out"
        )
        gone = rows[np.isnan(windows)]
        events = events.assign(seconds=events["seconds"].mask(events.index.isin(gone.index)))
        return _stand_for(events, rows, windows), met("window-unknown", "doubt", text, gone)
    found = ", ".join(f"{steps:,.0f}" for steps in np.unique(windows))
    text = (
        f"the timers of the only print sum over {found} steps, as "
        f"{' and '.join(table['how'].unique())} shows"
    )
    return _stand_for(events, rows, windows), met("window-inferred", "repair", text, rows)


def _stand_for(events: pd.DataFrame, rows: pd.DataFrame, windows: np.ndarray) -> pd.DataFrame:
    known = ~np.isnan(windows)
    steps = events["steps"].copy()
    steps.loc[rows.index[known]] = windows[known].astype(np.int64)
    return events.assign(steps=steps)


def _prints(events: pd.DataFrame, rows: pd.DataFrame, source: Source) -> pd.DataFrame:
    """One row per print: its `total` (seconds its timers cover), `window` (NaN: unknown), `how`."""
    table = rows[[*STEP, "line"]].sort_values(list(STEP)).drop_duplicates(list(STEP))
    table = table.reset_index(drop=True)
    near = where(events, positions(table, events, *STEP) >= 0)
    covered = phases(near.assign(steps=1), source.flavours)
    place = positions(table, covered, *STEP)
    table["total"] = np.bincount(place, numbers(covered["self_seconds"]), len(table))
    marks = of_kind(near, Kind.METRIC, "step_seconds", "communication_percent")
    table["seconds"] = _told(table, marks, "step_seconds", "seconds")
    table["percent"] = _told(table, marks, "communication_percent", "value")
    comms = rows[rows["name"] == "comms"]
    table["comms"] = _told(table, comms, "comms", "seconds")
    alone = table.groupby(["segment", "engine"])["step"].transform("size") == 1
    made = of_kind(events, Kind.CONFIG)
    born = made[made["pattern"].isin(_BORN)].groupby("segment")["line"].min()
    table["born"] = table["segment"].map(born).lt(table["line"]).fillna(False) & alone
    told = source.config.get("steps_per_print")
    windows = [_window(row, told, count=source.numbered) for _, row in table.iterrows()]
    return table.assign(
        window=[float(window or np.nan) for window, _ in windows], how=[how for _, how in windows]
    )


def _told(table: pd.DataFrame, rows: pd.DataFrame, name: str, column: str) -> np.ndarray:
    """The first thing that a line of each print says under a name."""
    mine = rows[(rows["name"] == name) & rows[column].notna()].drop_duplicates(list(STEP))
    found = np.full(len(table), np.nan)
    found[positions(table, mine, *STEP)] = numbers(mine[column])
    return found


def _window(row: pd.Series, told: object, *, count: bool) -> tuple[int | None, str]:
    """The window and what shows it; None if nothing does.

    Args:
        told: the job's steps_per_print, if known.
        count: the step is a number of the job's own, not one of printed lines.
    """
    step, seconds = int(row["step"]), float(row["seconds"])
    if isinstance(told, int) and told > 0 and (step % told == 0 or not count):
        return told, "the configured steps_per_print"
    share = row["comms"] / (row["percent"] / 100 * seconds) if row["percent"] > 0 else np.nan
    if np.isfinite(share) and abs(share - round(share)) <= ROUNDING * share and round(share):
        return round(share), "%comms"
    if not count or not seconds > 0 or row["total"] > TOLERATED * step * seconds:
        return None, ""
    if row["born"]:
        return step, "the first print since the start"
    large = [n for n in _divisors(step) if row["total"] <= TOLERATED * n * seconds]
    return (large[0], "the time of one step") if len(large) == 1 else (None, "")


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
