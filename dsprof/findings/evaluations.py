"""Evaluations that a trainer states the duration of, or a recording times: what they take."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import main_phases
from dsprof.analysis.checkpoints import happened_in, waits_for_evaluations
from dsprof.analysis.rates import seconds_apart
from dsprof.analysis.trends import Floats, excess, spikes
from dsprof.events import Kind
from dsprof.findings.anew import compiles
from dsprof.findings.evidence import largest, longest_of, phase_evidence, row_evidence
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Advice, Finding, less_sure
from dsprof.findings.saves import mean_of, of_each, saving, steps_made, without_saving
from dsprof.findings.thresholds import (
    EVALUATION_CRITICAL,
    EVALUATION_WARNING,
    SPIKE_RATIO,
    grade,
)
from dsprof.recording.table import EVALUATION
from dsprof.run.bars import evaluated, evaluations_told
from dsprof.run.bars import of_training as bars_of_training
from dsprof.run.table import of_kind, where
from dsprof.units import format_seconds, format_share


class Taken(NamedTuple):
    """What evaluations took: `among` what, and where that is steps, the seconds of each; else the
    share of it, the `least` where the source may not show all of them."""

    rows: pd.DataFrame
    among: str
    cost: float | None = None
    share: float | None = None
    least: bool = False


@once
def evaluation_stall(facts: Facts) -> list[Finding] | str:
    """Evaluating stops training for a noticeable part of its time.

    Gain: half of it for half as many evaluations, nearly all for a small part of the batches.
    """
    if facts.run.is_recording and facts.breakdown is not None:
        return _recorded(facts)
    found = _taken(facts)
    if isinstance(found, str):
        return found
    share = found.share or (found.cost or 0.0) / training_step(facts)
    severity = grade(share, EVALUATION_WARNING, EVALUATION_CRITICAL)
    if severity is None:
        return []
    least = "at least " * found.least
    many, cost, longest = len(found.rows), found.cost, largest(found.rows, "took")
    took, held = float(found.rows["took"].sum()), float(_behind(facts, facts.series).sum())
    return [
        Finding(
            rule="evaluation-stall",
            severity=severity,
            title=f"Evaluating takes {least}{format_share(share)} of the training time",
            summary=f"{many:,} evaluation{'s' * (many != 1)} took {format_seconds(took)} "
            f"{found.among}{longest_of(found.rows, 'took')}"
            + (f": as if each step took {format_seconds(cost)} longer" if cost else "")
            + ". Training waits meanwhile."
            + (f" Of it, {format_seconds(held)} lie in the steps after them." if held else ""),
            share=share,
            seconds_per_step=cost,
            evidence=(row_evidence(longest, f"evaluation: {format_seconds(longest['took'])}"),),
            advice=less_often(facts),
            gain=promise(cost) if cost else None,
        )
    ]


def training_step(facts: Facts) -> float:
    """Seconds of a step with what saving and evaluating take of each, inside of it or beside, and,
    where a recording's engines take turns, with the turns of all."""
    apart = seconds_apart(facts.run, facts.steps)
    if apart:
        return apart
    took = None if facts.run.is_recording else _taken(facts)
    beside = took.cost if isinstance(took, Taken) else None
    inside = 0.0 if beside is None else float(_behind(facts, facts.steps).mean())
    return without_saving(facts) + saving(facts) + (beside or 0.0) - inside


@once
def _taken(facts: Facts) -> Taken | str:
    """What they took of the steps, else of the training, or why that is not known."""
    told = evaluations_told(facts.run.told)
    if told.empty:
        return "no line tells how long an evaluation takes"
    if not facts.step_seconds:
        of_all = _of_the_training(facts, told) or _of_the_last_bar(facts, told)
        return of_all or "no step has a time to compare evaluating with"
    found = _by_the_bar(facts, told) if _timed_by(facts, "bar") else _beside_steps(facts, told)
    return found or "the evaluations are not known to lie between the steps that are timed"


def evaluating(facts: Facts) -> float:
    """Seconds per step of a recording's evaluations, without what is of another class in them."""
    return float(_phases(facts)["seconds"].sum()) if facts.run.is_recording else 0.0


