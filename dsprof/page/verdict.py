"""The first screen: what is wrong, and the number that proves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from dsprof.analysis.breakdown import (
    averaged_steps,
    breakdown_of,
    main_steps,
    mean_of,
    without_first,
)
from dsprof.analysis.layout import offloads_optimizer
from dsprof.charts import LABEL, MIXED, STACK
from dsprof.events import Class
from dsprof.findings.finding import OF_TIMED, says_confidence
from dsprof.page import words
from dsprof.page.classes import drawn_classes, seen_whole
from dsprof.page.facts import facts
from dsprof.page.model import Among, Cell, Place
from dsprof.page.proofs import step_lines
from dsprof.run.steps.durations import window
from dsprof.units import format_seconds, format_share

if TYPE_CHECKING:
    from dsprof.findings import Finding
    from dsprof.page.steps import Typical
    from dsprof.run import Run


_MOVING: Final = str(Class.COMMUNICATION)

_UNTIMED: Final = "unaccounted-time"

#: What the share of a finding is spent on, where its title may count more than that.
_SPENT: Final = {
    "communication-bound": " is communication",
    "pipeline-bubble": " is waiting for other stages",
    "pipeline-imbalance": " is waiting for other stages",
    "straggler-rank": " is waiting for a late rank",
    _UNTIMED: " is what the timers leave of it",
}


class Told(NamedTuple):
    """A finding with what it costs and whom it concerns, in words."""

    finding: Finding
    cost: str
    note: str


def told(finding: Finding) -> Told:
    cost = f"{format_share(finding.share)} {_of(finding)}" if finding.share is not None else ""
    if not cost and finding.seconds_per_step is not None:
        cost = f"{format_seconds(finding.seconds_per_step)} per step"
    step = words.step_of(finding, None) if finding.what_if else None
    gain = words.what_if(finding, step, None)
    notes = [
        f"Gain {gain}" if gain else "",
        "" if says_confidence(finding) else f"{finding.confidence.capitalize()} confidence",
        _concerns(finding),
    ]
    return Told(finding, cost, " · ".join(filter(None, notes)))


def _of(finding: Finding) -> str:
    """What its share is a part of, as its title says it."""
    return OF_TIMED if OF_TIMED in finding.title else "of step time"


def _concerns(finding: Finding) -> str:
    """Whom and what a finding is about, and the rule that says so."""
    about = [
        _ranks_of(finding.ranks),
        f"Phase {finding.phase}" if finding.phase else "",
        _span(finding.steps),
        f"Rule {finding.rule}",
    ]
    return " · ".join(filter(None, about))


def _ranks_of(ranks: tuple[int, ...]) -> str:
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {words.ranges(ranks)}" if ranks else ""


def _span(steps: tuple[int, int] | None) -> str:
    return "" if steps is None else words.span(*steps, "Step")


@dataclass(frozen=True, slots=True)
class Part:
    """One class of an average step."""

    role: str
    label: str
    seconds: Cell
    share: str
    start: float  # percent of the step before it
    width: float  # percent of the step


@dataclass(frozen=True, slots=True)
class Verdict:
    """What stands on the first screen."""

    finding: Finding | None
    number: str
    proves: str
    among: Among | None  # the lines that the number is made of
    gain: str
    sure: str
    judged: str
    concerns: str
    step: Cell
    mean: str
    bound: str
    parts: list[Part]
    facts: list[tuple[str, Cell]]


def verdict(
    run: Run, phases: Mapping[int, Typical] | None = None, drawn: pd.DataFrame | None = None
) -> Verdict:
    """The first screen of a run.

    Args:
        phases: phases of the mean step by engine, which prove what it says of them.
        drawn: the steps in the classes that the page draws, if they are known.
    """
    found = run.findings[0] if run.findings else None
    main = averaged_steps(run.steps)
    mean = (phases or {}).get(int(main["engine"].iloc[0])) if len(main) else None
    step = mean_of(main, "seconds") if len(main) else None
    own = words.step_of(found, step) if found else step
    parts = _parts(drawn_classes(run.steps, run.phases) if drawn is None else drawn, run, mean)
    number, proves = _number(found, own, divided=bool(parts))
    whole = Cell(format_seconds(step) if step else "", among=step_lines(main, run.told, run.phases))
    proof = _proof(found, _of_engine(found, phases or {}, mean))
    return Verdict(
        finding=found,
        number=number,
        proves=proves,
        among=whole.among if found and _tells_nothing(found) else proof,
        gain=words.what_if(found, own, words.gpu_count(run)) if found else "",
        sure=_sure(found) if found else "",
        judged=" ".join(filter(None, [_job(run), _judged(run, main)])),
        concerns=_concerns(found) if found else "",
        step=whole,
        mean=_mean_of(run, main),
        bound=_bound(run.steps, "record" if run.counted else "step"),
        parts=parts,
        facts=facts(run),
    )


def _number(found: Finding | None, step: float | None, *, divided: bool) -> tuple[str, str]:
    """What proves a finding, and what that is of. `divided`: timers tell parts of the step."""
    if found is None:
        return "", ""
    if _tells_nothing(found):
        untold = _untold(found, divided=divided)
        return (format_seconds(step), f"per step{untold}") if step else ("", "")
    if found.share is not None:
        cost = found.seconds_per_step
        of = f" of {format_seconds(step)}" if step else ""
        spent = _SPENT.get(found.rule, "")
        if found.rule == _UNTIMED and not divided:
            spent = " is what DeepSpeed's own figures leave of it"
        what = f"{_of(found)}{spent}"
        return format_share(found.share), (
            f"{what}: {format_seconds(cost)}{of} per step" if cost else what
        )
    if found.seconds_per_step is not None:
        return format_seconds(found.seconds_per_step), "per step"
    return "", ""


def _sure(found: Finding) -> str:
    """How sure the finding is, and why; "" where its summary, just above, says so."""
    return "" if says_confidence(found) else words.CONFIDENCE.get(found.confidence, "")


def _tells_nothing(found: Finding) -> bool:
    """All of the step is unaccounted for: its time is what is measured, and no 100 % of it."""
    return found.rule == _UNTIMED and found.share in (None, 1)


def _untold(found: Finding, *, divided: bool) -> str:
    """What is not known of a step that timers tell nothing of, or not apart."""
    if found.phase:
        return "; what of it is communication is not known"
    return "" if divided else ", and no line says on what"


def _of_engine(
    found: Finding | None, phases: Mapping[int, Typical], judged: Typical | None
) -> Typical | None:
    """The phases of the engine that a finding speaks of."""
    if found is None or found.engine is None:
        return judged
    return phases.get(found.engine)


def _proof(found: Finding | None, mean: Typical | None) -> Among | None:
    """The lines of the phase that the finding names, else those it quotes."""
    if found is None:
        return None
    left = found.rule == _UNTIMED  # which no timer has
    lines = mean.named(found.phase) if mean and found.phase and not left else None
    if lines:
        return lines
    quoted = [Place.of(proof.source, proof.line) for proof in found.evidence]
    known = tuple(("", place) for place in dict.fromkeys(quoted) if place)
    return Among(known, len(known)) if known else None


#: How the time of a step is known where no line states it.
_RECKONED: Final = {
    "throughput": "The time of a step is the batch size over the samples/s of its line.",
    "rated": (
        "The time of a step is the sum of its timers, and what steps whose line has samples/s take "
        "beyond theirs in the mean."
    ),
    "bar": "The time of a step is what the training's progress bar took, within a tenth.",
    "timers": "The time of a step is the sum of its timers.",
    "clock": "The time of a step is what lies between the time stamps of two lines.",
}


def _job(run: Run) -> str:
    """Whose verdict this is, where files are of several jobs."""
    said = words.one_of_jobs(run.meta)
    return f"This is {said}. The others were left out." if said else ""


def _judged(run: Run, main: pd.DataFrame) -> str:
    """What the means are of: which launch, where there are several, and what kind of time."""
    if main.empty:
        return ""
    how = _RECKONED.get(str(main["seconds_from"].iloc[0]), "")
    return " ".join(filter(None, [_launch(run, main), how]))


def _launch(run: Run, main: pd.DataFrame) -> str:
    which = words.launch_of(run, main)
    if not which:
        return ""
    first, last = int(main["step"].iloc[0]), int(main["step"].iloc[-1])
    return f"Means are of {which}, {words.span(first, last, 'step')}: it took most time."


def _mean_of(run: Run, main: pd.DataFrame) -> str:
    """Which steps and ranks the average one is of, and what of the run is left aside."""
    if main.empty:
        return ""
    first, last = int(main["step"].iloc[0]), int(main["step"].iloc[-1])
    which = f"{first:,}" + ("" if first == last else f" to {last:,}")
    how = "record" if run.counted else f"{run.steps_were} step"
    many = words.rows_of(main, how)
    if window(main) != 1:
        which = f"{run.steps_were} at {which}"
    said = f"Mean of {many}" if len(main) > 1 else f"One {many.removeprefix('1 ')}"
    said += "" if run.counted else f", {which}"
    longer = (main["seconds"] != run.steps.loc[main.index, "seconds"]).any()
    told = longer and not main["seconds_from"].eq("rated").any()
    apart = [
        "whose whole time is known" if told else "",
        without_first(run.steps),
        "those that are timed alike" if len(main) < len(main_steps(run.steps)) else "",
    ]
    averaged = ", ".join(filter(None, [said, *apart])) + "."
    return f"{averaged} {words.of_ranks(run, main)}".rstrip()


def _bound(steps: pd.DataFrame, noun: str) -> str:
    """How many steps each class holds back, in words; empty where no step is known."""
    counts = steps["bound"].astype("object").fillna("unknown").value_counts()
    unknown = int(counts.get("unknown", 0))
    said = [f"{count:,} {bound}-bound" for bound, count in counts.items() if bound != "unknown"]
    if not said:
        return ""
    if len(said) == 1 and not unknown:
        many = words.rows_of(steps, noun)
        which = f"The {noun} is" if len(steps) == 1 else f"All {many} are"
        return f"{which} {said[0].split()[1]}."
    said += [f"{unknown:,} unknown"] if unknown else []
    return f"Of {words.rows_of(steps, noun)}: {', '.join(said)}."


def _lines_of(role: str, typical: Typical | None) -> Among | None:
    """The lines of a class; what no timer explains has none."""
    return typical.of_class(role) if typical and role != Class.OTHER else None


def _unseen(run: Run) -> str:
    """What the timers of communication show where more of it hides in others.

    With an offloaded optimizer that of reduction also holds copies of gradients to the host.
    """
    if offloads_optimizer(run.config):
        return "communication or copies to the host"
    return f"at least {LABEL[_MOVING]}"


def _held(run: Run) -> str:
    """What timers of compute hold besides, as the label's end."""
    said = f", with {run.exchanged}" if run.exchanged else ""
    if run.reduces_inside_backward:
        said += f", {'with' if run.zero.stage else 'perhaps with'} reduction inside backward"
    return said


def _parts(drawn: pd.DataFrame, run: Run, typical: Typical | None) -> list[Part]:
    """Classes of the average step, as wide as they last."""
    main = averaged_steps(drawn)
    mean = breakdown_of(main, run.phases.iloc[:0])  # classes are in the steps already
    if mean is None or not mean.seconds or not any(mean.classes.values()):
        return []
    mixed = {MIXED: float(main[MIXED].fillna(0).mean())}
    seconds = {role: (mean.classes | mixed).get(role, 0.0) for role in STACK}
    held = _held(run)
    label = LABEL | {Class.COMPUTE: LABEL[Class.COMPUTE] + held}
    if held or not seen_whole(run.steps):
        label |= {_MOVING: _unseen(run)}
    seconds["unknown"] = max(0.0, mean.seconds - sum(seconds.values()))
    whole = max(mean.seconds, sum(seconds.values()))
    parts, start = [], 0.0
    for role, value in seconds.items():
        width = 100 * value / whole
        if width >= 0.05:
            parts.append(
                Part(
                    role,
                    label[role],
                    Cell(format_seconds(value), among=_lines_of(role, typical)),
                    format_share(value / whole),
                    round(start, 3),
                    round(width, 3),
                )
            )
            start += width
    return parts
