"""Ranks that make others wait where a log tells only the least and the greatest of their times.

Megatron prints both of each timer, of whichever ranks they are, as means over its log interval.
What lies between the two some rank waits, where it meets the others.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pandas as pd

from dsprof.events import Class, Severity
from dsprof.findings.advice import WHO_IS_LATE, record
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.thresholds import (
    COMMUNICATION_CRITICAL,
    COMMUNICATION_WARNING,
    DATA_CRITICAL,
    DATA_WARNING,
    EVIDENCE_STEPS,
    OPTIMIZER_CRITICAL,
    OPTIMIZER_WARNING,
    STRAGGLER_CRITICAL,
    STRAGGLER_WARNING,
    WAITING_EXPLAINS,
    grade,
)
from dsprof.run.defects.misfits import MAXIMA
from dsprof.run.steps.words import holder_of, own_name
from dsprof.run.table import STEP, among, where, within
from dsprof.units import format_seconds, format_share

#: What the metric of a timer's least time is called: the timer's name and this.
_LEAST: Final = "_min"
#: Where ranks wait for each other, and what one of them may do for all.
_NOT_OWN: Final = (Class.COMMUNICATION, Class.WAIT, Class.CHECKPOINT)

OTHER_WORK: Final = "the stages of a pipeline do different work: their ranks cannot be compared"


class Spread(NamedTuple):
    """How far the ranks lie apart in a timer, or in all of a class and then the widest one's name,
    in seconds per step; and the last line of that timer."""

    name: str
    least: float
    greatest: float
    last: pd.Series[Any]

    @property
    def seconds(self) -> float:
        return self.greatest - self.least

    @property
    def words(self) -> str:
        return f"{format_seconds(self.least)} to {format_seconds(self.greatest)}"

    @property
    def proof(self) -> Evidence:
        least, greatest = format_seconds(self.last["least"]), format_seconds(self.last["seconds"])
        return row_evidence(
            self.last,
            f"{self.name}, step {int(self.last['step']):,}: {least} on the fastest rank, "
            f"{greatest} on the slowest",
        )


class Spreads(NamedTuple):
    """The timer of their own work in which ranks lie furthest apart, the innermost one inside it
    with the like, and the one in which they meet; None where there is none. Lines are means of the
    steps between."""

    own: Spread
    inside: Spread | None
    meeting: Spread | None
    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first + 1


@once
def spreads(facts: Facts) -> Spreads | None:
    """None where no line tells least and greatest times of the average step's timers."""
    rows = _both(facts)
    if rows.empty:
        return None
    outer = rows[rows["parent"].isna() & ~rows["class"].isin(_NOT_OWN)]
    own = _own(outer)
    if own is None:
        return None
    return Spreads(
        own,
        _deepest(rows, own),
        _widest(rows[rows["class"] == Class.COMMUNICATION]),
        int(rows["step"].min()),
        int(rows["step"].max()),
    )


def _own(outer: pd.DataFrame) -> Spread | None:
    """The widest; not the optimizer's where ranks lie as far apart before it: who comes early waits
    there for what it reduces."""
    widest, before = _widest(outer), _widest(outer[outer["name"] != "optimizer"])
    if widest is None or before is None:
        return widest
    return before if before.seconds >= WAITING_EXPLAINS * widest.seconds else widest


def _deepest(rows: pd.DataFrame, own: Spread) -> Spread | None:
    """The innermost timer that differs as much: those around it only hold it."""
    deepest, parent = None, own.name
    while (inside := _widest(rows[rows["parent"].astype("object").eq(parent)])) is not None:
        if inside.seconds < WAITING_EXPLAINS * own.seconds:
            break
        deepest, parent = inside, inside.name
    return deepest


