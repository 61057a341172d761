"""Single steps that stick out: when they come, what they cost, and what in them is longer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.breakdown import known_by, weights_of
from dsprof.analysis.checkpoints import calls_of_saves
from dsprof.analysis.ranks import Straggler
from dsprof.analysis.trends import REPEATS, Floats, booked_late, excess, outliers, spikes
from dsprof.events import Severity
from dsprof.findings.beside.evaluations import (
    evaluating_by_class,
    evaluating_in,
    evaluating_inside,
    less_often,
)
from dsprof.findings.beside.saves import saving_inside, waiting
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.over_time.forwards import is_only_forward, less_evaluation, without_backward
from dsprof.findings.over_time.growth import Grown, grown, is_of, outside_phases
from dsprof.findings.over_time.look import look
from dsprof.findings.over_time.rhythm import (
    MOST,
    are_first,
    are_warm_up,
    period_of,
    said_of_rhythm,
    steps_apart,
    stretch_of,
)
from dsprof.findings.over_time.throughput import too_few
from dsprof.findings.over_time.updates import are_of_another
from dsprof.findings.proofs import step_proof
from dsprof.findings.ranks.backwards import more_in_them
from dsprof.findings.ranks.lateness import is_late, late_in, waited
from dsprof.findings.resources.flushes import flushed_in, less_memory
from dsprof.findings.resources.memory import memory_growth
from dsprof.findings.seen import code_seen
from dsprof.findings.seen.anew import COMPILED_ANEW, compiling, is_compiling, iterating
from dsprof.findings.thresholds import (
    EVIDENCE_STEPS,
    MUCH_SLOWER,
    SPIKE_RATIO,
    SPIKES_CRITICAL,
    SPIKES_WARNING,
    WAITING_EXPLAINS,
    WORTH_NAMING,
    grade,
)
from dsprof.run.steps.durations import averages, called
from dsprof.run.steps.seldom import SELDOM
from dsprof.units import format_seconds, format_share


@once
def step_spikes(facts: Facts) -> list[Finding] | str:
    """Single steps that take much longer than their neighbours.

    Gain: up to all they take too long. Nothing, where what they do has to be done.
    """
    steps = facts.series
    seconds, rows, over = _sticking_out(facts)
    sure = len(steps) >= EVIDENCE_STEPS
    if not sure and not len(rows):
        return too_few(steps)
    few, cost = _are_few(steps), _mean_cost(facts, rows, over)
    share = cost.share
    if _severity(cost) is None:
        return []
    price = _price(facts, seconds, rows, over)
    severity = _severity(price)
    if severity is None:
        return []
    if are_warm_up(steps, rows):
        severity = Severity.INFO
    elif not sure and severity is Severity.CRITICAL:
        severity = Severity.WARNING  # how often it happens is unknown
    late = late_in(facts, steps.iloc[rows], float(over.mean()))
    distance = steps_apart(steps, period_of(rows))
    stretch = stretch_of(steps, rows)
    rhythm = f", one every {distance:,} steps," if distance else stretch and f", all {stretch},"
    computes = not late and _is_of(steps, rows, "compute")
    if computes and are_of_another(facts, steps, rows):
        return [_of_another(facts, seconds, rows, over, rhythm)]
    flushed = flushed_in(facts, steps, np.isin(np.arange(len(steps)), rows))
    evaluates = not late and _evaluates(facts, rows, over)
    compiled = compiling(facts, steps, rows)
    begun = are_warm_up(steps, rows) or (bool(stretch) and are_first(steps, rows))
    longer = _longer(facts, steps.assign(seconds=seconds), rows, late)
    seen = code_seen.change(longer.code)
    around = (_BEGUN,) if begun else look(facts, late, comes_and_goes=True) if stretch else (LOOK,)
    return [
        Finding(
            rule="step-spikes",
            severity=severity,
            title=f"{len(rows):,} of {len(steps):,} {'printed ' * few}{called(steps)} "
            f"{'sticks' if len(rows) == 1 else 'stick'} out"
            + ("" if few else rhythm)
            + f" and cost{'s' * (len(rows) == 1)} {_said(share, price, few=few)}"
            + is_late(late, len(rows))
            + code_seen.mostly(longer.code)
            + ("" if late else _EVALUATING * evaluates or is_compiling(compiled, rows)),
            summary=_how_long(steps, seconds, rows)
            + (waited(facts, late, "them") if late else "")
            + longer.said
            + flushed
            + without_backward(facts, rows)
            + more_in_them(facts, rows)
            + (
                _between(facts, price)
                if few
                else said_of_rhythm(distance, stretch, len(rows), compiled, begun=begun)
            )
            + ("" if sure else " How often such steps come, so few do not tell."),
            share=price.share if price else None,
            seconds_per_step=price.seconds if price else None,
            ranks=late.group if late else (),
            phase=(late.phase or None) if late else None,
            steps=(int(steps["step"].iloc[rows[0]]), int(steps["step"].iloc[rows[-1]])),
            evidence=_worst(facts, rows, over) + code_seen.proof(longer.code),
            advice=_of_what_they_do(facts, flushed, evaluates=evaluates, compiled=compiled)
            or (*_of_what_is_longer(facts, rows, distance), *(seen or around)),
            gain=(0.0, price.seconds) if price else None,
            confidence="high" if sure else "medium",
        )
    ]


def _of_another(
    facts: Facts, seconds: Floats, rows: npt.NDArray[np.intp], over: Floats, rhythm: str
) -> Finding:
    """A note: what the model learns by is no fault."""
    steps = facts.series
    return Finding(
        rule="step-spikes",
        severity=Severity.INFO,
        title=f"{len(rows):,} of {len(steps):,} {called(steps)} stick out{rhythm.rstrip(',')}: "
        "another of the model's optimizers ends them",
        summary=f"{_how_long(steps, seconds, rows)} They are updates of another part of the model, "
        "as of a generator, and compute what this takes.",
        steps=(int(steps["step"].iloc[rows[0]]), int(steps["step"].iloc[rows[-1]])),
        evidence=_worst(facts, rows, over),
    )


def _worst(facts: Facts, rows: npt.NDArray[np.intp], over: Floats) -> tuple[Evidence, ...]:
    longest = rows[np.argsort(over)[::-1][:3]]
    return tuple(step_proof(facts, facts.series.iloc[int(row)]) for row in longest)


def _how_long(steps: pd.DataFrame, seconds: Floats, rows: npt.NDArray[np.intp]) -> str:
    longest, usual = _longest(steps, seconds, rows), format_seconds(float(np.median(seconds)))
    if len(rows) == 1:
        return f"It takes {longest} instead of {usual}."
    return (
        f"They take at least {SPIKE_RATIO} times as long as their neighbours, the longest "
        f"{longest} instead of {usual}."
    )


def _longest(steps: pd.DataFrame, seconds: Floats, rows: npt.NDArray[np.intp]) -> str:
    row = rows[np.argmax(seconds[rows])]
    many = averages(steps).iloc[row]
    mean = f" a step in the mean of its {many:,.0f}" if many > 1 else ""
    apart = float(steps["seconds"].iloc[row]) - float(seconds[row]) > WORTH_NAMING * seconds[row]
    told = " beside what evaluating and saving take," if apart else ""
    return format_seconds(float(seconds[row])) + mean + told


@dataclass(frozen=True, slots=True)
class _Price:
    """What they cost, as seconds of each step and as a share of its time.

    `graded`: as a share of what is timed of it.
    """

    seconds: float
    share: float
    graded: float
    is_bound: bool = False


def _are_few(steps: pd.DataFrame) -> bool:
    """These are single steps, such as each tenth, and those between them are of no row."""
    return known_by(steps) == "throughput" and bool(steps["step"].diff().median() > 1)


def _price(
    facts: Facts, seconds: Floats, rows: npt.NDArray[np.intp], over: Floats
) -> _Price | None:
    """None where steps without a row are other than these, and nothing says how long they take."""
    steps, every = facts.series, facts.step_seconds
    if _are_few(steps):
        if SELDOM in facts.doubts:
            return None
        if every and every < float(seconds.mean()):
            beyond = every - float(np.delete(seconds, rows).mean())
            least = float(over.sum()) / float(np.ptp(steps["step"].to_numpy(dtype=float)))
            cost = max(beyond, least)
            return _Price(cost, cost / every, cost / every, is_bound=True)
    return _mean_cost(facts, rows, over)


def _mean_cost(facts: Facts, rows: npt.NDArray[np.intp], over: Floats) -> _Price:
    """Over all steps: a row may be the mean of few or of many. Where the seconds of each are its
    timers alone, the share is still of all that a step takes."""
    steps = facts.series
    weights = weights_of(steps)
    beyond, seconds = np.zeros(len(steps)), steps["seconds"].to_numpy(dtype=float)
    beyond[rows] = over
    cost, mean = (float(np.average(each, weights=weights)) for each in (beyond, seconds))
    whole = 0.0 if _are_few(steps) else facts.average or 0.0
    return _Price(cost, cost / max(mean, whole), cost / mean)


def _severity(price: _Price | None) -> Severity | None:
    """A note where the price is unknown."""
    if price is None:
        return Severity.INFO
    return grade(price.graded, SPIKES_WARNING, SPIKES_CRITICAL)


def _said(share: float, price: _Price | None, *, few: bool) -> str:
    if price and price.is_bound:
        return f"up to {format_share(price.share)} of the time"
    return f"{format_share(share)} of {'their' if few else 'the'} time"


def _between(facts: Facts, price: _Price | None) -> str:
    """What is known of the steps that have no rate."""
    if price is None:
        return (
            " The steps between them have no rate and are unlike these: what such steps cost of "
            "all the time is unknown."
        )
    if price.is_bound:
        return (
            f" By the clock all steps take {format_seconds(facts.step_seconds or 0.0)} in the "
            f"mean, {format_seconds(price.seconds)} more than those that do not stick out: such "
            "steps cost no more."
        )
    return " The steps between them have no rate."


LOOK: Final = Advice(
    "what happens at these steps",
    "",
    "less often, or beside training",
    "checkpoints, evaluation, logging, profiling, data shards, garbage collection cause such steps",
)


_BEGUN: Final = Advice(
    "what only the first steps do",
    "",
    "before training, or keep it for the next launch",
    "caches that fill, memory that is allocated, kernels that are tuned, workers that start",
)

_EVALUATING: Final = ": most of it is evaluation"


def _evaluates(facts: Facts, rows: npt.NDArray[np.intp], over: Floats) -> bool:
    """Whether most of what they take longer is evaluation, too little of the run for a finding of
    its own: otherwise it is not in `over`."""
    if evaluating_inside(facts, facts.series).any():
        return False
    evaluation = evaluating_in(facts, facts.series)
    more = evaluation[rows] - np.median(evaluation)
    return bool(more.sum() >= WAITING_EXPLAINS * over.sum())


def _of_what_they_do(
    facts: Facts, flushed: str, *, evaluates: bool, compiled: int
) -> tuple[Advice, ...]:
    """None where the source does not say what they do."""
    if flushed:
        return less_memory(facts)
    if evaluates:
        return less_often(facts)
    return (COMPILED_ANEW,) if compiled else ()


def _of_what_is_longer(
    facts: Facts, rows: npt.NDArray[np.intp], distance: int | None
) -> tuple[Advice, ...]:
    """What usually makes such a part of steps longer."""
    return (
        *_workers(facts, rows),
        *less_evaluation(facts, rows),
        *_lengths(facts, rows, distance),
    )


def _lengths(facts: Facts, rows: npt.NDArray[np.intp], distance: int | None) -> tuple[Advice, ...]:
    """What to look at first where steps only compute longer, at no interval."""
    if distance is not None or len(rows) < REPEATS or is_only_forward(facts, rows):
        return ()
    if _keeps_more(facts) or not _is_of(facts.series, rows, "compute"):
        return ()
    why = "a longer batch computes longer, and nothing else of these steps grew as much"
    return (Advice("lengths of the batches", "", "alike: packed, or grouped by length", why),)


def _keeps_more(facts: Facts) -> bool:
    """Whether memory grows all the time: that makes steps longer, too."""
    found = memory_growth(facts)
    return isinstance(found, list) and any(one.severity is not Severity.INFO for one in found)


def _workers(facts: Facts, rows: npt.NDArray[np.intp]) -> tuple[Advice, ...]:
    """Of a recording, whose time of data is that of PyTorch's loader."""
    if not facts.run.is_recording or not _is_of(facts.series, rows, "data"):
        return ()
    config = facts.run.config
    if not config.get("data_workers"):  # none is started, and PyTorch refuses the setting
        return ()
    if config.get("data_workers_persist") or not iterating(facts, facts.series, rows):
        return ()
    why = "these steps make iterators of loaders: as of an epoch, their workers need not restart"
    return (Advice("DataLoader(persistent_workers=...)", "", "True", why),)


