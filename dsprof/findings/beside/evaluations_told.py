"""Evaluations that a log tells of: what they took, and what of it the steps around them hold."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.apart import distances, happened_in, held, of_evaluations
from dsprof.analysis.evaluations import evaluations_between
from dsprof.analysis.trends import Floats, excess, spikes
from dsprof.events import Kind
from dsprof.findings.beside.saves import saved, steps_made
from dsprof.findings.facts import Facts, once
from dsprof.findings.thresholds import SPIKE_RATIO
from dsprof.run.steps.bars import evaluated
from dsprof.run.steps.bars import of_training as bars_of_training
from dsprof.run.steps.evaluations import evaluations_told
from dsprof.run.table import of_kind, where
from dsprof.units import format_seconds


class Taken(NamedTuple):
    """What evaluations took: `among` what, and where that is steps, the seconds of each; else the
    share of it. `bound`: "at least " where the source may not show all of them, "up to " or
    "about " where it is `inferred` from how far apart steps are."""

    rows: pd.DataFrame
    among: str
    cost: float | None = None
    share: float | None = None
    bound: str = ""
    inferred: bool = False

    @property
    def saving(self) -> int:
        """Beside how many the job also saved, for so long as nothing tells."""
        return int(self.rows["saving"].sum()) if self.inferred else 0


@once
def taken(facts: Facts) -> Taken | str:
    """What they took of the steps, else of the training, or why that is not known."""
    told = evaluations_told(facts.run.told)
    if told.empty:
        return _between(facts) or "no line tells how long an evaluation takes"
    if not facts.step_seconds:
        of_all = _of_the_training(facts, told) or _of_the_last_bar(facts, told)
        return of_all or "no step has a time to compare evaluating with"
    found = _by_the_bar(facts, told) if timed_by(facts, "bar") else _beside_steps(facts, told)
    return found or "the evaluations are not known to lie between the steps that are timed"


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
    return Taken(rows, among, share=took / elapsed, bound="at least ")


def _while_training(facts: Facts, evaluations: pd.DataFrame) -> pd.Series[bool]:
    """Which of them name an epoch, as the Trainer's do once its bar has begun."""
    one = ["source", "record"]
    epochs = of_kind(facts.run.told, Kind.METRIC, "epoch").astype({"source": "str"})
    mine = evaluations.astype({"source": "str"}).set_index(one).index
    return pd.Series(mine.isin(epochs.set_index(one).index), evaluations.index)


def _beside_steps(facts: Facts, told: pd.DataFrame) -> Taken | None:
    """Those between steps that are timed; of one launch, engine and source."""
    steps = facts.run.steps
    if len(steps[["segment", "engine", "source"]].drop_duplicates()) > 1:
        return None
    if timed_by(facts, "clock"):
        rows = _within_the_clock(facts)
    else:
        here = told["source"].astype("str").eq(str(steps["source"].iloc[0]))
        rows = told[here & told["line"].between(steps["line"].iloc[0], steps["line"].iloc[-1])]
    if rows.empty:
        return None
    covered = steps_made(facts)
    return Taken(rows, _in_steps(covered), float(rows["took"].sum()) / covered)


def _within_the_clock(facts: Facts) -> pd.DataFrame:
    """Evaluations between stamped steps; none where they are said to take longer than the clock
    counts around them."""
    rows = _shown(facts)
    took = rows.groupby("within")["took"].sum()
    passed = _apart(facts)["elapsed"][took.index]
    return rows[: 0 if (took > 1.01 * passed).any() else None]


def _between(facts: Facts) -> Taken | None:
    """By how much further apart steps are. Whatever else happens there is in it, and evaluations
    that take no longer than steps waver are not."""
    rows = _shown(facts)
    some = rows[rows["took"].notna()]
    if some.empty or not facts.step_seconds:
        return None
    covered = steps_made(facts)
    cost = float(some["took"].sum()) / covered
    bound = "up to " if len(some) == len(rows) else "about "
    return Taken(some, _in_steps(covered), cost, bound=bound, inferred=True)


def _in_steps(many: float) -> str:
    return f"in {many:,.0f} step{'s' * (many != 1)}"


@once
def _apart(facts: Facts) -> pd.DataFrame:
    return distances(facts.run.steps)


@once
def _shown(facts: Facts) -> pd.DataFrame:
    """Evaluations between steps, with what they took if the source states that or the clock shows
    it, and the row of steps `within` which they lie."""
    events = facts.run.told
    told = evaluations_told(events)
    if told.empty and of_evaluations(events).empty:
        return told.assign(within=pd.Series(dtype="int64"))
    if told.empty:
        return evaluations_between(events, _apart(facts), saved(facts))
    return happened_in(_apart(facts), told)


def behind(facts: Facts, steps: pd.DataFrame) -> Floats:
    """What the time of each step holds of the evaluation before it.

    Where the clock tells it, all; else, as DeepSpeed's timers of forward go on in evaluations and
    count them to the next step, by how much those that stick out behind one do, at most as long as
    that took. From what bars tell they are left out.
    """
    told = evaluations_told(facts.run.told)
    if told.empty or timed_by(facts, "clock"):
        took = _shown(facts).set_index("within")["took"].dropna()
        beyond = held(_apart(facts), took, steps) if len(took) else np.zeros(len(steps))
        return np.asarray(beyond, np.float64)
    each = happened_in(steps, told).groupby("within")["took"].sum()
    before = each.reindex(steps.index).fillna(0.0).to_numpy(float)
    seconds, beyond = steps["seconds"].to_numpy(dtype=float), np.zeros(len(steps))
    if not before.any():
        return beyond
    rows = spikes(seconds, SPIKE_RATIO)
    beyond[rows] = np.minimum(excess(seconds, rows), before[rows])
    return np.where(steps["seconds_from"] == "bar", 0.0, beyond)


def timed_by(facts: Facts, way: str) -> bool:
    return bool(facts.steps["seconds_from"].eq(way).any())
