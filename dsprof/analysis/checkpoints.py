"""How long saving took, each time."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.run.bars import evaluated
from dsprof.run.steps import whole_steps
from dsprof.run.table import among, of_kind, where, within

_BEGIN = "checkpoint_begin"
_END = ("checkpoint_ready", "checkpoint_end")
#: How calls inside a recorded save are named.
IN_SAVES = "_in_checkpoint"
_TIMED = ("save-checkpoint", "save_checkpoint")
#: What else a job may do between two steps, beside saving.
_ALSO: Final = r"(?i)eval|valid"
#: Stretches without a save that must be known, to say what a step takes without one.
_ENOUGH: Final = 5


def saves(events: pd.DataFrame, phases: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per save: `segment`, `step`, `seconds`, `source`, `line`, `inferred`; empty if no
    save has a duration.

    A duration is what a timer says, else the time between the lines that begin and end a save,
    else what the steps around its beginning are further apart than others: `inferred`. Of
    several ranks that time the same save the slowest counts.
    """
    columns = ["segment", "step", "seconds", "source", "line", "inferred"]
    timed = of_kind(events, Kind.PHASE, *_TIMED)
    recorded = phases[phases["class"] == Class.CHECKPOINT]
    found = timed if len(timed) else recorded if len(recorded) else _between(events)
    found = found.assign(inferred=False) if len(found) else _by_the_clock(events, steps)
    slowest = found[columns].dropna(subset="seconds").sort_values("seconds", kind="stable")
    known = slowest[slowest["step"].notna()].drop_duplicates("step", keep="last")
    return pd.concat([known, slowest[slowest["step"].isna()]]).sort_index()


def held(found: pd.DataFrame, rows: pd.DataFrame, steps: pd.DataFrame) -> pd.Series[float]:
    """Seconds of the saves in `found` that the time of each of `rows` of `steps` holds.

    A clock goes on while a job saves, and so does a bar's. Other times are those of training: what
    a recording knows of saving inside them is a class of theirs.
    """
    if found.empty:
        return pd.Series(0.0, rows.index)
    apart = _apart(steps)
    saving = (
        happened_in(apart, found).groupby("within")["seconds"].sum().clip(upper=apart["elapsed"])
    )
    by_clock = rows["seconds_from"].isin(["clock", "bar"]) & ~rows["smoothed"].astype(bool)
    return (saving / apart["passed"]).reindex(rows.index).where(by_clock).fillna(0.0)


def calls_of_saves(phases: pd.DataFrame) -> pd.DataFrame:
    """Collectives inside a save: ranks meet there and wait for the one that writes."""
    return where(phases, _in_saves(phases))


def waits_for_saves(phases: pd.DataFrame) -> pd.Series[float]:
    """Seconds that ranks wait, in the mean of all, for one that saves while they do not, by
    segment, engine and step.

    In a loop of one's own rank 0 saves alone, and the others meet it in their next collective:
    at most what that held them up.
    """
    step = ["segment", "engine", "step"]
    saving = phases[phases["class"] == Class.CHECKPOINT]
    rows = within(saving.drop_duplicates(step), phases, *step)
    rows = rows[rows["rank"].notna()].astype(dict.fromkeys([*step, "rank"], "int64"))
    own, held_up = (
        rows[(rows["class"] == name) & ~_in_saves(rows)]
        .groupby([*step, "rank"])["self_seconds"]
        .sum()
        for name in (Class.CHECKPOINT, Class.COMMUNICATION)
    )
    each = pd.DataFrame({"own": own, "held_up": held_up}).fillna(0.0)
    behind = each["own"].groupby(step).transform("max") - each["own"]
    waited = behind.clip(upper=each["held_up"]).groupby(step).sum()
    return waited / rows.groupby(step)["rank"].nunique().reindex(waited.index)


def apart_from_saves(phases: pd.DataFrame) -> pd.DataFrame:
    """Phases of training alone: a rank that writes for the others is not late."""
    return where(phases, ~_in_saves(phases) & (phases["class"] != Class.CHECKPOINT).to_numpy(bool))


