"""Between which phases of a recording the time lies that no phase covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.analysis.gaps import gaps
from dsprof.analysis.looks import Code, code_at, share_of_looks
from dsprof.analysis.turns import is_foreign, turns
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence
from dsprof.findings.seen.code_seen import (
    LITTLE,
    beginning,
    change,
    others_look_alike,
    proof,
    said,
)
from dsprof.run import Run
from dsprof.run.recorded.moments import CALL
from dsprof.units import format_seconds, format_share

_STEPS: Final = 40  #: looked at, evenly spread; more would change nothing
_RANKS: Final = 16
_ALL: Final = 0.99  #: a part that is told as all of it
_MOST: Final = 0.6  #: a part below which no place is named
#: So many of the steps end with the phase that is named, or so much of the time lies before it.
_END: Final = 0.9

_UNSEEN_FORWARD: Final = (
    "a forward ran that nothing recorded: of a module inside the engine, or in compiled code"
)
#: What is mostly done there, by the phases before and after; "" is any that begins the next step,
#: None any at all.
_HINTS: Final[dict[tuple[str | None, str], str]] = {
    ("data", "backward"): _UNSEEN_FORWARD,
    ("step", "backward"): _UNSEEN_FORWARD,
    ("data", "forward"): "scripts prepare the batch, or run another model",
    (None, "forward"): "scripts load and prepare batches",
    ("forward", "backward"): "scripts compute the loss",
    ("backward", "step"): "scripts clip, unscale or inspect gradients by hand",
    ("step", "forward"): "scripts load batches by other means than PyTorch's DataLoader, log, "
    "average weights, step a scheduler, or evaluate another module than the one that trains",
    ("step", ""): "scripts log, average weights, step a scheduler, move a batch to the device, or "
    "evaluate another module than the one that trains",
}


#: Where it may lie, if nobody knows.
BETWEEN_PHASES: Final = "between the recorded phases"


@dataclass(frozen=True, slots=True)
class Place:
    """Where most of the time lies that no phase covers.

    Attributes:
        before, after: names of the phases around it, one of them "" if it is not always the same,
            both between steps that begin with one phase or another, and do not end alike.
        between_steps: whether `after` is the first one of the next step.
        share: of all such time.
        seconds: of it per step, in the mean of the ranks that have such time.
        proof: the row behind the longest of the times there.
        code: what was seen to run there.
    """

    before: str
    after: str
    between_steps: bool
    share: float
    seconds: float = 0.0
    proof: tuple[Evidence, ...] = ()
    code: Code | None = None

    @property
    def words(self) -> str:
        if self.between_steps and not self.after:
            beginning = "the beginning of the next step"
            return f"between {self.before} and {beginning}" if self.before else "between steps"
        if not self.after:
            return f"after {self.before}"
        after = f"the next {self.after}" if self._again else self.after
        if not self.before:
            return f"before {after}"
        return f"between {self.before} and {after}"

    @property
    def much(self) -> str:
        """How much of it, for a sentence."""
        return "all" if self.share > _ALL else format_share(self.share)

    @property
    def hint(self) -> str:
        """What was seen to run there, or is mostly done there, as a sentence behind a blank; "" if
        nobody can tell."""
        if self.code:
            return f" {said(self.code)}"
        told = _HINTS.get((self.before, self.after))
        if self.between_steps and told is None:
            told = _HINTS.get((self.before, ""))
        elif not self.before:
            told = _HINTS.get((None, self.after))
        return f" {self.words.capitalize()}, {told}." if told else ""

    @property
    def _again(self) -> bool:
        return self.between_steps or self.before == self.after

    def advice(self, who: str = "one rank") -> Advice:
        """To change what was seen to run there, or how to see that."""
        return next(iter(change(self.code)), look_at(self.words, who))


def look_at(where: str, who: str = "one rank") -> Advice:
    """How to see what a script does where nothing is recorded."""
    return Advice("py-spy record", "", f"a minute of {who}", f"shows which code runs {where}")


def place_of(
    facts: Facts,
    ranks: Sequence[int] = (),
    inside: str = "",
    among: pd.DataFrame | None = None,
) -> Place | None:
    """Where most of the time lies that no phase of a recording covers; None if it is spread, or not
    known.

    Args:
        ranks: late ones, of which only what they need beyond the others counts.
        inside: a phase; what its own parts do not cover, then.
        among: the steps to look at, if not those that findings are about.
    """
    run = facts.run
    if not run.is_recording:
        return None
    moments = _moments(facts, ranks, inside, facts.steps if among is None else among)
    found = _beyond(moments, ranks, inside)
    total = float(found["seconds"].sum())
    if not total:
        return None
    place, row = (
        (None if inside else _between_steps(found, total))
        or _between(found, total, inside)
        or _beside(found, total)
        or (None, None)
    )
    if place is None or row is None:
        return None
    much = f"step {row['step']:,}: {format_seconds(row['longest'])} {place.words}"
    place = replace(place, seconds=place.share * total)
    code = None if inside else _code_of(facts, place, ranks, among, moments)
    longest = row_evidence(row, f"{much}, longest of some steps")
    return replace(place, code=code, proof=(longest, *proof(code)))


def _code_of(
    facts: Facts,
    place: Place,
    ranks: Sequence[int],
    among: pd.DataFrame | None,
    moments: pd.DataFrame,
) -> Code | None:
    """What was seen to run at a place, if looks tell that of the steps that are meant."""
    since = beginning(facts.steps if among is None else among)
    phase = _looked_behind(place, _of_late(moments, ranks))
    if phase is None:
        return None
    code = code_at(facts.run.told, phase, ranks=ranks, since=since)
    if code is None or not _may_name(facts, place, phase, ranks, moments):
        return None
    if among is not None or not facts.stuck_out:
        return code
    others = replace(facts, stuck_out=(), answers={}).steps.loc[list(facts.stuck_out)]
    return seen_in(facts, replace(place, code=code), facts.steps, others)  # these have looks, too


def _looked_behind(place: Place, moments: pd.DataFrame) -> str | None:
    """The phase by whose end looks at a place are told, "" of any. A call is none: what follows it
    is told as behind the phase before. None if much of what is told so is of other places, or of
    the calls themselves.
    """
    if not place.before:
        return ""
    found = _own(gaps(moments[moments["what"] != CALL]))
    last = _last(found)
    before, after = (found.index.get_level_values(side) for side in ("before", "after"))
    phase = place.before
    if phase not in before:
        phase = str(before[after == place.after][0]) if place.after in after else ""
        phase = last if place.between_steps else phase or last
    behind = found["seconds"][(before == phase) | ((before == "") & (phase == last))]
    there = _seconds_at(place, moments)
    return phase if phase and behind.sum() - there <= LITTLE * there else None


def _seconds_at(place: Place, moments: pd.DataFrame) -> float:
    """Per step, in the mean of the ranks, of all that lies at a place."""
    found = _own(gaps(moments))
    before, after = (found.index.get_level_values(side) for side in ("before", "after"))
    there = before == ("" if place.between_steps else place.before)
    return float(found["seconds"][there & ((after == place.after) | (not place.after))].sum())


def _may_name(
    facts: Facts, place: Place, phase: str, ranks: Sequence[int], moments: pd.DataFrame
) -> bool:
    """Whether looks behind a phase tell what runs at a place in the time that is meant: not of
    which of several engines they were; nor of late ranks, if others spend time there, too; and of
    a device, only where the host spends there what its phases leave out, else it waits for the
    host's phases.
    """
    if facts.engine is not None:
        return False
    if facts.run.config.get("phases_on") != "gpu":
        others = moments[~moments["rank"].isin(ranks)]
        late = _seconds_at(place, _of_late(moments, ranks))
        return not ranks or _seconds_at(place, others) <= LITTLE * late
    if ranks and others_look_alike(facts, phase, ranks):
        return False
    step = facts.average or float(facts.steps["seconds"].mean())
    there = share_of_looks(facts.run.told, phase, ranks=ranks)
    return 2 * there * step >= place.seconds


def seen_in(facts: Facts, place: Place, steps: pd.DataFrame, others: pd.DataFrame) -> Code | None:
    """The code of a place of some steps, unless it may be that of the `others`: at them nearly as
    often was looked, or it runs in them nearly as long."""
    if place.code is None:
        return None
    elsewhere = float(_own(gaps(_moments(facts, (), "", others)))["seconds"].sum())
    in_them, in_others = len(steps) * place.seconds, len(others) * elsewhere
    little = elsewhere <= LITTLE * place.seconds and in_others <= LITTLE * in_them
    return place.code if little else None


def _between(found: pd.DataFrame, total: float, inside: str) -> tuple[Place, pd.Series] | None:
    """The two phases between which most of it lies, and the row behind the longest of the times."""
    (before, after), longest = found.index[0], found.iloc[0]
    share = float(longest["seconds"]) / total
    if share < _MOST or not (before or after):
        return None
    between_steps = not (before or inside)
    before = _last(found) if between_steps else before
    return Place(before, after, between_steps=between_steps, share=share), longest


def _between_steps(found: pd.DataFrame, total: float) -> tuple[Place, pd.Series] | None:
    """The same of what lies before the first phases of steps, as the stages of a pipeline begin
    with different ones; None where nearly all of it lies before one of them."""
    first = found[found.index.get_level_values("before") == ""]
    seconds = first["seconds"]
    share = float(seconds.sum()) / total
    if share < _MOST or seconds.max() >= _END * seconds.sum():
        return None
    return Place(_last(found), "", between_steps=True, share=share), _longest(first)


def _longest(found: pd.DataFrame) -> pd.Series[Any]:
    return found.nlargest(1, "longest").iloc[0]


def _beside(found: pd.DataFrame, total: float) -> tuple[Place, pd.Series] | None:
    """The same of one phase before or after which most of it lies, whatever is on the other side:
    of several micro-batches one follows the step and the others a backward.
    """
    sides = {side: found.groupby(level=side)["seconds"].sum().drop("", errors="ignore")
             for side in ("before", "after")}  # fmt: skip
    sides = {side: times for side, times in sides.items() if len(times)}
    if not sides:  # a phase that has no parts
        return None
    side = max(sides, key=lambda one: sides[one].max())
    name = str(sides[side].idxmax())
    share = float(sides[side][name]) / total
    if share < _MOST:
        return None
    before, after = (name, "") if side == "before" else ("", name)
    longest = _longest(found[found.index.get_level_values(side) == name])
    return Place(before, after, between_steps=False, share=share), longest


def _own(found: pd.DataFrame) -> pd.DataFrame:
    """Those that are time of the engine itself, where several take turns: its turn begins where
    the last phase of another one ended."""
    after = found.index.get_level_values("after")
    return found[np.array([not is_foreign(name) for name in after], dtype=bool)]


def _last(found: pd.DataFrame) -> str:
    """The phase that nearly all steps end with, else ""."""
    ends = found["count"].xs("", level="after")
    return str(ends.idxmax()) if ends.max() >= _END * ends.sum() else ""


def look_into(facts: Facts, most: int, steps: pd.DataFrame) -> tuple[pd.DataFrame, list[int]]:
    """Some of these steps, and at most so many ranks: enough for what is alike in all, of which
    single moments are read."""
    which = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _STEPS)).astype(int))
    if facts.engine is not None:  # every second step may always be the same one of a turn
        which = np.sort(np.random.default_rng(0).permutation(len(steps))[: len(which)])
    known = sorted(facts.run.phases["rank"].dropna().unique().tolist())
    return steps.iloc[which], known[:: max(1, -(-len(known) // most))]


def _moments(facts: Facts, ranks: Sequence[int], inside: str, among: pd.DataFrame) -> pd.DataFrame:
    """Those of some of these steps, and of `ranks` beside some others."""
    steps, some = look_into(facts, _RANKS, among)
    look = Run.moments if facts.engine is None else turns
    return look(facts.run, steps, ranks={*some, *ranks}, outer=not inside)


def _of_late(moments: pd.DataFrame, ranks: Sequence[int]) -> pd.DataFrame:
    return moments[moments["rank"].isin(ranks)] if ranks else moments


def _beyond(moments: pd.DataFrame, ranks: Sequence[int], inside: str) -> pd.DataFrame:
    """The gaps; of `ranks`, if any are meant, what they need beyond the others."""
    found = _own(gaps(_of_late(moments, ranks), inside))
    if not ranks:
        return found
    usual = _own(gaps(moments[~moments["rank"].isin(ranks)], inside))["seconds"]
    beyond = found["seconds"].sub(usual.reindex(found.index, fill_value=0.0)).clip(lower=0.0)
    return found.assign(seconds=beyond).sort_values("seconds", ascending=False)