def evaluating_inside(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What the time of each step holds of evaluations that `evaluation-stall` prices."""
    if isinstance(found := evaluation_stall(facts), str) or not found:
        return np.zeros(len(steps))
    return evaluating_in(facts, steps) if facts.run.is_recording else _behind(facts, steps)


def evaluating_in(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What the time of each recorded step holds of evaluations, with what is of another class in
    them, and what ranks wait for one that evaluates longer."""
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


def _behind(facts: Facts, steps: pd.DataFrame) -> Floats:
    """By how much those that stick out behind an evaluation do, at most as long as that took.

    DeepSpeed's timers of forward go on in evaluations, and count them to the next step. From
    what bars tell they are left out.
    """
    told = happened_in(steps, evaluations_told(facts.run.told))
    took = told.groupby("within")["took"].sum().reindex(steps.index).fillna(0.0).to_numpy(float)
    seconds, held = steps["seconds"].to_numpy(dtype=float), np.zeros(len(steps))
    if not took.any():
        return held
    rows = spikes(seconds, SPIKE_RATIO)
    held[rows] = np.minimum(excess(seconds, rows), took[rows])
    return np.where(steps["seconds_from"] == "bar", 0.0, held)


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
    """How to evaluate less. Logs show evaluations of Hugging Face's Trainer alone; a recording
    those of any loop, which may have no such settings."""
    return _OF_LOOP if facts.run.is_recording else _OF_TRAINER


def _timed_by(facts: Facts, way: str) -> bool:
    return bool(facts.steps["seconds_from"].eq(way).any())


def _by_the_bar(facts: Facts, told: pd.DataFrame) -> Taken | None:
    """Of the time that the progress bar counts, which goes on during an evaluation.

    Not where evaluations are said to take longer than it counts around them.
    """
    table = evaluated(facts.run.told)
    out = float(table["evaluated"].sum())
    rows = told[told["record"] < table["record"].max()] if out else told[:0]
    if rows.empty or float(rows["took"].sum()) > 1.01 * out:
        return None
    covered, (until, _) = float(table["covers"].sum()), _over(facts, told)
    if len(until) > len(rows):  # behind the last bar, too
        rows, covered = until, float(steps_made(facts))
    return Taken(rows, _in_steps(covered), float(rows["took"].sum()) / covered)


def _over(facts: Facts, told: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Those of `told` that were made when the Trainer said that its training was over, and how many
    seconds it said that this took; none if it did not."""
    ends = of_kind(facts.run.told, Kind.METRIC, "train_runtime")
    if ends.empty:
        return told[:0], math.inf
    last = ends.iloc[-1]
    here = told["segment"].eq(last["segment"]) & told["source"].eq(last["source"])
    return where(told, here & (told["record"] < last["record"])), float(last["seconds"])


def _of_the_training(facts: Facts, told: pd.DataFrame) -> Taken | None:
    """Of all the time that the Trainer says its training took, without a price for each step: how
    many steps a resumed one made it does not say."""
    rows, seconds = _over(facts, told)
    took = float(rows["took"].sum())
    among = f"of the {format_seconds(seconds)} that the whole training took"
    return Taken(rows, among, share=took / seconds) if 0 < took < seconds else None


def _of_the_last_bar(facts: Facts, told: pd.DataFrame) -> Taken | None:
    """Of all the time that the last bar of the training counts, where no two of them time steps.
    Evaluations that this source does not show come on top."""
    last = bars_of_training(facts.run.told).tail(1)
    if last.empty:
        return None
    bar, elapsed = last.iloc[0], float(last["elapsed"].sum())
    rows = where(told, _while_training(facts, told) & (told["record"] < bar["record"]))
    for name in ("source", "segment"):  # a bar begins anew with its launch
        rows = where(rows, rows[name].astype("str").eq(str(bar[name])))
    took = float(rows["took"].sum())
    if not 0 < took < elapsed:
        return None
    among = f"of the {format_seconds(elapsed)} that the progress bar had counted"
    return Taken(rows, among, share=took / elapsed, least=True)


def _while_training(facts: Facts, evaluations: pd.DataFrame) -> pd.Series[bool]:
    """Which of them name an epoch, as the Trainer's do once its bar has begun."""
    one = ["source", "record"]
    epochs = of_kind(facts.run.told, Kind.METRIC, "epoch").astype({"source": "str"})
    mine = evaluations.astype({"source": "str"}).set_index(one).index
    return pd.Series(mine.isin(epochs.set_index(one).index), evaluations.index)


def _beside_steps(facts: Facts, told: pd.DataFrame) -> Taken | None:
    """Beside steps whose time holds no evaluation: that between two time stamps may."""
    steps = facts.run.steps
    many = len(steps[["segment", "engine", "source"]].drop_duplicates())
    if many > 1 or _timed_by(facts, "clock"):
        return None
    here = told["source"].astype("str").eq(str(steps["source"].iloc[0]))
    rows = told[here & told["line"].between(steps["line"].iloc[0], steps["line"].iloc[-1])]
    if rows.empty:
        return None
    covered = steps_made(facts)
    return Taken(rows, _in_steps(covered), float(rows["took"].sum()) / covered)


def _in_steps(many: float) -> str:
    return f"in {many:,.0f} step{'s' * (many != 1)}"