def _in_saves(phases: pd.DataFrame) -> np.ndarray:
    name = phases["name"].astype("category")
    return among(name, [word for word in name.cat.categories if str(word).endswith(IN_SAVES)])


def _between(events: pd.DataFrame) -> pd.DataFrame:
    """Saves by the time from the line that begins one to the last that says it is over.

    Rank 0 alone says that one begins, and every rank, without a word of which it is, that it is
    over: the job waits for all of them.
    """
    marks = of_kind(events, Kind.METRIC, _BEGIN, *_END)
    marks = where(marks, marks["at"].notna())
    if marks.empty:
        return marks
    what = [marks["source"].astype(str), marks["segment"], marks["text"].fillna("")]
    begins = marks["name"] == _BEGIN
    save = begins.groupby(what).cumsum()
    over = marks["at"].mask(begins).groupby([*what, save]).transform("max")
    seconds = (over - marks["at"]).dt.total_seconds()
    return marks.assign(seconds=seconds)[begins & seconds.notna()]


def _by_the_clock(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Saves whose beginning alone is printed: from DeepSpeed 0.18 on no line says that one is over.

    One counts where the steps around it are further apart than any two without one. Engines that
    take turns are left aside, and where the job evaluated too, and nothing says for how long.
    """
    begun = of_kind(events, Kind.METRIC, _BEGIN)
    if begun.empty:
        return begun.assign(inferred=True)
    apart = _apart(steps)
    begins = happened_in(apart, begun)
    also = _also(apart, events)
    plain = apart[~also & ~apart.index.isin(begins["within"])]
    usual = (plain["elapsed"] / plain["passed"]).median()
    beyond = (apart["elapsed"] - usual * apart["passed"])[~also]
    longer = beyond[beyond > beyond[plain.index].max()] if len(plain) >= _ENOUGH else beyond[:0]
    saving = begins.drop_duplicates("within")
    return saving.assign(seconds=saving["within"].map(longer), inferred=True)


def _also(apart: pd.DataFrame, events: pd.DataFrame) -> pd.Series[bool]:
    """Whether the job evaluated meanwhile, where that was not left out of what `elapsed`."""
    others = happened_in(apart, events[events["name"].astype("str").str.contains(_ALSO)])["within"]
    key = ["segment", "engine", "step"]
    left_out = evaluated(events).query("evaluated > 0").sort_values(key)
    bars = where(apart, apart["seconds_from"].eq("bar").fillna(False).to_numpy(bool))
    told = within(left_out, bars, *key).index
    return pd.Series(apart.index.isin(others[~others.isin(told)]), apart.index)


def _apart(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps, with what passed since the one before: `passed` of them, `elapsed` seconds.

    Bars tell both, without the evaluations between them (see `dsprof.run.bars`).
    """
    alone = steps.groupby("segment")["engine"].transform("nunique") == 1
    by_bar = whole_steps(steps[alone])  # beside timers, too
    by_bar = by_bar[by_bar["seconds_from"].eq("bar").fillna(False)]
    by_bar = by_bar.assign(passed=by_bar["covers"], elapsed=by_bar["seconds"] * by_bar["covers"])
    segments = by_bar["segment"].unique()
    stamped = steps[steps["at"].notna() & alone & ~steps["segment"].isin(segments)]
    by = stamped.groupby("segment")
    found = stamped.assign(
        passed=by["step"].diff().astype("float64"), elapsed=by["at"].diff().dt.total_seconds()
    )
    return pd.concat([found[found["passed"] > 0], by_bar])


def happened_in(apart: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with `within`: which of `apart` they happened in; without those in none."""
    key = ["segment", "step"]
    rows = rows[rows["step"].notna()].astype({"step": "int64"}).sort_values("step", kind="stable")
    ends = apart[key].astype("int64").assign(within=apart.index).sort_values("step")
    found = pd.merge_asof(
        rows.astype({"segment": "int64"}), ends,
        on="step", by="segment", direction="forward", allow_exact_matches=False,
    )  # fmt: skip
    return found.dropna(subset="within")
