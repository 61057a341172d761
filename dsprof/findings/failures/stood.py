"""Where each recorded process stood when its launch hung or ended.

A recording has a cell for the call and the phase that its process is in, which outlives the
process (docs/recording.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dsprof.analysis.standing import Standing, standing
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Evidence
from dsprof.recording.launches import NOT_FOUND
from dsprof.run.ends.missed import WAITED
from dsprof.units import format_ranks, format_seconds

_NS: Final = 1e-9
_WORTH: Final = 0.1  #: seconds; moments in the cell are known to 2 ms
_MOST: Final = 0.9  #: of the time that it was there: more is all of it
_PLACES: Final = 4  #: that are told; in a pipeline each stage may wait in another call
_UNCLOSED: Final = ("gone", "signal", "exit")


@dataclass(frozen=True, slots=True)
class Stood:
    """Where one process stood.

    Attributes:
        call: the collective that it waited in, "" if none, and when that wait began.
        phase: the outermost phase that it was in, or had been in last; "" if unknown, and before
            the first one, where its stack may be known.
        over: whether that phase had ended, and when that was, or when it began.
        until: when it was last seen to be there, or ended.
        seconds: for how long, until it ended or now; None if nobody saw it.
        silent: seconds from then to the last that is known of its launch; it may itself have died
            meanwhile.
        sign: what that last is, as `the others ended`.
        is_there: it is seen to be there now.
        stopped: it stands still by a signal, or in a debugger.
        standing: the code that its stack showed there; None if nobody looked, or could.
    """

    source: str
    rank: int | None
    host: str
    pid: int | None
    call: str
    phase: str
    class_: str
    over: bool
    call_at: int  # ns since 1970, like the others; 0 if unknown
    phase_at: int
    until: int
    seconds: float | None
    silent: float | None
    sign: str
    is_there: bool
    stopped: bool
    standing: Standing | None

    @property
    def since(self) -> int:
        """When it came to the innermost of the two."""
        return self.call_at if self.call else self.phase_at

    @property
    def lasted(self) -> str:
        if self.seconds is not None:
            return f" for {format_seconds(self.seconds)}" if self.seconds >= _WORTH else ""
        return f" since {pd.Timestamp(self.since):%H:%M:%S} UTC" if self.since else ""

    @property
    def place(self) -> str:
        """`waited in all_reduce, inside backward`, `was in data`, `was between phases, after
        step`.
        """
        if self.call:
            inside = f", inside {self.phase}," if self.phase and not self.over else ""
            return f"waited in {self.call}{inside}"
        return f"was between phases, after {self.phase}," if self.over else f"was {self.within}"

    @property
    def within(self) -> str:
        """Where it was, if not between two phases: `in data`."""
        return f"in {self.phase}" if self.phase else "before its first phase"

    @property
    def code(self) -> str:
        """Behind its place and how long it was there; what it called is known of a collective."""
        if self.standing is None:
            return ""
        line = f", called by {self.standing.line}"
        return line if self.call else f"{self._of_that}{self.standing.told}"

    @property
    def line(self) -> str:
        """The same for a title: the line of the job."""
        return f"{self._of_that}{self.standing.line}" if self.standing else ""

    @property
    def _of_that(self) -> str:
        """It may have come there later, or be elsewhere since it was seen last."""
        seen = self.standing.seconds if self.standing else 0.0
        if self.seconds is None or seen >= _MOST * self.seconds:
            return ", in "
        return f", {format_seconds(seen)} of that in "


def stood(facts: Facts, segment: int) -> list[Stood]:
    """Where the processes of a launch stood that did not end their recordings, as far as these
    tell.
    """
    launch = [one for one in _recordings(facts) if one.get("segment") == segment]
    known = facts.run.meta
    sign = max((one for process in launch for one in _signs(process, known)), default=(0, ""))
    left = [one for one in launch if not one.get("ended")]
    seen = _standing(facts)
    found = [
        _stood(one, sign, late_of(known, one), seen.get(str(one.get("source")))) for one in left
    ]
    return [one for one in found if one.phase or one.call or one.standing]


def stood_of(facts: Facts, row: pd.Series[Any]) -> Stood | None:
    """Where the process of this problem stood."""
    told = stood(facts, int(row["segment"]))
    return next((one for one in told if one.source == row["source"]), None)


def said_of_dead(facts: Facts, row: pd.Series[Any]) -> str:
    """A sentence behind a blank: where a process that died stood, or all of a launch, if the
    problem is theirs, or if it had stood there for long: another may be what it waited for.
    """
    if row["kind"] not in _UNCLOSED:
        return ""
    one = stood_of(facts, row)
    if pd.isna(row["rank"]) or (one and one.seconds is not None and one.seconds > WAITED):
        every = said_of_all(stood(facts, int(row["segment"])))
        return f" Before that, {every}." if every else ""
    if one is None:
        return ""
    place = f"{one.place}{one.lasted}" if one.lasted else one.place.rstrip(",")
    return f" Before that, it {place}{one.code}."


def said_of_all(every: Iterable[Stood]) -> str:
    """One sentence: `Rank 1 was in data for 17.9 s; rank 0 waited in ...`; "" of none."""
    places: dict[str, list[Stood]] = {}
    for one in every:
        places.setdefault(one.place, []).append(one)
    most = sorted(places, key=lambda place: -len(places[place]))[:_PLACES]
    told = {place: ones for place, ones in places.items() if place in most}
    left = sum(map(len, places.values())) - sum(map(len, told.values()))
    said = [_said(place, ones) for place, ones in told.items()]
    return "; ".join([*said, f"{left:,} more elsewhere"] if left else said)


def _said(place: str, ones: list[Stood]) -> str:
    """Of some processes at the same place, with the longest time of them."""
    ranks = [one.rank for one in ones if one.rank is not None]
    who = format_ranks(ranks) if ranks else "a process"
    verb, _, rest = place.partition(" ")
    verb = "were" if verb == "was" and len(ranks) > 1 else verb
    longest = min(ones, key=lambda one: (not one.since, one.since))  # 0 is unknown
    where = f"{who} {verb} {rest}"
    codes = {one.code for one in ones}
    code = codes.pop() if len(codes) == 1 else ""
    if not longest.lasted:
        where = where.rstrip(",")
    elif len(ones) > 1:
        where = f"{where.rstrip(',')}, one of them"
    return f"{where}{longest.lasted}{code}"


def proofs(every: Iterable[Stood]) -> tuple[Evidence, ...]:
    """The stacks that some processes stood in, of those in one place one."""
    found = {one.code: one.standing for one in every if one.standing is not None}
    return tuple(
        row_evidence(
            one.row, f"its stack, seen for {format_seconds(one.seconds)}: {one.row['text']}"
        )
        for one in list(found.values())[:_PLACES]
    )


def late_of(meta: Mapping[str, Any], process: Mapping[str, Any]) -> int:
    """Nanoseconds by which the clock of its host is ahead of the first one's."""
    clocks = meta.get("clocks") or {}
    return round(float(clocks.get(str(process.get("host")), {}).get("ahead", 0.0)) / _NS)


