"""The rank that others wait for in some of the steps, if that is why these are longer."""

from __future__ import annotations

import pandas as pd

from dsprof.analysis.breakdown import main_phases
from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.ranks import Straggler, straggler
from dsprof.analysis.rest import untimed_by_step
from dsprof.findings.facts import Facts
from dsprof.findings.ranks.late_replica import in_stages
from dsprof.findings.thresholds import SPIKES_ABOVE_CHANCE, STRAGGLER_HELD, WAITING_EXPLAINS
from dsprof.units import format_seconds, format_share


def late_in(facts: Facts, steps: pd.DataFrame, longer: float) -> Straggler | None:
    """Who usually comes last in `steps`, by most of the `longer` seconds that they take; of a
    pipeline, in the stage where that is latest.

    In so few steps that chance cannot be excluded, they must come last in all of them: what is said
    is then true of these steps.
    """
    phases = main_phases(steps, facts.run.phases)
    phases = phases[phases["rank"].notna()]
    rest = untimed_by_step(phases, steps) if facts.run.is_recording else None
    if facts.is_pipeline:
        found = [*in_stages(facts, phases, rest).values()]
    else:
        late = straggler(apart_from_saves(phases), rest)
        found = [late] if late else []
    named = [one for one in found if one.delay >= WAITING_EXPLAINS * longer and _is_usual(one)]
    return max(named, key=lambda one: one.delay, default=None)


def _is_usual(late: Straggler) -> bool:
    usual = late.held >= STRAGGLER_HELD and late.above_chance >= SPIKES_ABOVE_CHANCE
    return usual or late.held == 1


def is_late(late: Straggler | None, steps: int) -> str:
    """The end of a title."""
    if late is None:
        return ""
    are = "is" if len(late.group) == 1 else "are"
    return f": {late.who} {are} late in {'it' if steps == 1 else 'them'}"


def waited(facts: Facts, late: Straggler, steps: str) -> str:
    """Which rank comes last in how many of `steps`, and by how much, which is a mean over all of
    them."""
    of = f"the {late.ranks} of its stage" if facts.is_pipeline else f"{late.ranks}"
    often = "all" if late.held == 1 else format_share(late.held)
    of_them = f"In {often} of {steps}" if late.steps > 1 else "In it"
    last = f"{late.who} is the last of {of}: it comes"
    if len(late.group) > 1:
        last = f"{late.who} are the last of {of}: they come"
    mean = f" in the mean of these {late.steps:,} steps" if late.steps > 1 else ""
    return (
        f" {of_them} {last} {format_seconds(late.delay)} after the median rank{mean}, most of that "
        f"{late.place}."
    )
