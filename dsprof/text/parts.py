"""Where the mean step goes, row by row: what the terminal's table and the document both show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dsprof.events import Class
from dsprof.run.steps.calls import UNDIVIDED
from dsprof.run.steps.classes import SEEN
from dsprof.units import NOTHING

BLENT: Final = "compute or communication"  #: timers that hold both and cannot tell them apart
UNTIMED: Final = "no timer"  #: what no timer covers


@dataclass(frozen=True, slots=True)
class Phase:
    """A timer of the mean step: seconds that its children do not explain."""

    name: str
    class_: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Part:
    """A row of the table.

    Attributes:
        name: a class of phases, `BLENT` or `UNTIMED`.
        phase: the timer that takes most of it; where none is of this class alone, the largest of
            those that hold it beside another; "" if none does.
        seconds, share: of the mean step, the share from 0 to 1; None if unknown.
        at_least: more of it lies unseen inside other timers.
        at_most: its timers hold some of another class, too.
        inside: a timer of the row above that a finding names, no further part of the step.
    """

    name: str
    phase: str
    seconds: float | None
    share: float | None
    at_least: bool = False
    at_most: bool = False
    inside: bool = False

    @property
    def label(self) -> str:
        """The name as one says it."""
        return _LABEL.get(self.name, self.name)

    @property
    def sign(self) -> str:
        """What stands before its number where that is no more than a bound."""
        return "≥" if self.at_least else "≤" if self.at_most else ""


_BOTH: Final = (Class.COMPUTE, Class.COMMUNICATION)
_LABEL: Final = {"wait": "wait for a peer", BLENT: "compute or comm."}


def parts_of(
    seconds: float,
    classes: Mapping[str, float],
    phases: list[Phase],
    *,
    blent: Collection[str] = (),
    named: Collection[str] = (),
    alone: bool = False,
    hidden: bool = False,
) -> list[Part]:
    """The rows, largest first; they add up to the step, but for those `inside` another.

    Args:
        seconds: of the mean step.
        classes: its seconds by class, as far as known.
        phases: its timers, largest first.
        blent: timers that hold compute and communication unseparated.
        named: timers that findings speak of: each has a row.
        alone: the job is a single rank, which talks to nobody.
        hidden: a timer of compute holds communication, too.
    """
    undivided = _timed(phases, UNDIVIDED)[:1]  # logged calls divide the step, and it holds most
    groups = {
        name: (classes[name], _timed(phases, name) or (undivided if name in _BOTH else []))
        for name in classes
        if name != Class.OTHER
    }
    floor = _timed(phases, Class.COMMUNICATION) if Class.COMMUNICATION not in classes else []
    at_least = hidden or sum(p.seconds for p in floor) >= max(SEEN * seconds, NOTHING)
    if Class.OTHER in classes:
        groups |= _of_other(classes[Class.OTHER], phases, floor, blent)
    whole = max(seconds, sum(classes.values()))
    rows: list[Part] = []
    for name, (spent, timers) in sorted(groups.items(), key=lambda item: -item[1][0]):
        if spent > NOTHING:
            first, *inside = _rows(name, spent, timers, whole, named)
            lower = name == Class.COMMUNICATION and at_least
            upper = name == Class.COMPUTE and hidden
            rows += [replace(first, at_least=lower, at_most=upper), *inside]
    told = any(row.name == Class.COMMUNICATION for row in rows)
    if classes and Class.COMMUNICATION not in classes and not (told or alone):
        rows.append(Part(str(Class.COMMUNICATION), "", None, None))
    return rows


def _timed(phases: list[Phase], class_: str) -> list[Phase]:
    return [phase for phase in phases if phase.class_ == class_]


def _of_other(
    other: float, phases: list[Phase], floor: list[Phase], blent: Collection[str]
) -> dict[str, tuple[float, list[Phase]]]:
    """What the class `other` holds: timed communication, timers of both, the rest, no timer."""
    rest = _timed(phases, Class.OTHER)
    groups = {
        str(Class.COMMUNICATION): floor,
        BLENT: [p for p in rest if p.name in blent],
        str(Class.OTHER): [p for p in rest if p.name not in blent],
    }
    spent = {name: sum(p.seconds for p in timers) for name, timers in groups.items()}
    timed = sum(spent.values())
    fit = min(1.0, other / timed) if timed else 1.0  # timers may exceed their step a little
    found = {name: (spent[name] * fit, timers) for name, timers in groups.items() if timers}
    return found | {UNTIMED: (max(0.0, other - timed), [])}


def _rows(
    name: str,
    spent: float,
    timers: list[Phase],
    whole: float,
    named: Collection[str],
) -> list[Part]:
    """The row of a group, and one for each of its timers that a finding names."""
    largest = timers[0].name if timers and timers[0].seconds > 0 else ""
    inside = [p for p in timers[1:] if p.name in named and p.seconds > NOTHING]
    return [
        Part(name, largest, spent, spent / whole),
        *(Part(name, p.name, p.seconds, p.seconds / whole, inside=True) for p in inside),
    ]
