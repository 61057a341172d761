"""Phases of recordings: spans of one step summed by path, collectives where they blocked.

A recording says by itself how phases nest and what class each has: `raw` is the path
("backward/all_reduce"), `text` the class. The time that a phase was blocked in a collective
is a phase inside it, so that communication hidden in a backward counts as communication.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.recording.table import FLAVOUR
from dsprof.run.steps.classes import P2P
from dsprof.run.steps.phases import COLUMNS, first_present, of_finished_steps
from dsprof.run.steps.words import holder_of, own_name
from dsprof.run.table import (
    Codes,
    Numbers,
    among,
    categories,
    keys,
    known_rank,
    numbers,
    positions,
    whole,
)

_RUN: Final = ("segment", "engine")
_STEP: Final = ("segment", "engine", "step", "rank")
_PROCESS: Final = ("segment", "rank")


def recorded(events: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are phases of recordings."""
    return (events["timers"] == FLAVOUR).astype(bool)


def phases(events: pd.DataFrame) -> pd.DataFrame:
    """One row per path, step and rank; the columns of `dsprof.run.steps.phases`.

    Where the exposed time of some collectives is unknown, none is taken out: the phases
    that hold them become `other`, being compute and communication unseparated.
    """
    rows = of_finished_steps(_rows(events), events, {}, all_told=True)
    spans = rows["kind"] == Kind.PHASE
    blind = _blind(rows[~spans])
    paths = [str(path) for path in rows["raw"].cat.categories]
    holding = {path for raw in blind["raw"].unique() for path in above(str(raw))}
    rows = rows[spans | ~_among(rows, blind)]
    word = whole(rows["raw"])
    timer = keys(known_rank(rows), *_STEP) * max(len(paths), 1) + word
    timer, first, group = np.unique(timer, return_index=True, return_inverse=True)
    found = rows.take(first).reset_index(drop=True)
    found["seconds"] = np.bincount(group, _seconds(rows), len(timer))
    found["count"] = np.bincount(group, numbers(rows["count"]), len(timer))
    met = set(word.tolist())  # categories are all names of a recording
    around = [above(path) if i in met else () for i, path in enumerate(paths)]
    place = first_present(timer, word[first], around, {p: i for i, p in enumerate(paths)})
    return _nest(_named(found, holding), place)


def _rows(events: pd.DataFrame) -> pd.DataFrame:
    """Spans, and the collectives of recordings; those outside of any phase are their own."""
    spans = recorded(events)
    calls = (events["kind"] == Kind.COMM) & events["pattern"].isna() if spans.any() else spans
    rows = _on_device(events[(spans | calls) & events["step"].notna()], events)
    outside = rows["raw"].isna()
    if not outside.any():
        return rows
    return rows.assign(raw=rows["raw"].astype("str").mask(outside, rows["name"]).astype("category"))


def _on_device(rows: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Of processes on a GPU the device's time counts, and what has none is unknown.

    What the host took to put work on the stream says nothing of the work.
    """
    told = events[(events["kind"] == Kind.CONFIG) & (events["name"] == "phases_on")]
    whose = known_rank(told[told["text"] == "gpu"])[list(_PROCESS)]
    if whose.empty:
        return rows
    whose = whose.drop_duplicates().sort_values(list(_PROCESS))
    device = positions(whose, known_rank(rows), *_PROCESS) >= 0
    measured, counted = rows["value"].notna(), rows["count"].notna()  # not: what a step kept
    mine = device & measured & (rows["kind"] == Kind.PHASE)
    rows = rows.assign(seconds=rows["seconds"].mask(mine, rows["value"]))
    return rows[~device | measured | ~counted]


def _blind(calls: pd.DataFrame) -> pd.DataFrame:
    """Collectives whose exposed time nobody measured."""
    return calls[calls["value"].isna()]


def _among(rows: pd.DataFrame, others: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are of a run (segment and engine) that `others` are of."""
    runs = others[list(_RUN)].drop_duplicates().sort_values(list(_RUN))
    return pd.Series(positions(runs, rows, *_RUN) >= 0, rows.index)


def above(path: str) -> tuple[str, ...]:
    """The phases that a path lies in, nearest first."""
    parts = path.split("/")
    return tuple("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))


def _seconds(rows: pd.DataFrame) -> Numbers:
    """A span's own length; of a collective, what it blocked."""
    spans = (rows["kind"] == Kind.PHASE).to_numpy()
    return np.where(spans, numbers(rows["seconds"]), numbers(rows["value"]))


def _named(found: pd.DataFrame, holding: set[str]) -> pd.DataFrame:
    """Add `class`; a collective is named after what it blocked as well."""
    calls = among(found["kind"], [Kind.COMM])
    paths, names = found["raw"].cat.categories, [str(name) for name in found["name"].cat.categories]
    told, texts = pd.factorize(found["text"])
    held = among(found["raw"], holding) & (found["text"] == Class.COMPUTE).to_numpy()
    classes = [*map(str, texts), str(Class.OTHER), str(Class.WAIT), str(Class.COMMUNICATION)]
    other, wait, moved = range(len(texts), len(classes))
    inside = whole(found["raw"]) + len(names)
    found["mixed"] = held & ~calls
    found["class"] = categories(
        np.where(
            calls,
            np.where(among(found["name"], P2P), wait, moved),
            np.where(held, other, told),
        ),
        classes,
    )
    found["name"] = categories(
        np.where(calls, inside, whole(found["name"])),
        [*names, *(inside_of(str(path)) for path in paths)],
    )
    return found


def inside_of(path: str) -> str:
    """`all_reduce_in_backward` of `step/backward/all_reduce`."""
    holder = holder_of(path)
    return f"{own_name(path)}_in_{own_name(holder)}" if holder else path


def _nest(found: pd.DataFrame, place: Codes) -> pd.DataFrame:
    """Add `parent` and `self_seconds`; `place` is the row of each row's parent, or -1."""
    inside = place >= 0
    seconds = found["seconds"].to_numpy()
    explained = np.bincount(place[inside], seconds[inside], minlength=len(found))
    names = found["name"].cat
    found = found.assign(
        parent=categories(np.where(inside, names.codes.to_numpy()[place], -1), [*names.categories]),
        self_seconds=np.clip(seconds - explained, 0.0, None),
    )
    return found[list(COLUMNS)]


def joined(found: pd.DataFrame, logged: pd.DataFrame) -> pd.DataFrame:
    """`found`, and of `logged` what is of other runs: of no (segment, engine) of `found`."""
    if not len(logged):
        return found
    rest = logged[~_among(logged, found)]
    if not len(rest):
        return found
    rows = pd.concat([found, rest], ignore_index=True)
    for column in ("name", "parent", "class"):
        rows[column] = rows[column].astype("category")
    return rows
