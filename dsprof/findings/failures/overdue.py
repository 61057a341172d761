"""A job that stood still, as the stacks show that were printed of its processes: because a time
limit ran out that the script had set itself, or because somebody asked for them.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.failures.absent import OF_LOADER, OF_LOCK, OF_STACKS
from dsprof.findings.failures.ends import step_span, when
from dsprof.findings.failures.mismatched import ALIKE
from dsprof.findings.failures.stacks import (
    FOR_LOCK,
    Dump,
    Place,
    dumps_of,
    places_of,
    said_of_places,
)
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.quotes import quoted
from dsprof.run.ends.harmless import OVER
from dsprof.run.ends.progress import progress
from dsprof.run.table import among, where

_LIMIT: Final = re.compile(r"\((\d[\d:]{3,11})\)")
_WENT_ON: Final = 2  #: steps behind a dump: it shows no end
_OF_LIMIT: Final = Advice(
    "faulthandler.dump_traceback_later(...)",
    "",
    "longer, if that much time is usual there",
    "the script sets this limit itself, and cancels it where it came in time",
)


def overdue(facts: Facts, row: pd.Series[Any]) -> Finding:
    """A time limit of the script's own ran out."""
    places = places_of(dumps_of(facts, int(row["segment"])))
    limit = _LIMIT.search(str(row["text"]))
    said = said_of_places(places)
    return Finding(
        rule="hang",
        severity=Severity.CRITICAL,
        title="A time limit of the script's own"
        + (f", {limit[1]}," if limit else "")
        + f" ran out{when(row)}"
        + f": {said}" * bool(said),
        summary="Python's faulthandler printed where threads stood as it ran out. "
        + _meant(places),
        ranks=_late(places),
        steps=step_span(row),
        evidence=(row_evidence(row, str(row["text"])), *_proof(places)),
        advice=(*_advice(places), _OF_LIMIT),
        confidence="medium",
    )


def dumped(facts: Facts) -> list[Finding]:
    """Where processes stood, if their stacks are the last of a source that shows no failure."""
    segment = int(facts.run.told["segment"].max()) if len(facts.run.told) else 0
    dumps = [one for one in dumps_of(facts, segment) if one.is_asked_for]
    if _is_over(facts, segment, dumps):
        return []
    last = _at_the_end(facts, dumps)
    places = places_of(last)
    if not places:
        return []
    row = last[-1].threads[0].row.copy()
    step = progress(facts.run.told, _rows(last))[0][-1]
    row["step"] = pd.NA if pd.isna(step) else int(step)
    many = f"{len(last):,} processes" if len(last) > 1 else "a process"
    return [
        Finding(
            rule="hang",
            severity=Severity.WARNING,
            title=f"Stacks were taken of {many}{when(row)}: {said_of_places(places)}",
            summary="That is mostly done with a job that stands still; whether it did, the source "
            f"does not say. {_meant(places)}",
            ranks=_late(places),
            steps=step_span(row),
            evidence=_proof(places),
            advice=_advice(places),
            confidence="medium",
        )
    ]


def _at_the_end(facts: Facts, dumps: list[Dump]) -> list[Dump]:
    """Those behind which training did not go on."""
    if not dumps:
        return []
    _, behind = progress(facts.run.told, _rows(dumps))
    return [one for one, steps in zip(dumps, behind, strict=True) if steps < _WENT_ON]


def _rows(dumps: list[Dump]) -> pd.DataFrame:
    return pd.DataFrame([one.threads[0].row for one in dumps]).reset_index(drop=True)


def said_of_cancelled(facts: Facts, row: pd.Series[Any]) -> str:
    """Where processes stood before their scheduler ended them, if stacks show that."""
    if row["kind"] != "cancelled" or pd.isna(row["line"]):
        return ""
    dumps = [
        one
        for one in dumps_of(facts, int(row["segment"]))
        if one.threads[-1].row["source"] == row["source"]
        and one.threads[-1].row["line"] < row["line"]
    ]
    said = said_of_places(places_of(_at_the_end(facts, dumps)))
    return f" The job may have hung before: by their stacks, {said}." if said else ""


def _is_over(facts: Facts, segment: int, dumps: list[Dump]) -> bool:
    """Whether a process of the launch ended well behind all of them, or training was over by then:
    who printed stacks did so to debug.
    """
    told = where(facts.run.told, among(facts.run.told["name"], [*OVER, "exited_well"]))
    ends = told.loc[told["segment"] == segment].groupby("source", observed=True)["line"].max()
    last = [one.threads[-1].row for one in dumps]
    return all(row["line"] < ends.get(row["source"], 0) for row in last)


def said_of_stacks(facts: Facts, segment: int) -> str:
    """Where processes stood, behind what else is said of a launch that hung; "" if unknown."""
    said = said_of_places(places_of(dumps_of(facts, segment)))
    return f" By their stacks, {said}." if said else ""


def _meant(places: list[Place]) -> str:
    """What follows of where the processes stood."""
    inside = [one for one in places if one.call]
    if not places:
        return "Where the threads stood that train, it does not show."
    if not inside:
        return (
            "None stood in a collective. Medium confidence: GPUs work behind the program, which "
            "then waits for them where it next needs a result."
        )
    if len(inside) < len(places):
        return (
            "A collective waits until every rank has called it: look at those that stood "
            "elsewhere. Medium confidence: stacks show one moment."
        )
    if len({one.call for one in inside}) > 1:
        return (
            "They stood in different collectives, which wait for each other. Medium confidence: "
            "they may be of different groups of ranks."
        )
    return (
        "All of these stood in one collective, which waits until every rank has called it: the "
        "one that did not is not shown, or data does not get from one to another. Medium "
        "confidence: stacks do not say which."
    )


def _late(places: list[Place]) -> tuple[int, ...]:
    """Ranks that others waited for in a collective."""
    if not any(one.call for one in places):
        return ()
    return tuple(sorted(rank for one in places if not one.call for rank in one.ranks))


def _advice(places: list[Place]) -> tuple[Advice, ...]:
    calls = {one.call for one in places if one.call}
    outside = [one for one in places if not one.call]
    loader = any("data loader" in one.said for one in outside)
    return (
        *((OF_LOCK,) if any(FOR_LOCK in one.said for one in outside) else ()),
        *((OF_LOADER,) if loader else ()),
        *((OF_STACKS,) if not outside else ()),
        *((ALIKE,) if calls and not loader else ()),
    )


def _proof(places: list[Place]) -> tuple[Evidence, ...]:
    return tuple(_evidence(one) for one in places[:3])


def _evidence(place: Place) -> Evidence:
    thread = place.dumps[0].decisive or place.dumps[0].threads[0]
    inside = f"{place.call}, called in " * bool(place.call) + place.said
    return row_evidence(thread.row, f"{quoted(thread.name, 100)}, in {inside}")
