"""The rank that others wait for in some of the steps, if that is why these are longer."""

from __future__ import annotations

import pandas as pd

from dsprof.analysis.breakdown import main_phases
from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.ranks import Straggler, straggler
from dsprof.analysis.rest import untimed_by_step
from dsprof.findings.facts import Facts
from dsprof.findings.thresholds import SPIKES_ABOVE_CHANCE, STRAGGLER_HELD, WAITING_EXPLAINS
from dsprof.units import format_seconds, format_share


def late_in(facts: Facts, steps: pd.DataFrame, longer: float) -> Straggler | None:
    """Who usually comes last in `steps`, by most of the `longer` seconds that they take.

    In so few steps that chance cannot be excluded, they must come last in all of them: what is said
    is then true of these steps.
    """
    if facts.is_pipeline:
        return None
    phases = main_phases(steps, facts.run.phases)
    phases = phases[phases["rank"].notna()]
    rest = untimed_by_step(phases, steps) if facts.run.is_recording else None
    late = straggler(apart_from_saves(phases), rest)
    if late is None or late.delay < WAITING_EXPLAINS * longer:
        return None
    usual = late.held >= STRAGGLER_HELD and late.above_chance >= SPIKES_ABOVE_CHANCE
    return late if usual or late.held == 1 else None


def is_late(late: Straggler | None, steps: int) -> str:
    """The end of a title."""
    if late is None:
        return ""
    are = "is" if len(late.group) == 1 else "are"
    return f": {late.who} {are} late in {'it' if steps == 1 else 'them'}"


def waited(late: Straggler, steps: str) -> str:
    """Which rank comes last in how many of `steps`, and by how much, which is a mean over all of
    them."""
    often = "all" if late.held == 1 else format_share(late.held)
    of_them = f"In {often} of {steps}" if late.steps > 1 else "In it"
    last = f"{late.who} is the last of {late.ranks}: it comes"
    if len(late.group) > 1:
        last = f"{late.who} are the last of {late.ranks}: they come"
    mean = f" in the mean of these {late.steps:,} steps" if late.steps > 1 else ""
    return (
        f" {of_them} {last} {format_seconds(late.delay)} after the median rank{mean}, most of that "
        f"{late.place}."
    )
