"""Single steps as they ran, rank beside rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from dsprof.analysis.lanes import Stretch, lanes
from dsprof.analysis.turns import turns
from dsprof.charts import step_lanes
from dsprof.findings.ranks.late_replica import late_replica
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Section, Table
from dsprof.page.unfinished import unfinished_step
from dsprof.units import format_ranks, format_seconds

if TYPE_CHECKING:
    from dsprof.findings.facts import Facts
    from dsprof.run import Run

RANKS: Final = 32  #: drawn; of more ranks, these are evenly spread, with the late ones
_TRIES: Final = 8  #: steps that are looked at until one can be drawn
_LAST: Final = 100  #: steps whose rows are there where those of earlier ones are deleted
_LONGER: Final = 1.3  #: times the typical step; the longest one is drawn, too, if it is longer
_ROWS: Final = 200  #: of the table
_WORTH: Final = 0.01  #: of a step; what is shorter has no row in the table
_NS: Final = 1e-9


def lanes_section(run: Run) -> Section:
    """A step that took as long as most, the longest one, and the one in which a hang or a death
    ended the run, of a recording.
    """
    title = "One step as it ran"
    facts = min(run.judged, key=lambda one: len(one.own_steps))  # a whole turn of all engines
    why = _why_not(facts)
    if why:
        return Section("lanes", title, why=why)
    steps = _steps(facts)
    median = float(steps["seconds"].median())
    last = steps.tail(_LAST)
    last = last[(last["seconds"] / median).between(1 / _LONGER, _LONGER)]
    typical = _drawn(facts, _nearest(steps, median)) or _drawn(facts, _nearest(last, median))
    if typical is None:
        why = "Calls of the steps share rows, or rows are deleted: their moments are not known."
        return Section("lanes", title, why=why)
    charts = [_chart(facts, "lanes", *typical, "as long as most")]
    longest = steps.loc[[steps["seconds"].idxmax()]]
    if longest["seconds"].iloc[0] > _LONGER * median:
        slow = _drawn(facts, longest)
        charts += [_chart(facts, "lanes-longest", *slow, "the longest")] if slow else []
    return Section("lanes", title, lead=_lead(facts), charts=[*_unfinished(facts), *charts])


def _unfinished(facts: Facts) -> list[Chart]:
    found = unfinished_step(facts, _ranks(facts)) if _clocks_agree(facts) else None
    if found is None:
        return []
    launch = words.launch_of(facts.run, pd.DataFrame({"segment": [found.segment]}))
    of = f" of {launch}" if launch else ""
    since = f"Step {found.step + 1:,}{of}, in which training stopped"
    if facts.engine is not None:
        since = f"Since step {found.step:,} of engine {found.engine}{of}, until training stopped"
    label = (
        f"{since}. A rank's last bar ends where it was last seen. What is blank was not written "
        "any more."
    )
    return [Chart("lanes-unfinished", step_lanes(found.lanes), label, _table(found.lanes))]


def _why_not(facts: Facts) -> str:
    if not _ranks(facts):
        return "The recording does not say of which rank it is."
    return "" if facts.series["seconds"].notna().any() else "No step was recorded to its end."


def _steps(facts: Facts) -> pd.DataFrame:
    """Those with a length; where engines take turns, that is from the end of the one before."""
    steps = facts.own_steps.loc[facts.series.index]
    if facts.engine is not None:
        apart = steps["at"].diff().dt.total_seconds()
        steps = steps.assign(seconds=apart.where(steps["step"].diff().eq(1)))
    return steps[steps["seconds"].notna()]


def _nearest(steps: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Some steps, the one that is nearest to it first; of equal ones the last."""
    apart = (steps["seconds"] - seconds).abs().iloc[::-1]
    return steps.loc[apart.sort_values(kind="stable").index[:_TRIES]]


Drawn = tuple[pd.Series, dict[int, list[Stretch]]]


def _drawn(facts: Facts, steps: pd.DataFrame) -> Drawn | None:
    """The first of the steps that can be drawn."""
    for place in range(len(steps)):
        row = steps.iloc[[place]]
        moments = _moments(facts, row)
        apart = _on_device(facts) or not _clocks_agree(facts)
        found = lanes(moments, each_from_its_own=apart) if len(moments) else {}
        if found:
            return row.iloc[0], found
    return None


