"""What of a step takes longer in some steps than in others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.breakdown import main_phases
from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.looks import Code
from dsprof.events import CLASSES, Class
from dsprof.findings.beside.evaluations import are_of_evaluations
from dsprof.findings.beside.rated import counted
from dsprof.findings.facts import Facts
from dsprof.findings.seen.code_seen import mostly
from dsprof.findings.seen.places import place_of, seen_in
from dsprof.findings.thresholds import WAITING_EXPLAINS
from dsprof.units import format_share


class Grown(NamedTuple):
    """What takes longer, in sentences behind blanks, and the code that was seen to run then."""

    said: str = ""
    code: Code | None = None


def grown(
    facts: Facts, before: pd.DataFrame, after: pd.DataFrame, *, evaluating: bool = True
) -> Grown:
    """Which class of time grew most, or else which timer, where either is known; of time that none
    explains, between which phases it lies. Unless `evaluating`, evaluations are none of it."""
    rise = float(after["seconds"].mean() - before["seconds"].mean())
    if rise <= 0:  # steps that stick out hide it
        return Grown()
    known = [name for name in CLASSES if before[name].notna().any() or after[name].notna().any()]
    more = after[known].fillna(0.0).mean() - before[known].fillna(0.0).mean()
    name = str(more.idxmax()) if len(known) > 1 else Class.OTHER
    if name != Class.OTHER:
        return Grown(_of_what_was_added(float(more[name]) / rise, name))
    timer, longer = _longest_grown(facts, before, after, evaluating=evaluating)
    if longer >= WAITING_EXPLAINS * rise:
        return Grown(_of_what_was_added(longer / rise, timer))
    beyond = risen_between_steps(facts, before, after)
    if beyond >= WAITING_EXPLAINS * rise:
        return Grown(_of_what_was_added(beyond / rise, _between_steps(facts, after)))
    if len(known) > 1:
        where, code = outside_phases(facts, before, after)
        what = "time no timer explains" + f"; in these steps {where}" * bool(where)
        return Grown(_of_what_was_added(float(more[name]) / rise, what), code)
    unknown = "No single timer holds" if timer else "The source does not time"
    return Grown(f" {unknown} what grew.")


def risen_between_steps(facts: Facts, before: pd.DataFrame, after: pd.DataFrame) -> float:
    """Seconds a step that the later ones take longer outside of what DeepSpeed's rates count."""
    passed = [_between(facts, steps) for steps in (before, after)]
    return passed[1] - passed[0] if passed[0] is not None and passed[1] is not None else 0.0


def _between(facts: Facts, steps: pd.DataFrame) -> float | None:
    inside = counted(facts, steps)
    return None if inside is None else float((steps["seconds"] - inside.seconds).mean())


def _between_steps(facts: Facts, steps: pd.DataFrame) -> str:
    words = counted(facts, steps)
    return f"spent {words.apart}, where DeepSpeed's {words.figures} do not count" if words else ""


def is_of(steps: pd.DataFrame, longer: npt.NDArray[np.bool_], name: str) -> bool:
    """Whether what the `longer` steps take beyond the others is of that class. Where a few of the
    others stick out, no more than these may be left, which says nothing."""
    timed = steps[[name, "seconds"]].astype(float)
    more = timed[longer].mean() - timed[~longer].mean()
    return bool(more["seconds"] > 0 and more[name] >= WAITING_EXPLAINS * more["seconds"])


def outside_phases(
    facts: Facts, before: pd.DataFrame, after: pd.DataFrame, ranks: Sequence[int] = ()
) -> Grown:
    """Between which phases such time of a recording's later steps lies, in words that follow it, if
    that is known; of some ranks, what they need beyond the others."""
    place = place_of(facts, ranks, among=after)
    if place is None:
        return Grown()
    code = seen_in(facts, place, after, before)
    where = f"{place.words}{mostly(code)}"
    return Grown(f"{place.much} of that lies {where}", code)


def _of_what_was_added(share: float, what: str) -> str:
    return f" Of what was added, {format_share(min(share, 1.0))} is {what}."


def _longest_grown(
    facts: Facts, before: pd.DataFrame, after: pd.DataFrame, *, evaluating: bool
) -> tuple[str, float]:
    """The timer that grew most and by how many seconds a step, saving apart; "" without any."""
    was, now = (_own_seconds(facts, steps, evaluating=evaluating) for steps in (before, after))
    more = now.sub(was, fill_value=0.0)
    return (str(more.idxmax()), float(more.max())) if len(more) else ("", 0.0)


def _own_seconds(facts: Facts, steps: pd.DataFrame, *, evaluating: bool) -> pd.Series[float]:
    """Seconds a step of each timer without those inside it, the mean over the ranks."""
    phases = apart_from_saves(main_phases(steps, facts.run.phases))
    ranks = max(1, phases["rank"].nunique())
    if not evaluating:
        phases = phases[~are_of_evaluations(phases)]
    own: pd.Series[float] = phases.groupby(phases["name"].astype("str"))["self_seconds"].sum()
    return own / (len(steps) * ranks)
