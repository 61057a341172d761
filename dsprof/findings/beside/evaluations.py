"""Evaluations that a trainer states the duration of, the clock shows, or a recording times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import main_phases
from dsprof.analysis.checkpoints import waits_for_evaluations
from dsprof.analysis.rates import seconds_apart
from dsprof.analysis.trends import Floats
from dsprof.findings.beside.evaluations_told import Taken, behind, taken, timed_by
from dsprof.findings.beside.saves import FEWER, INFERRED, mean_of, of_each, saving, without_saving
from dsprof.findings.evidence import largest, longest_of, phase_evidence, row_evidence
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Advice, Finding, less_sure
from dsprof.findings.seen.anew import compiles
from dsprof.findings.thresholds import (
    EVALUATION_CRITICAL,
    EVALUATION_WARNING,
    grade,
)
from dsprof.recording.table import EVALUATION
from dsprof.run.steps.evaluations import evaluations_told
from dsprof.run.table import where
from dsprof.units import format_seconds, format_share


@once
def evaluation_stall(facts: Facts) -> list[Finding] | str:
    """Evaluating stops training for a noticeable part of its time.

    Gain: half of it for half as many evaluations, nearly all for a small part of the batches.
    """
    if facts.run.is_recording and facts.breakdown is not None:
        return _recorded(facts)
    found = taken(facts)
    if isinstance(found, str):
        return found
    share = found.share or (found.cost or 0.0) / training_step(facts)
    severity = grade(share, EVALUATION_WARNING, EVALUATION_CRITICAL)
    if severity is None:
        return []
    many, cost, longest = len(found.rows), found.cost, largest(found.rows, "took")
    what = "Evaluating and saving take" if found.saving else "Evaluating takes"
    took, within = float(found.rows["took"].sum()), float(behind(facts, facts.series).sum())
    return [
        Finding(
            rule="evaluation-stall",
            severity=severity,
            title=f"{what} {found.bound}{format_share(share)} of the training time",
            summary=f"{many:,} evaluation{'s' * (many != 1)}{_with_saves(found)} took "
            f"{format_seconds(took)} {found.among}{longest_of(found.rows, 'took')}"
            + (f": as if each step took {format_seconds(cost)} longer" if cost else "")
            + ". Training waits meanwhile."
            + _of_steps(facts, within)
            + (INFERRED + _WITH) * found.inferred,
            share=share,
            seconds_per_step=cost,
            evidence=(row_evidence(longest, _said_of(longest, found)),),
            confidence="medium" if found.inferred else "high",
            advice=_advice(facts, found),
            gain=promise(cost) if cost else None,
        )
    ]


def _advice(facts: Facts, found: Taken) -> tuple[Advice, ...]:
    first, *others = less_often(facts)
    return (first, FEWER, *others) if found.saving else (first, *others)


def _said_of(one: pd.Series[Any], found: Taken) -> str:
    what = "evaluation and save" if found.inferred and one["saving"] else "evaluation"
    return f"{what}: {format_seconds(one['took'])}"


def _with_saves(found: Taken) -> str:
    if not found.saving:
        return ""
    many = "each" if found.saving == len(found.rows) else f"{found.saving:,}"
    return f" ({many} with a save beside it)"


_WITH: Final = " Whatever else the job does there, as where an epoch begins, is part of it."


def _of_steps(facts: Facts, within: float) -> str:
    """How much of it the time of steps holds, `within` all that are judged."""
    if not within:
        return ""
    if timed_by(facts, "clock"):
        mean = mean_of(facts, behind(facts, facts.steps))
        return f" The mean step here holds {format_seconds(mean)} of evaluating."
    return f" Of it, {format_seconds(within)} lie in the steps after them."


def training_step(facts: Facts) -> float:
    """Seconds of a step with what saving and evaluating take of each, inside of it or beside, and,
    where a recording's engines take turns, with the turns of all."""
    apart = seconds_apart(facts.run, facts.steps)
    if apart:
        return apart
    took = None if facts.run.is_recording else taken(facts)
    beside = took.cost if isinstance(took, Taken) else None
    inside = 0.0 if beside is None else float(behind(facts, facts.steps).mean())
    return without_saving(facts) + saving(facts) + (beside or 0.0) - inside