def _both(facts: Facts) -> pd.DataFrame:
    """Phases of these steps with `least`, that of the quickest rank: their own is the slowest's."""
    told = facts.run.told
    least = where(told, among(told["pattern"], [MAXIMA]) & among(told["kind"], ["metric"]))
    least = within(facts.steps, least, *STEP)
    if least.empty:
        return least
    phases = facts.phases.astype({"name": "str"})
    return phases.merge(_least(least), on=[*STEP, "name"])


def _least(rows: pd.DataFrame) -> pd.DataFrame:
    """Of metrics that tell the least time of a timer: its name, and that time."""
    least = pd.DataFrame(
        {
            **{key: rows[key] for key in STEP},
            "name": rows["name"].astype("str").str.removesuffix(_LEAST),
            "least": rows["seconds"],
        }
    )
    return least.drop_duplicates([*STEP, "name"])


def _widest(rows: pd.DataFrame) -> Spread | None:
    if rows.empty:
        return None
    means = rows.groupby("name")[["least", "seconds"]].mean()
    name = str((means["seconds"] - means["least"]).idxmax())
    least, greatest = (float(means[column][name]) for column in ("least", "seconds"))
    return Spread(name, least, greatest, rows[rows["name"] == name].iloc[-1])


class _Told(NamedTuple):
    """A rule that judges a class, how the class reads in a title, and the rule's thresholds."""

    of: Class
    words: str
    warning: float
    critical: float


_RULES: Final = {
    "data-bound": _Told(Class.DATA, "waiting for input data", DATA_WARNING, DATA_CRITICAL),
    "communication-bound": _Told(
        Class.COMMUNICATION,
        "communication between ranks",
        COMMUNICATION_WARNING,
        COMMUNICATION_CRITICAL,
    ),
    "optimizer-bound": _Told(
        Class.OPTIMIZER, "the optimizer's own work", OPTIMIZER_WARNING, OPTIMIZER_CRITICAL
    ),
}


def between(rule: str, facts: Facts) -> list[Finding]:
    """What least and greatest times prove where maxima of several ranks do not divide the step.

    No rank spends less than the least of its times, and none more than the greatest.
    """
    if rule not in _RULES or not _undivided(facts) or facts.no_basis:
        return []
    asked = _RULES[rule]
    known, step = _bounds(facts, asked.of), facts.step_seconds
    if known is None or not step:
        return []
    least, greatest = known.least / step, min(known.greatest / step, 1.0)
    severity = grade(greatest, asked.warning, asked.critical)
    if severity is None:
        return []
    if severity is Severity.CRITICAL and grade(least, asked.warning, asked.critical) != severity:
        severity = Severity.WARNING  # of the slowest rank alone
    return [
        Finding(
            rule=rule,
            severity=severity,
            title=f"{format_share(least)} to {format_share(greatest)} of a step is {asked.words}, "
            "depending on the rank",
            summary=f"Of each timer the log states the fastest and the slowest rank: every rank "
            f"spends {known.words} of {format_seconds(step)} per step in these timers. How the "
            "step of one rank is divided is not known, since the longest times are those of "
            "several ranks. Medium confidence: it does not say how many ranks are slow.",
            share=least,
            seconds_per_step=known.least,
            phase=known.name,
            evidence=(known.proof,),
            advice=_each_rank(facts),
            confidence="medium",
        )
    ]


def _each_rank(facts: Facts) -> tuple[Advice, ...]:
    """What tells of each rank, and so who is late."""
    minmax = Advice("--timing-log-option", "minmax", "all", "prints the time of each rank")
    return (minmax, *record(facts, WHO_IS_LATE))


def _undivided(facts: Facts) -> bool:
    return bool(facts.run.repairs["name"].isin(["maxima-exceed-step", "maxima-of-parts"]).any())


