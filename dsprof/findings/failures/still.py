"""A job that is there, and of which no step has ended for long: in the first minute nobody knows
whether it hangs, but what it stands in is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts, once
from dsprof.findings.failures.absent import look_at_rank
from dsprof.findings.failures.ends import first_failure
from dsprof.findings.failures.stood import proofs, said_of_all, stood
from dsprof.findings.finding import Advice, Finding
from dsprof.recording.alive import is_silent
from dsprof.run.ends.exits import as_seen, by_one_clock, have_one_clock
from dsprof.run.ends.missed import IDLE, awaited
from dsprof.run.table import among, where
from dsprof.units import format_ranks, format_seconds

_LOOK: Final = Advice(
    "dsprof report", "", "once more in a minute", "if nothing has moved, it says who hangs"
)
_LOOKS: Final = 2  # of so many ranks, how to look at them is told
_OPEN: Final = (
    "An evaluation, a save, a compilation, a long step or the end of training may take that long: "
    "whether it hangs is not known yet."
)
_STOPPED: Final = "All of its processes are stopped, by a signal (SIGSTOP) or in a debugger."


@dataclass(frozen=True, slots=True)
class Stillness:
    """How long no step has ended.

    Attributes:
        seconds: since the last one did, when this was read.
        usual: what a step takes.
        last: the row of that step.
    """

    seconds: float
    usual: float
    last: pd.Series[Any]

    @property
    def said(self) -> str:
        return (
            f"No step has ended for {format_seconds(self.seconds)}, where one usually takes "
            f"{format_seconds(self.usual)}"
        )


@once
def stillness(facts: Facts) -> Stillness | None:
    """Of a job that is seen to be there and failed in nothing; None if its steps go on, or if it is
    watched, by what has a clock of its own.
    """
    launch = _launch(facts)
    there = [one for one in launch if one.get("alive_at")]
    if not there or facts.run.is_watched or first_failure(facts.run) is not None:
        return None
    told = facts.run.told
    mine = among(told["source"], [one["source"] for one in there])
    ends = where(told, among(told["name"], ["step_seconds"]) & mine & told["at"].notna().to_numpy())
    if ends.empty:
        return None
    last = ends.sort_values("at").iloc[-1]
    steps = facts.run.steps
    usual = float(steps["seconds"][steps["segment"] == last["segment"]].median())
    now = max(int(one["alive_at"]) for one in there)
    seconds = (now - last["at"].value) * 1e-9
    if pd.isna(usual):
        return None
    return Stillness(seconds, usual, last) if is_silent(seconds, usual) else None


def standing_still(facts: Facts) -> list[Finding]:
    """A warning where ranks wait for others for longer than a step may take; else a note."""
    still = stillness(facts)
    if still is None:
        return []
    launch, clocks = _launch(facts), facts.run.meta.get("clocks")
    launch, told = by_one_clock(list(map(as_seen, launch)), facts.run.told, clocks)
    every = stood(facts, int(still.last["segment"]))
    late = awaited(launch, told) if have_one_clock(launch, clocks) else []
    places = said_of_all(every)
    sources = {one["source"] for one in late}
    looked_at = [one for one in every if one.source in sources and one.rank is not None]
    ranks = tuple(sorted(int(one["rank"]) for one in late if one["rank"] is not None))
    return [
        Finding(
            rule="standing-still",
            severity=Severity.WARNING if late else Severity.INFO,
            title=still.said + f": {places}" * bool(places),
            summary=" ".join([*_ended(launch), _judged(launch, late, ranks)]),
            ranks=ranks if len(late) < len(launch) else (),
            steps=(int(still.last["step"]),) * 2,
            evidence=(
                row_evidence(still.last, f"step {int(still.last['step']):,} ended"),
                *proofs(every),
            ),
            advice=(*(look_at_rank(one) for one in looked_at[:_LOOKS]), _LOOK),
            confidence="medium",
        )
    ]


def _launch(facts: Facts) -> list[Mapping[str, Any]]:
    """The recorded processes of the last launch."""
    every = facts.run.meta.get("recordings") or ()
    last = max((one["segment"] for one in every), default=0)
    return [one for one in every if one["segment"] == last]


def _ended(launch: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who has ended meanwhile, and whether all others are stopped."""
    over = [int(one["rank"]) for one in launch if one["ended"] and one["rank"] is not None]
    said = [f"The recording of {format_ranks(over)} has ended."] if over else []
    stopped = all(one.get("stopped") for one in launch if not one["ended"])
    return [*said, _STOPPED] if stopped else said


def _judged(
    launch: Sequence[Mapping[str, Any]], late: Sequence[Mapping[str, Any]], ranks: Sequence[int]
) -> str:
    if not late:
        return _OPEN
    who = f"The others wait for {format_ranks(ranks)}" if ranks else "Others wait"
    if len(late) == sum(not one["ended"] for one in launch):
        who = "Each waits in a collective, and not all in the same one"
    return (
        f"{who}, longer than any step took. Medium confidence: it counts as a hang after "
        f"{format_seconds(IDLE)} without a sign of them."
    )