def evaluating(facts: Facts) -> float:
    """Seconds per step of a recording's evaluations, without what is of another class in them."""
    return float(_phases(facts)["seconds"].sum()) if facts.run.is_recording else 0.0


def evaluating_inside(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What the time of each step holds of evaluations that `evaluation-stall` prices."""
    if isinstance(found := evaluation_stall(facts), str) or not found:
        return np.zeros(len(steps))
    return evaluating_in(facts, steps)


def evaluating_in(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What the time of each step holds of evaluations; of a recording, with what is of another
    class in them, and what ranks wait for one that evaluates longer."""
    if not facts.run.is_recording:
        return behind(facts, steps)
    phases = main_phases(steps, facts.run.phases)
    many = max(1, phases["rank"].nunique())
    each = phases[phases["name"] == EVALUATION].groupby("step")["seconds"].sum() / many
    own = steps["step"].map(each).fillna(0.0).to_numpy(dtype=float)
    return own + _waiting(facts, steps)


def evaluating_by_class(facts: Facts, steps: pd.DataFrame) -> dict[str, Floats]:
    """Of which classes of time the same is that `evaluating_inside` holds of recorded steps."""
    if not facts.run.is_recording or not evaluating_inside(facts, steps).any():
        return {}
    phases = main_phases(steps, facts.run.phases)
    phases, many = phases[are_of_evaluations(phases)], max(1, phases["rank"].nunique())
    each = phases.groupby([phases["class"].astype("str"), "step"])["self_seconds"].sum() / many
    found = {str(name): of_each(each[name], steps) for name in each.index.unique(0)}
    return found | {"communication": found.get("communication", 0.0) + _waiting(facts, steps)}


def are_of_evaluations(phases: pd.DataFrame) -> pd.Series[bool]:
    """Which phases are evaluations, or lie in one."""
    return phases["name"].eq(EVALUATION) | phases["parent"].eq(EVALUATION)


def waiting_for_evaluations(facts: Facts) -> float:
    """What ranks wait in the mean step for one that evaluates longer than they do, or alone."""
    return mean_of(facts, _waiting(facts, facts.steps))


def _waiting(facts: Facts, steps: pd.DataFrame) -> Floats:
    """The same of each step. What is no evaluation, because most steps hold it, a rank may be late
    by: then its waits are of other rules. Where ranks meet inside, they wait there."""
    if not _is_rare(facts) or _meeting(facts):
        return np.zeros(len(steps))
    return of_each(_waits(facts), steps)


@once
def _waits(facts: Facts) -> pd.Series[float]:
    return waits_for_evaluations(facts.run.phases)


@once
def _is_rare(facts: Facts) -> bool:
    """Whether a recording has what it calls evaluation, and less than half of its steps hold it."""
    phases = facts.phases
    held = facts.steps["step"].isin(phases.loc[phases["name"] == EVALUATION, "step"])
    return facts.run.is_recording and bool(held.any() and 2 * held.sum() < len(held))


def meeting_in_evaluations(facts: Facts) -> float:
    """Seconds per step of collectives inside of evaluations, which `evaluation-stall` prices."""
    found = evaluation_stall(facts)
    return _meeting(facts) if not isinstance(found, str) and found else 0.0


def of_training(facts: Facts, comm: pd.DataFrame) -> pd.DataFrame:
    """Calls without those inside of evaluations that are a finding."""
    if not meeting_in_evaluations(facts):
        return comm
    return where(comm, ~comm["phase"].astype("str").str.startswith(EVALUATION))


def _meeting(facts: Facts) -> float:
    """The same of evaluations that are told from training, whether or not they are a finding."""
    if facts.breakdown is None or not _is_rare(facts):
        return 0.0
    return float(_calls(facts)["seconds"].sum())


def _calls(facts: Facts) -> pd.DataFrame:
    """Collectives inside, as of models that gather the parameters of each module."""
    table = facts.phases_of("communication")
    return table[table.index.str.endswith(_INSIDE)]


_INSIDE: Final = f"_in_{EVALUATION}"


def _phases(facts: Facts) -> pd.DataFrame:
    table = facts.phases_of("other")
    return table[table.index == EVALUATION]


def _recorded(facts: Facts) -> list[Finding]:
    """What a recording calls evaluation, forwards without a backward, is one if it comes rarely:
    in most steps it may as well be generating, or scoring."""
    waits, calls = waiting_for_evaluations(facts), _meeting(facts)
    is_rare = _is_rare(facts)
    cost = evaluating(facts) + waits + calls
    share = facts.share(cost) or 0.0
    severity = grade(share, EVALUATION_WARNING, EVALUATION_CRITICAL)
    if severity is None:
        return []
    what = "Evaluating takes" if is_rare else "Forwards without a backward take"
    of = "the training time" if facts.engine is None else "a step"
    around = (
        "Code of the script around them is not included."
        if is_rare
        else "They are in most steps: whether they generate, score or evaluate, the recording "
        "cannot tell."
    )
    found = Finding(
        rule="evaluation-stall",
        severity=severity,
        title=f"{what} {format_share(share)} of {of}",
        summary=f"The model's forwards without a backward take {format_seconds(cost)} of "
        f"{format_seconds(facts.average or 0.0)} per step ({facts.windows})"
        + (f", {format_seconds(waits)} of it as waiting for {_LONGER}" if waits else "")
        + (f", {format_seconds(calls)} of it in collectives" if calls else "")
        + f". {around}",
        share=share,
        seconds_per_step=cost,
        phase=EVALUATION,
        evidence=phase_evidence(pd.concat([_phases(facts), _calls(facts).head(2 * bool(calls))])),
        advice=less_often(facts) if is_rare else _LARGER,
        gain=promise(cost) if is_rare else None,
    )
    return [_may_compile(found) if _is_where_graphs_are_compiled(facts) else found]


def _is_where_graphs_are_compiled(facts: Facts) -> bool:
    """Whether most of the time of evaluations is in steps that compile graphs: the first one of a
    compiled model compiles its own.
    """
    took = evaluating_in(facts, facts.steps)
    return bool(2 * took[compiles(facts, facts.steps)].sum() > took.sum())


def _may_compile(found: Finding) -> Finding:
    why = (
        "most of it is in steps in which torch.compile compiles graphs, which may be those of the "
        "evaluation and are then compiled once"
    )
    return replace(less_sure(found, "low", why), gain=None)


_LONGER: Final = "ranks that evaluate longer than others"
_FEWER: Final = "without backward and optimizer more samples fit, and fewer batches are run"
_LARGER: Final = (Advice("batches of forwards without a backward", "", "larger", _FEWER),)
_OFTEN: Final = "half as many evaluations cost half"
_LESS_DATA: Final = Advice(
    "evaluation data set", "", "a part of it", "half as many batches cost half"
)
_OF_TRAINER: Final = (
    Advice("eval_steps", "", "twice as many, or more", _OFTEN),
    _LESS_DATA,
    Advice("per_device_eval_batch_size", "", "larger", _FEWER),
)
_OF_LOOP: Final = (
    Advice("steps between evaluations", "", "twice as many, or more", _OFTEN),
    _LESS_DATA,
    Advice("batches of an evaluation", "", "larger", _FEWER),
)


def less_often(facts: Facts) -> tuple[Advice, ...]:
    """How to evaluate less, by the settings of Hugging Face's Trainer if it says how long it took;
    any other loop may have no such settings."""
    return _OF_LOOP if evaluations_told(facts.run.told).empty else _OF_TRAINER
