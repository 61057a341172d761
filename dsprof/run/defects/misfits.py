"""What only the views of a run show of its sources: sums that do not fit, pauses, lone timers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pandas as pd

from dsprof.events import Kind
from dsprof.grammar import TimerFlavour
from dsprof.run.repairs import Repair, met
from dsprof.run.steps.phases import phases
from dsprof.run.table import among, where
from dsprof.units import format_seconds

#: Megatron's `(min, max) time across ranks`: the maximum is the timer.
MAXIMA: Final = "megatron.timers_minmax"

#: Timers of a micro-batch that are named, longest first.
NAMED: Final = 3


def phases_exceed_step(events: pd.DataFrame, steps: pd.DataFrame, timed: int) -> Repair | None:
    """`steps`: those of the `timed` ones whose timers and logged calls sum to clearly more than
    the step.

    Maxima over the ranks, as Megatron prints them, may do so and be right.
    """
    if among(events["pattern"], [MAXIMA]).any():
        text = (
            "timers of these steps are the longest of any rank, each of whichever rank was slowest "
            "there, and sum to more than the step: they are not parts of one rank's step, and the "
            "seconds per class, scaled down to it, are no rank's"
        )
        return met("maxima-exceed-step", "doubt", text, steps)
    which = "these steps" if len(steps) == timed else f"{len(steps):,} of {timed:,} steps"
    text = (
        f"the timers and logged calls of {which} sum to more than the step: the two do not measure "
        "the same, or one is wrong, and the seconds per class were scaled down to the step"
    )
    return met("phases-exceed-step", "doubt", text, steps)


def timers_contradict(found: pd.DataFrame) -> Repair | None:
    """`found`: as `dsprof.run.steps.phases.contradictions` gives them."""
    if not len(found):
        return None
    named = (found["raw"].astype("str") + " is shorter than " + found["inside"]).unique()
    text = (
        f"timers contradict each other: {'; '.join(named[:3])} inside it, and where the time of "
        "these steps went is unknown"
    )
    return met("timers-contradict", "doubt", text, found)


def long_pauses(steps: pd.DataFrame) -> Repair | None:
    """`steps`: those behind a pause, with how long it `lasted`."""
    if steps.empty:
        return None
    longest = format_seconds(float(steps["lasted"].max()))
    text = (
        f"between these steps and the ones before them {longest}"
        f"{' at most' * (len(steps) > 1)} passed by the clock beyond what such steps take: a pause "
        "(suspended, waiting, a long evaluation or save), a restart that no line shows or a clock "
        "that was set forward, which time stamps do not tell apart; left out of step times"
    )
    return met("pause", "repair", text, steps)


class MicroBatch(NamedTuple):
    """What the mean micro-batch of a source takes whose timers are of nothing else."""

    seconds: float
    of: int  # how many there are
    parts: pd.Series[float]  # seconds of its longest phases, by name, longest first
    rows: pd.DataFrame  # events

    @property
    def longest(self) -> str:
        return f"{self.parts.index[0]} {format_seconds(self.parts.iloc[0])}"


def micro_batch(
    events: pd.DataFrame, found: pd.DataFrame, flavours: Mapping[str, TimerFlavour]
) -> MicroBatch | None:
    """`found`: the phases of `events`; if there are any, timers tell of steps."""
    micro = [name for name, flavour in flavours.items() if flavour.sums == "micro"]
    timed = among(events["kind"], [Kind.PHASE]) & among(events["timers"], micro)
    rows = where(events, timed & events["seconds"].notna())
    if len(found) or not len(rows):
        return None
    each = phases(rows.assign(step=rows["record"] + 1, steps=1), flavours, accumulation=1)
    parts = each.groupby("name", observed=True)["self_seconds"].mean().nlargest(NAMED)
    total = each.groupby("step")["self_seconds"].sum()
    return MicroBatch(float(total.mean()), len(total), parts, rows)


def micro_batches_alone(
    events: pd.DataFrame, found: pd.DataFrame, flavours: Mapping[str, TimerFlavour]
) -> Repair | None:
    """What such a micro-batch takes."""
    mean = micro_batch(events, found, flavours)
    if mean is None:
        return None
    said = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in mean.parts.items())
    text = (
        "these timers are of single micro-batches, and no line shows where a step ends: nothing "
        f"can be said about steps. One takes {format_seconds(mean.seconds)} (mean of {mean.of:,}), "
        f"most of it {said}"
    )
    return met("micro-batches-alone", "doubt", text, mean.rows)
