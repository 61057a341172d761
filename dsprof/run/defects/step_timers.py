"""Timers of whole steps that were lost or overwritten before DeepSpeed printed them.

Where the lines of a step's micro-batches are there too, they prove it, and make up the step.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.recording.table import FLAVOUR
from dsprof.run.defects.wrong_units import pipeline_marks
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.steps.words import words_of
from dsprof.run.table import among, keys, known_rank, numbers, where

_OF_TIMERS: Final = (
    "segment", "engine", "step", "steps", "rank", "name", "timers", "seconds", "record", "source",
    "line",
)  # fmt: skip
_SUMS: Final = ("step", "window")
CLOCK: Final = 1e-4  #: seconds; what two timers of one interval may differ by
MOST: Final = 0.9  #: of the lines that could show a defect, before they prove it
ENOUGH: Final = 3  #: of these lines
AGREES: Final = 0.05  #: part by which the clock may differ from what would prove a defect


def zero_global_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """0.6.2 to 0.18.2 with a monitor read the timers before printing them: 0.00 in the line.

    The micro-batch lines stay right; with the zeros gone they make up the step.
    """
    if not (events["seconds"] == 0).any():
        return events, None
    rows = _timers_of_steps(events, source)
    zero = ~rows["micro"] & ~rows["mean"] & (rows["seconds"] == 0)
    if not zero.any():
        return events, None
    told = rows.loc[rows["micro"] & (rows["seconds"] > 0), "timer"].unique()
    wrong = rows[zero & rows["timer"].isin(told)]
    text = (
        "the step's timers read 0.00 although its micro-batches took time (a monitor read "
        "them first); they were rebuilt from the micro-batch lines"
    )
    return without_seconds(events, wrong), met("zero-global-timers", "repair", text, wrong)


def all_zero_timers(events: pd.DataFrame, source: Source) -> Outcome:
    """A timer line of nothing but zeros says nothing (Megatron's own, under DeepSpeed).

    Set-up timers may well round to zero, and so may waiting for data where nothing else is timed.
    """
    if not (events["seconds"] == 0).any():
        return events, None
    rows = _timer_lines(events)
    short = [
        name
        for name, flavour in source.flavours.items()
        if flavour.sums == "once" or {*flavour.tree.values()} == {Class.DATA}
    ]
    rows = rows[~rows["timers"].isin(short) & rows["seconds"].notna()]
    most = rows["seconds"].groupby(rows["record"]).transform("max")
    wrong = rows[most == 0]
    text = "timer lines that hold only zeros measure nothing and were dropped"
    return without_seconds(events, wrong), met("all-zero-timers", "repair", text, wrong)


def last_interval_only(events: pd.DataFrame, source: Source) -> Outcome:
    """0.4.0 to 0.5.6 overwrote timers instead of adding up.

    Where a step's micro-batches have lines too, they prove it, and make up the step. Elsewhere
    what such a timer lacks is unknown, and so is what lies outside of it: it is left out.
    """
    possible = source.version.maybe("0.4.0", "0.5.6")
    wrong = _last_of_several(events, source) if possible else events.iloc[:0]
    if len(wrong):
        text = (
            "the step's timers hold its last micro-batch only (as 0.4.0 to 0.5.6 print them); "
            "they were rebuilt from the micro-batch lines"
        )
        found = met("last-interval-only", "repair", text, wrong)
        return without_seconds(events, wrong), found
    if not (source.version.surely("0.4.0", "0.5.6") or len(_divided_times(events, source))):
        return events, None
    rows = _sums_without_parts(events, source)
    text = (
        "this version keeps only the last interval of a timer: its sums over micro-batches "
        "and steps are too small, by how much is unknown, and they were left out"
    )
    return without_seconds(events, rows), met("last-interval-only", "doubt", text, rows)


def _sums_without_parts(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timers that sum over several intervals, of steps whose micro-batches have no lines."""
    parts = {name for name, flavour in source.flavours.items() if flavour.sums == "micro"}
    sums = {
        name
        for name, flavour in source.flavours.items()
        if flavour.sums in _SUMS and set(flavour.tree.values()) != {Class.CHECKPOINT}
    }
    rows = known_rank(_timer_lines(events))
    rows = where(rows, (rows["seconds"].notna() & rows["step"].notna()).to_numpy(bool))
    span = keys(rows, "segment", "engine", "step", "rank")
    told = np.isin(span, span[among(rows["timers"], parts)])
    one = source.config.get("gradient_accumulation_steps") == 1
    single = one & (numbers(rows["steps"].fillna(1)) <= 1)
    return where(rows, among(rows["timers"], sums) & ~told & ~single)


def last_step_divided(events: pd.DataFrame, source: Source) -> Outcome:
    """0.4.0 to 0.5.6 divided the time of the last step alone by the steps since the last line.

    `iter time` is as many times too short, `samples/sec` too high.
    """
    times = _divided_times(events, source)
    if not len(times):
        return events, None
    rates = pipeline_marks(events, "samples_per_second")
    seconds = times["seconds"] * numbers(times["steps"])
    value = rates["value"] / numbers(rates["steps"])
    fixed = events.assign(
        seconds=events["seconds"].mask(events.index.isin(times.index), seconds),
        value=events["value"].mask(events.index.isin(rates.index), value),
    )
    text = (
        "iter time was that of the last step alone, divided by steps_per_print, and samples/sec "
        "as many times too high (as 0.4.0 to 0.5.6 print them): corrected"
    )
    return fixed, met("last-step-divided", "repair", text, times)


def _divided_times(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """The pipeline's `iter time` of several steps, if it is the last one's divided by them.

    The version tells, or the clock: by it, steps take just so many times as long.
    """
    times = pipeline_marks(events, "step_seconds")
    if not len(times) or not source.version.maybe("0.4.0", "0.5.6"):
        return times.iloc[:0]
    window = pd.Series(numbers(times["steps"]), times.index)
    if not source.version.surely("0.4.0", "0.5.6"):
        at = events["at"].groupby([events["source"], events["segment"]], observed=True).ffill()
        elapsed = at[times.index].diff().dt.total_seconds()
        passed = times["step"].diff().astype("float64")
        factor = (elapsed / (passed.where(passed > 0) * times["seconds"]) / window)[window > 1]
        agree = (factor.dropna() - 1).abs() <= AGREES
        if len(agree) < ENOUGH or agree.mean() <= MOST:
            return times.iloc[:0]
    return times[~(window <= 1)]


def _last_of_several(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timers of whole steps that equal the last of several micro-batches and not their sum."""
    micro = {name for name, flavour in source.flavours.items() if flavour.sums == "micro"}
    if not among(events["timers"], micro).any():
        return events.iloc[:0]
    rows = _timers_of_steps(events, source)
    rows = rows[rows["seconds"].notna()]
    batches = rows[rows["micro"]].groupby("timer")["seconds"].agg(["sum", "last", "size"])
    steps = rows[~rows["micro"]].join(batches[batches["size"] > 1], on="timer", how="inner")
    telling = steps[steps["sum"] > 1.2 * steps["last"] + CLOCK]
    last = (telling["seconds"] - telling["last"]).abs() <= 0.02 * telling["last"] + CLOCK
    return steps.loc[:, rows.columns] if len(telling) and last.mean() > MOST else steps.iloc[:0]


def _timers_of_steps(events: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Timer rows that belong to a step, with `micro`: of one micro-batch, `mean`: of a loop around
    the engine, and `timer`: equal for rows that tell of the same interval of a step and rank."""
    rows = _timer_lines(events)
    rows = rows[rows["step"].notna()]
    words, which = words_of(rows, source.flavours)
    names, _ = pd.factorize(np.array([word.name for word in words], dtype=object))
    span = keys(known_rank(rows), "segment", "engine", "step", "rank")
    sums = np.array([word.sums for word in words], dtype=object)[which]
    return rows.assign(
        micro=sums == "micro",
        mean=sums == "mean",
        timer=span * max(len(words), 1) + names[which],
    )


def _timer_lines(events: pd.DataFrame) -> pd.DataFrame:
    """Timers that a log printed; those of a recording have none of its defects."""
    return where(events[list(_OF_TIMERS)], are_timer_lines(events))


def are_timer_lines(events: pd.DataFrame) -> pd.Series[bool]:
    printed = events["timers"].notna() & ~among(events["timers"], [FLAVOUR])
    return printed & among(events["kind"], [Kind.PHASE])


def without_seconds(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return (
        events.assign(seconds=events["seconds"].mask(events.index.isin(rows.index)))
        if len(rows)
        else events
    )