def _bounds(facts: Facts, of: Class) -> Spread | None:
    """Sums over the outermost timers of a class, as the log has them: a repair leaves parts out.

    A sum of the least times is at most what any rank needs for all of them, that of the greatest
    at least.
    """
    told = facts.run.as_told
    rows = within(facts.steps, where(told, among(told["pattern"], [MAXIMA])), *STEP)
    of_phases = rows["kind"].eq("phase").to_numpy(dtype=bool)
    outermost = _outermost(facts, of)
    phases = where(rows, of_phases & rows["name"].isin(outermost).to_numpy(dtype=bool))
    phases = phases.astype({"name": "str"}).drop_duplicates([*STEP, "name"])
    both = phases.merge(_least(where(rows, ~of_phases)), on=[*STEP, "name"])
    if both.empty:
        return None
    sums = both.groupby(list(STEP))[["least", "seconds"]].sum().mean()
    last = both.iloc[int(both["seconds"].to_numpy(dtype=float).argmax())]
    return Spread(str(last["name"]), float(sums["least"]), float(sums["seconds"]), last)


def _outermost(facts: Facts, of: Class) -> list[str]:
    """Names of the timers of a class that lie in no other one of it."""
    trees = [one.tree for one in facts.run.grammar.timers.values() if one.name in facts.flavours]
    return [
        own_name(path)
        for tree in trees
        for path, class_ in tree.items()
        if class_ == of and tree.get(holder_of(path)) != of
    ]


def few_steps(steps: int, needed: int) -> str:
    """Why ranks are not compared where few steps are timed by all of them."""
    timed = "step is" if steps == 1 else "steps are"
    return f"{steps} {timed} timed by every rank, {needed} needed"


def waits_for_some_rank(facts: Facts) -> list[Finding] | str | None:
    """Some rank takes longer than others with its own work; None where no line tells of that.

    Gain: at best all that the slowest is behind the quickest. Nothing, where most are as slow.
    """
    told = spreads(facts)
    if told is None:
        return None
    stages = facts.layout.stages
    if stages is None:
        return "the ranks may be stages of a pipeline, which do different work: not told"
    if stages > 1:
        return OTHER_WORK
    if told.steps < EVIDENCE_STEPS:
        return few_steps(told.steps, EVIDENCE_STEPS)
    share = facts.share(told.own.seconds) or 0.0
    severity = grade(share, STRAGGLER_WARNING, STRAGGLER_CRITICAL)
    if severity is None:
        return []
    return [
        Finding(
            rule="straggler-rank",
            severity=severity,
            title=f"Ranks wait for a slower one, up to {format_share(share)} of each step: "
            f"{told.own.name} takes {told.own.words}, by rank",
            summary=_said(told),
            share=share,
            seconds_per_step=told.own.seconds,
            phase=(told.inside or told.own).name,
            steps=(told.first, told.last),
            evidence=tuple(
                one.proof for one in (told.own, told.inside, told.meeting) if one is not None
            ),
            advice=_each_rank(facts),
            gain=(0.0, told.own.seconds),
            confidence="medium",
        )
    ]


def _said(told: Spreads) -> str:
    said = (
        f"For each timer the log shows the fastest and the slowest rank. In {told.own.name} they "
        f"are {format_seconds(told.own.seconds)} per step apart: some ranks wait that long."
    )
    if told.inside is not None:
        said += (
            f" Inside it {told.inside.name} differs by {format_seconds(told.inside.seconds)} "
            f"({told.inside.words})."
        )
    if told.meeting is not None and _confirms(told.own, told.meeting):
        said += f" The waiting shows in {told.meeting.name}, where they meet: {told.meeting.words}."
    return f"{said} Medium confidence: it does not say which rank is late, nor how many are."


def _confirms(own: Spread, meeting: Spread) -> bool:
    return meeting.seconds >= WAITING_EXPLAINS * own.seconds


def waited_in_collectives(facts: Facts) -> float:
    """Seconds per step of waiting that timers of collectives hold, where they tell extremes."""
    told = spreads(facts)
    if told is None or told.meeting is None:
        return 0.0
    return min(told.own.seconds, told.meeting.seconds)