@once
def _standing(facts: Facts) -> dict[str, Standing]:
    """Of the processes whose recordings have it for the place that they stood in at last."""
    there = {str(one.get("source")) for one in _recordings(facts) if one.get("stands")}
    return {source: one for source, one in standing(facts.run.told).items() if source in there}


def _recordings(facts: Facts) -> Iterable[Mapping[str, Any]]:
    return facts.run.meta.get("recordings") or ()


def _stood(
    process: Mapping[str, Any], sign: tuple[int, str], late: int, seen: Standing | None
) -> Stood:
    flight, phase = process.get("in_flight") or {}, process.get("phase") or {}
    call_at, phase_at = (max(0, int(one.get("at") or 0) - late) for one in (flight, phase))
    since = call_at if flight else phase_at
    if seen and not (flight or phase):  # it was in no phase yet
        since = phase_at = max(0, int(seen.row["at"].value) - late)
    until = max(0, _until(process) - late)
    return Stood(
        source=str(process.get("source")),
        rank=process.get("rank"),
        host=str(process.get("host") or ""),
        pid=process.get("pid"),
        call=str(flight.get("name") or ""),
        phase=str(phase.get("name") or ""),
        class_=str(phase.get("class") or ""),
        over=bool(phase.get("over")),
        call_at=call_at,
        phase_at=phase_at,
        until=until or sign[0],
        seconds=_between(since, until),
        silent=_between(since, max(sign[0], until)),
        sign=sign[1],
        is_there=bool(process.get("alive_at")),
        stopped=bool(process.get("stopped")),
        standing=seen,
    )


def _between(since: int, until: int) -> float | None:
    return (until - since) * _NS if since and until > since else None


def _until(process: Mapping[str, Any]) -> int:
    """When it was there, or ended, as somebody saw; ns since 1970, 0 if nobody did."""
    gone = process.get("killed")
    seen = gone.at if gone and gone.signal != NOT_FOUND else 0
    return int(process.get("alive_at") or seen or 0)


def _signs(process: Mapping[str, Any], meta: Mapping[str, Any]) -> list[tuple[int, str]]:
    """What is known of a process, and when that was: who stood still was waited for till then."""
    late = late_of(meta, process)
    told = {
        "the others ended": process.get("ended_at"),
        "the command ended": process.get("over_at"),
        "another was last seen": process.get("alive_at"),
        "the last of the others began to wait": (process.get("in_flight") or {}).get("at"),
    }
    return [(int(at) - late, sign) for sign, at in told.items() if at]
