"""The duration of each checkpoint save, and what it costs training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.apart import distances, evaluations_in, happened_in, longer_by
from dsprof.events import Class, Kind
from dsprof.recording.table import EVALUATION, FLAVOUR
from dsprof.run.table import STEP, among, of_kind, where, within

BEGIN = "checkpoint_begin"
_END = ("checkpoint_ready", "checkpoint_end")
#: Suffix of the names of calls inside a recorded save.
IN_SAVES = "_in_checkpoint"
_TIMED = ("save-checkpoint", "save_checkpoint")
_LOADS: Final = ("load-checkpoint", "load_checkpoint")
_SAVE: Final = ["segment", "engine", "step", "seconds", "source", "line"]
#: An exception is told so soon behind the phase that it ended.
_AT_ONCE: Final = pd.Timedelta(seconds=0.5)


def saves(events: pd.DataFrame, phases: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per save: `segment`, `engine`, `step`, `seconds`, `source`, `line`, `inferred`;
    empty if no save has a duration.

    The duration is that of a timer or a recorded phase; else the time between the lines that begin
    and end the save; else, `inferred`, the time by which the steps around its beginning are further
    apart than others. If several ranks time the same save, the slowest counts. A save behind the
    last step is one of those made every so often if there are others; alone, it only ends the run.
    """
    columns = [*_SAVE, "inferred"]
    timed = of_kind(events, Kind.PHASE, *_TIMED)
    saving = among(phases["class"], [Class.CHECKPOINT])
    recorded = where(phases, saving & ~among(phases["name"], _LOADS))
    if len(recorded):
        recorded = pd.concat(
            [recorded[_SAVE], behind_the_last(events, steps)[_SAVE]], ignore_index=True
        )
    found = timed if len(timed) else recorded if len(recorded) else _between(events)
    found = found.assign(inferred=False) if len(found) else _by_the_clock(events, steps)
    found = where(found[columns], found["seconds"].notna())
    if found.empty:
        return found
    slowest = found.sort_values("seconds", kind="stable")
    known = slowest[slowest["step"].notna()].drop_duplicates([*STEP], keep="last")
    return pd.concat([known, slowest[slowest["step"].isna()]]).sort_index()