def keep_time(facts: Facts) -> bool:
    """Whether the steps that stick out keep to an interval."""
    return period_of(_sticking_out(facts)[1]) is not None


def are_of(facts: Facts, name: str) -> bool:
    """Whether what is longer in the steps that stick out is of that class."""
    return _is_of(facts.series, _sticking_out(facts)[1], name)


def _is_of(steps: pd.DataFrame, rows: npt.NDArray[np.intp], name: str) -> bool:
    """Whether what is longer in these steps is of that class."""
    return is_of(steps, np.isin(np.arange(len(steps)), rows), name)


def are_most_of(facts: Facts, first: int, last: int) -> bool:
    """Whether the steps that stick out are most of a stretch of steps, and all in it."""
    steps = facts.series["step"]
    out = steps.iloc[_sticking_out(facts)[1]]
    within = steps.between(first, last)
    return bool(out.between(first, last).all()) and len(out) > MOST * int(within.sum())


@once
def without_spikes(facts: Facts) -> Facts:
    """The other steps of a run whose spikes are a finding: what they cost is told there. Nor
    those that stick out for an evaluation, of a log: of a recording it is a phase of its own.

    All of them, where only those that stick out are divided.
    """
    found = step_spikes(facts)
    out = evaluating_inside(facts, facts.series) > (np.inf if facts.run.is_recording else 0.0)
    if not isinstance(found, str) and found:
        out[_sticking_out(facts)[1]] = True
    if not out.any():
        return facts
    rows = facts.series.index[out].intersection(facts.steps.index)
    others = replace(facts, stuck_out=tuple(rows), answers={})
    return facts if others.breakdown is None else others