def _moments(facts: Facts, step: pd.DataFrame) -> pd.DataFrame:
    if facts.engine is not None:
        return turns(facts.run, step, _ranks(facts))
    return facts.run.moments(step, ranks=_ranks(facts))


def _ranks(facts: Facts) -> list[int]:
    known = sorted(facts.run.phases["rank"].dropna().unique().astype(int).tolist())
    late = _late(facts)[:RANKS]
    if len(known) <= RANKS:
        return known
    even = np.linspace(0, len(known) - 1, RANKS - len(late)).round().astype(int)
    return sorted({*(known[i] for i in even), *late})


def _late(facts: Facts) -> tuple[int, ...]:
    """The ranks that the others wait for."""
    if facts.straggler is not None:
        return facts.straggler.group
    one = late_replica(facts)
    return one.ranks if one else ()


def _clocks_agree(facts: Facts) -> bool:
    """Whether the clocks of all hosts can be compared."""
    clocks = facts.run.meta.get("clocks") or {}
    hosts = facts.run.told["host"].dropna().nunique()
    return hosts < 2 or (len(clocks) >= hosts and all("ahead" in one for one in clocks.values()))


def _on_device(facts: Facts) -> bool:
    return facts.run.config.get("phases_on") == "gpu"


def _lead(facts: Facts) -> str:
    many, shown = facts.run.phases["rank"].nunique(), len(_ranks(facts))
    late = f", with {format_ranks(_late(facts))}" if _late(facts) else ""
    said = f" Shown: {shown} of {many:,} ranks, evenly spread{late}." if shown < many else ""
    if _on_device(facts):
        return (
            "What each GPU did on its compute stream, each from its own beginning. A moment counts "
            f"for the innermost phase, or for the call that the stream waited for.{said}"
        )
    if not _clocks_agree(facts):
        return (
            "What each rank did, each from its own beginning: the clocks of their hosts cannot be "
            f"compared.{said}"
        )
    return (
        "What each rank did when. A moment counts for the innermost phase, or for the call that "
        f"held the rank up.{said}"
    )


def _chart(
    facts: Facts, name: str, step: pd.Series, found: dict[int, list[Stretch]], which: str
) -> Chart:
    took = format_seconds(float(step["seconds"]))
    launch = words.launch_of(facts.run, facts.series)
    of = f" of {launch}" if launch else ""
    label = f"Step {int(step['step']):,}{of}, {which}: {took}."
    if facts.engine is not None:
        label = (
            f"Step {int(step['step']):,} of engine {facts.engine}{of}, with what the other engines "
            f"did since the one before ended, {which}: {took}."
        )
    left_out = sorted(set(_ranks(facts)) - set(found))
    if left_out:
        label += f" Without {format_ranks(left_out)}, whose end of it is not recorded."
    return Chart(name, step_lanes(found), label, _table(found))


def _table(found: dict[int, list[Stretch]]) -> Table:
    width = max(one.end for lane in found.values() for one in lane)
    rows = [
        (rank, one)
        for rank, lane in found.items()
        for one in lane
        if one.end - one.begin >= _WORTH * width
    ]
    begins, lengths = _times(rows)
    return Table(
        "What took a hundredth of the step or more",
        ["rank", "from", "for", "in"],
        [
            [
                Cell(str(rank)),
                Cell(begin),
                Cell(f"{length}, not ended" if one.is_open else length),
                Cell(one.path or "no phase", role=one.class_),
            ]
            for (rank, one), begin, length in zip(rows[:_ROWS], begins, lengths, strict=False)
        ],
        numeric=frozenset({0, 1, 2}),
        more=f"{len(rows) - _ROWS:,} more are only drawn." if len(rows) > _ROWS else "",
    )


def _times(rows: Sequence[tuple[int, Stretch]]) -> tuple[list[str], list[str]]:
    said = words.column([t * _NS for _, one in rows for t in (one.begin, one.end - one.begin)])
    return said[::2], said[1::2]
