"""Lines that tell of one turn of many, and beside it of the mean of all since the epoch began."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import among, where

Numbers = npt.NDArray[np.float64]

_MEANS: Final = {"step_seconds": "epoch_step_seconds", "data_time": "epoch_data_seconds"}
_PRINTER: Final = ["source", "segment", "engine", "rank", "epoch"]
_ROUNDED: Final = 0.0005  #: seconds, of a mean with three decimals
_SO_FAR: Final = 0.0015  #: seconds, of a mean of numbers that are rounded themselves
_LINES: Final = 4  #: of fewer, the two means may be alike by chance
_EXACT: Final = 0.02  #: of what the turns of a stretch took together
_SUMMED: Final = 1.5  #: times as long as the first turn, which is none of the shorter ones
_ALIKE: Final = 0.03  #: of a turn, by which those that are printed may differ from the mean of all


def single_turns(events: pd.DataFrame, source: Source) -> Outcome:  # noqa: ARG001  # a Defect
    """A loader whose workers are too slow lets every so many turns wait, and a loop that prints
    every so many may never print one of them. From the means since the epoch began follows what
    the turns between two lines took, as far as their decimals allow; these stand closer together
    at first than later.

    A loop may tell its meter of the time only where it prints: of all turns since the line before,
    if later times are longer than that of the first turn.
    """
    told = where(events, among(events["name"], ["epoch_turn"]) & events["step"].notna())
    if told.empty:
        return events, None
    lines = _lines(events, told)
    lines["between"] = lines.groupby(_PRINTER, observed=True, dropna=False)["turn"].transform(
        lambda turn: np.diff(turn, prepend=0)
    )
    seconds, steps, rate = (events[name].copy() for name in ("seconds", "steps", "value"))
    if _are_alike(lines):
        return events, None
    rows = where(events, events["record"].isin(lines["record"]) & events["step"].notna())
    place = ["source", "record"]
    mine = rows[place].merge(lines.drop(columns=_PRINTER[1:]), how="left", on=place)
    mine.index = rows.index
    known = mine["step_seconds"].notna()
    for name in _MEANS:
        own = known & among(rows["name"], [name]) & mine[name].notna()
        seconds.loc[own.index[own]] = mine[name][own]
    own = known & among(rows["name"], ["samples_per_second"])
    rate.loc[own.index[own]] = (rows["value"] * mine["alone"] / mine["step_seconds"])[own]
    steps.loc[known.index[known]] = mine["between"][known].astype("int64")
    text = _OF_LINES if lines["by_line"].all() else _OF_TURNS
    fixed = events.assign(seconds=seconds, steps=steps, value=rate)
    timed = rows[known & among(rows["name"], ["step_seconds"])]
    return fixed, met("single-turns", "repair", text, timed)


_OF_TURNS: Final = (
    "a line tells how long its own turn took, which need not be like those between two lines: "
    "what these took in the mean was worked out from the means since the epoch began"
)
_OF_LINES: Final = (
    "by its means, this loop takes the time only where it prints: that of all turns since the line "
    "before, by whose number it was divided"
)


def _lines(events: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """A row per line: its place in its epoch, and what turns up to it took in the mean, NaN where
    that does not follow."""
    lines = told[["source", "segment", "engine", "rank", "record", "line"]].copy()
    lines["turn"] = told["value"].to_numpy() + 1  # turns count from 0
    place = ["source", "record"]
    said = events[events["record"].isin(told["record"])]
    for name in ("epoch", *_MEANS.values(), *_MEANS):
        column = "value" if name == "epoch" else "seconds"
        one = said.loc[among(said["name"], [name]), [*place, column]]
        lines = lines.merge(one.rename(columns={column: name}), how="left", on=place)
    lines = lines.rename(columns={"step_seconds": "alone", "data_time": "waited"})
    lines = lines.sort_values(["source", "line"])
    lines[list(_MEANS)] = np.nan
    lines["by_line"] = False
    for _, part in lines.groupby(_PRINTER, observed=True, dropna=False):
        turn = part["turn"].to_numpy(float) - _turns_before(part)
        means = part[list(_MEANS.values())].to_numpy(float)
        lines.loc[part.index, "turn"] = turn
        if _is_by_line(part):
            lines.loc[part.index, "by_line"] = True
            lines.loc[part.index, list(_MEANS)] = _of_all_turns(part, turn)
        elif not _are_of_more(turn, means[:, 0], part["alone"].to_numpy(float)):
            own = part[["alone", "waited"]].to_numpy(float)
            lines.loc[part.index, list(_MEANS)] = _since_the_line_before(turn, means, own)
    return lines


def _turns_before(part: pd.DataFrame) -> float:
    """Turns of an epoch before its means begin: a job may be resumed inside of it. The first line's
    means are then the times of its own turn."""
    first = part.iloc[0]
    waits_alike = first["epoch_data_seconds"] == first["waited"] or pd.isna(first["waited"])
    begins = first["epoch_step_seconds"] == first["alone"] and waits_alike
    return float(first["turn"] - 1) if begins else 0.0


def _is_by_line(part: pd.DataFrame) -> bool:
    """Whether the mean time is that of the lines so far, and not that of all turns: the first line
    is unlike the others, so that only one of them fits.
    """
    told, mean = part["alone"].to_numpy(float), part["epoch_step_seconds"].to_numpy(float)
    if len(told) < _LINES or (np.diff(part["turn"]) <= 1).any():
        return False
    later, so_far = float(np.median(told[1:])), told.cumsum() / np.arange(1, len(told) + 1)
    unlike = max(told[0], later) > _SUMMED * min(told[0], later) + _LINES * _SO_FAR
    return bool(unlike and (np.abs(so_far - mean) <= _SO_FAR).all())


def _of_all_turns(part: pd.DataFrame, turn: Numbers) -> Numbers:
    """What a turn took in the mean since the line before, and waited, NaN where decimals are too
    few to tell."""
    told, mean = part["alone"].to_numpy(float), part["epoch_data_seconds"].to_numpy(float)
    before = np.append(0.0, turn[:-1])
    between = turn - before
    summed = np.median(told[1:]) > _SUMMED * told[0]
    took = np.where(np.arange(len(told)) > 0, told / between, told) if summed else told
    waited = np.diff(turn * mean, prepend=0.0)
    exact = (waited >= 0) & (_ROUNDED * (turn + before) <= _EXACT * took * between)
    return np.stack([took, np.where(exact, waited / between, np.nan)], axis=1)


def _are_of_more(turn: Numbers, mean: Numbers, alone: Numbers) -> bool:
    """Whether the means hold more than this epoch, as those of a meter that is never reset: where
    a line stands one turn behind another, they tell that turn otherwise than the line itself."""
    before = np.append(0.0, turn[:-1])
    took = turn * mean - before * np.append(0.0, mean[:-1])
    rounded = _ROUNDED * (turn + before + 1)
    return bool(((turn - before == 1) & (np.abs(took - alone) > 2 * rounded)).any())


def _are_alike(lines: pd.DataFrame) -> bool:
    """Whether the turns that are printed took and waited, in the mean, as all turns did."""
    known = lines[lines["step_seconds"].notna()]
    share = known["between"] / known["between"].sum()
    took = (share * known["step_seconds"]).sum()
    beyond = [
        (share * (known[mean] - known[own])).sum()
        for mean, own in (("step_seconds", "alone"), ("data_time", "waited"))
    ]
    return known.empty or bool(np.abs(beyond).max() <= _ALIKE * took)


def _since_the_line_before(turn: Numbers, means: Numbers, own: Numbers) -> Numbers:
    """The mean of the turns of the stretch in which each line stands; the first column decides how
    long stretches are. A turn right behind one that is printed is what its line says, which has
    more decimals than the means of many. NaN where the numbers contradict each other or their
    decimals are too few.
    """
    found = np.full(means.shape, np.nan)
    begin, stretches = 0, [(0, np.zeros(means.shape[1]), 0.0)]  # first line, sums and turns before
    if (np.diff(turn, prepend=0) <= 0).any():
        return found
    for at, now in enumerate(turn):
        _, sums, before = stretches[-1]
        if begin == at and now - before == 1:
            found[at] = own[at]
            begin = at + 1
            stretches.append((begin, now * means[at], now))
            continue
        took = now * means[at] - sums
        if not took[0] > 0:
            return np.full(means.shape, np.nan)
        exact = _ROUNDED * (now + before) <= _EXACT * took[0]
        if exact:
            found[begin : at + 1] = np.maximum(took, 0) / (now - before)
            begin = at + 1
            stretches.append((begin, now * means[at], now))
    if begin < len(turn) and len(stretches) > 1:  # the rest, with the stretch before it
        first, sums, before = stretches[-2]
        rest = (turn[-1] * means[-1] - sums) / (turn[-1] - before)
        found[first:] = np.maximum(rest, 0)
    return found