def behind_the_last(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Recorded saves after the last step of their launch and engine: they are part of no step. A
    row for each rank, with all that it saved there.
    """
    rows = _behind_the_last(events, steps)
    return _by_rank(rows[(rows["text"] == Class.CHECKPOINT) & ~among(rows["name"], _LOADS)])


def evaluations_behind_the_last(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The same of recorded evaluations."""
    rows = _behind_the_last(events, steps)
    return _by_rank(rows[rows["name"] == EVALUATION])


def _behind_the_last(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    rows = where(events, (events["timers"] == FLAVOUR) & events["step"].notna())
    part = ["segment", "engine"]
    last = steps.groupby(part)["step"].max().rename("last").reset_index()
    at = rows[[*part, "step"]].astype("int64").merge(last.astype("int64"), on=part, how="left")
    rows = rows[(at["step"] > at["last"]).to_numpy()]
    return rows[~_failed_in(rows, events)]


def _failed_in(rows: pd.DataFrame, events: pd.DataFrame) -> pd.Series[bool]:
    """Whether an exception ended it: in a collective inside, its rank may have waited in vain."""
    told = of_kind(events, Kind.PROBLEM, "exception")
    if told.empty:
        return pd.Series(data=False, index=rows.index)
    first = told.groupby(told["source"].astype("object"))["at"].min()
    end = rows["at"] + pd.to_timedelta(rows["seconds"].astype("float64"), unit="s")
    since = rows["source"].astype("object").map(first).astype("datetime64[us]") - end
    return since.abs() < _AT_ONCE


def _by_rank(rows: pd.DataFrame) -> pd.DataFrame:
    """The longest row of each step and rank, with the seconds of all of them."""
    rows = rows.sort_values("seconds", kind="stable")
    one = [rows[name] for name in (*STEP, "rank")]
    together = rows.groupby(one, dropna=False, observed=True)["seconds"].transform("sum")
    return rows.assign(seconds=together).drop_duplicates([*STEP, "rank"], keep="last").sort_index()


def calls_of_saves(phases: pd.DataFrame) -> pd.DataFrame:
    """Collectives inside a save, in which ranks wait for the one that writes."""
    return where(phases, _in_saves(phases))


def waits_for_saves(phases: pd.DataFrame) -> pd.Series[float]:
    """Seconds that ranks wait for one that saves while they do not: mean over ranks, by segment,
    engine and step.
    """
    return _waits_for(phases, _saves_itself)


def waits_for_evaluations(phases: pd.DataFrame) -> pd.Series[float]:
    """The same for one that evaluates while they do not, or longer than they do."""
    return _waits_for(phases, lambda rows: (rows["name"] == EVALUATION).to_numpy(bool))


def _waits_for(
    phases: pd.DataFrame, doing: Callable[[pd.DataFrame], np.ndarray]
) -> pd.Series[float]:
    """The same for one that does what the phases chosen by `doing` are."""
    each = _by_waiting(phases, doing)
    of_step = each["waits"].groupby([*STEP])
    return of_step.sum() / of_step.size()


def _by_waiting(phases: pd.DataFrame, doing: Callable[[pd.DataFrame], np.ndarray]) -> pd.DataFrame:
    """What each rank waits in a step in which some do what `doing` chooses: `waits` and `held_up`,
    all its exposed communication, by segment, engine, step and rank.

    In a hand-written loop rank 0 may do something alone. The others then wait for it in their next
    collective, so the wait is at most their exposed communication of that step.
    """
    step = [*STEP]
    rows = within(where(phases, doing(phases)).drop_duplicates(step), phases, *step)
    rows = rows[rows["rank"].notna()].astype(dict.fromkeys([*step, "rank"], "int64"))
    in_calls = (rows["class"] == Class.COMMUNICATION).to_numpy(bool) & ~_in_saves(rows)
    by = [rows[name] for name in (*step, "rank")]
    own, held_up = (
        rows["self_seconds"].where(chosen, 0.0).groupby(by).sum()
        for chosen in (doing(rows), in_calls)
    )
    behind = own.groupby(step).transform("max") - own
    return pd.DataFrame({"waits": behind.clip(upper=held_up), "held_up": held_up})


def apart_from_saves(phases: pd.DataFrame) -> pd.DataFrame:
    """The phases without those of saves, and without what ranks wait for one that saves alone: a
    rank that writes for the others is no straggler.
    """
    rows = where(phases, ~_in_saves(phases) & ~_is_saving(phases))
    if not _saves_itself(phases).any():
        return rows
    each = _by_waiting(phases, _saves_itself)
    each = each[each["waits"] > 0]
    if each.empty:
        return rows
    at = pd.MultiIndex.from_frame(rows[each.index.names].astype("float64"))
    left = (1.0 - each["waits"] / each["held_up"]).reindex(at).fillna(1.0).to_numpy()
    calls = (rows["class"] == Class.COMMUNICATION).to_numpy(bool)
    return rows.assign(self_seconds=rows["self_seconds"] * np.where(calls, left, 1.0))


def _saves_itself(phases: pd.DataFrame) -> np.ndarray:
    return np.asarray(_is_saving(phases) & ~_in_saves(phases), bool)


def _is_saving(phases: pd.DataFrame) -> np.ndarray:
    return (phases["class"] == Class.CHECKPOINT).to_numpy(bool)


def _in_saves(phases: pd.DataFrame) -> np.ndarray:
    name = phases["name"].astype("category")
    return among(name, [word for word in name.cat.categories if str(word).endswith(IN_SAVES)])


def _between(events: pd.DataFrame) -> pd.DataFrame:
    """Saves by the time from the line that begins one to the last line that ends it.

    Only rank 0 prints the beginning. Every rank prints the end, without naming itself; the last one
    counts because the job waits for all ranks.
    """
    marks = of_kind(events, Kind.METRIC, BEGIN, *_END)
    marks = where(marks, marks["at"].notna())
    if marks.empty:
        return marks
    what = [marks["source"].astype(str), marks["segment"], marks["text"].fillna("")]
    begins = marks["name"] == BEGIN
    save = begins.groupby(what).cumsum()
    over = marks["at"].mask(begins).groupby([*what, save]).transform("max")
    seconds = (over - marks["at"]).dt.total_seconds()
    return marks.assign(seconds=seconds)[begins & seconds.notna()]


def _by_the_clock(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Saves of which only the beginning is printed: from DeepSpeed 0.18 on no line tells the end.

    A save counts if the steps around it are further apart than any two without a save. Engines that
    take turns are left out, and so are saves beside an evaluation of unknown duration.
    """
    begun = of_kind(events, Kind.METRIC, BEGIN)
    if begun.empty:
        return begun.assign(inferred=True)
    apart = distances(steps)
    begins = happened_in(apart, begun)
    also = evaluations_in(apart, events)["within"]
    plain = ~apart.index.isin([*begins["within"], *also])
    saving = begins.drop_duplicates("within")
    longer = longer_by(apart, plain)
    alone = longer[~longer.index.isin(also)]
    return saving.assign(seconds=saving["within"].map(alone), inferred=True)