@once
def _sticking_out(facts: Facts) -> tuple[Floats, npt.NDArray[np.intp], Floats]:
    """Seconds of steps without saving and evaluating, which have findings of their own, rows of
    those that stick out, and by how much."""
    seconds = facts.series["seconds"].to_numpy(dtype=float) - _saving(facts)
    seconds -= evaluating_inside(facts, facts.series)
    are_few = len(seconds) < EVIDENCE_STEPS
    rows = outliers(seconds, MUCH_SLOWER) if are_few else spikes(seconds, SPIKE_RATIO)
    rows = rows[~booked_late(seconds, rows)]
    return seconds, rows, excess(seconds, rows)


def _saving(facts: Facts) -> Floats:
    """What saving takes of each step, its collectives too: `checkpoint-stall` judges that."""
    steps = facts.series
    saving: Floats = steps["checkpoint"].fillna(0.0).to_numpy(dtype=float, copy=True)
    calls = calls_of_saves(facts.series_phases)
    if len(calls):
        of_step = calls.groupby("step")["self_seconds"].sum() / max(1, calls["rank"].nunique())
        saving += steps["step"].map(of_step).fillna(0.0).to_numpy(dtype=float)
    return saving + waiting(facts, steps) + saving_inside(facts, steps)


def _longer(
    facts: Facts, steps: pd.DataFrame, rows: npt.NDArray[np.intp], late: Straggler | None
) -> Grown:
    """Which class of time, or timer, is longer in them, of what is timed beside saving, and beside
    evaluating that has a finding of its own. Of late ranks, where they lose what no phase holds."""
    if late:
        others = np.delete(np.arange(len(steps)), rows)
        where = outside_phases(facts, steps.iloc[others], steps.iloc[rows], late.group)
        if late.phase or not where.said:
            return Grown()
        return Grown(f" {where.said[:1].upper()}{where.said[1:]}.", where.code)
    steps = steps.assign(checkpoint=np.nan)
    apart = evaluating_by_class(facts, facts.series)
    for name, took in apart.items():
        steps[name] = (steps[name] - took).clip(lower=0.0)
    out = np.zeros(len(steps), bool)
    out[rows] = True
    return grown(facts, steps[~out], steps[out], evaluating=not apart)
