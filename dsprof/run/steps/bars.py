"""Seconds of a step from the training's progress bar, where nothing else states them."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Repair, met
from dsprof.run.steps.evaluations import evaluations_told
from dsprof.run.steps.finer_bars import HALF, finer
from dsprof.run.steps.pauses import lasting
from dsprof.run.table import STEP, among, of_kind, tidy, where
from dsprof.units import format_seconds, format_share

#: Most bars count whole seconds: over so many of them the mean of a step is within a tenth.
LEAST: Final = 10.0
FINE: Final = 2 * HALF / LEAST  #: of what passed, by which it may be off at most

#: What names an optimizer step beside the bar of the training, which counts them: the Trainer's
#: dicts, and the titles that torchtune and Prismatic give their bars.
_DICTS: Final = ("huggingface.train", "huggingface.train_callback")
_BESIDE: Final = (*_DICTS, "huggingface.bar_torchtune", "huggingface.bar_prismatic")
#: Tell by their titles and what they show whose they are, and so that they turn once a step.
_EPOCHS: Final = "huggingface.bar_rwkv"
_TITLED: Final = ("huggingface.bar_kohya", _EPOCHS)
_OF_LINE: Final = ("segment", "engine", "at", "line", "pattern")
_BAR: Final = {"bar_position": "step", "bar_total": "total", "bar_elapsed": "elapsed"}
_MEANS: Final = {"bar_pace": "pace", "bar_rate": "rate"}  # of all steps that it counts
_WINDOW: Final = ("covers", "passed", "evaluated")
_COLUMNS: Final = ("segment", "engine", "step", "seconds", "covers", "at", "source", "line")


def bar_seconds(events: pd.DataFrame) -> pd.DataFrame:
    """Mean seconds of the steps up to `step` since the bar before, so much earlier that they are
    off by a tenth (`FINE`) at most; `covers` is how many these are.

    The bar of the training is the one as long as the job says it means to train, else the one
    that stands beside the Trainer's dicts; any other (data, evaluation, checkpoints, a loop of
    micro-batches) tells nothing of a step. Time before its first refresh is left out: a resumed
    bar begins with the steps of another launch. So are evaluations, during which the bar's clock
    goes on: the Trainer says how long each took. What holds a pause has no mean step.
    """
    if not among(events["name"], _BAR).any():
        return _none().copy()
    return _typed(evaluated(events))


@cache
def _none() -> pd.DataFrame:
    return _typed(evaluated(tidy(pd.DataFrame())))


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    kinds = {"step": "Int64", "seconds": "float64", "covers": "float64"}
    return table[list(_COLUMNS)].astype(kinds)


def steps_meant(events: pd.DataFrame) -> frozenset[float]:
    """How many optimizer steps the job says it means to run, of several launches each."""
    return frozenset(of_kind(events, Kind.METRIC, "total_steps")["value"].dropna().unique())


def evaluations(events: pd.DataFrame) -> Repair | None:
    """What was left out of the times that the bar tells, beside what it tells in all."""
    table = evaluated(events)
    rows = table[table["evaluated"] > 0]
    if not len(rows):
        return None
    out, passed = float(rows["evaluated"].sum()), float(table["passed"].sum())
    text = (
        f"evaluations took {format_seconds(out)} of the {format_seconds(passed)} that the progress "
        f"bar counts ({format_share(out / passed)}), and were left out of its steps"
    )
    return met("evaluations", "repair", text, rows)


def pauses(events: pd.DataFrame) -> pd.DataFrame:
    """Steps behind a pause during which a bar's clock went on, with how long it `lasted`."""
    table = evaluated(events)
    return table[table["lasted"].notna()]


def evaluated(events: pd.DataFrame) -> pd.DataFrame:
    """The steps that bars time, with how many each `covers`, the seconds that `passed` meanwhile,
    what evaluations took of these, and how long a pause among them `lasted`."""
    bars = of_training(events)
    if bars.empty:
        return bars.assign(seconds=np.nan, **dict.fromkeys(_WINDOW, 0.0), lasted=np.nan)
    found = [_between(one) for _, one in bars.groupby(["segment", "source"])]
    table = pd.concat(found).drop_duplicates([*STEP], ignore_index=True)
    usual = table.groupby(["segment", "engine"])["seconds"].transform("median")
    paused = lasting(table["seconds"], usual, table["covers"])
    return table.assign(seconds=table["seconds"].mask(paused.notna()), lasted=paused)


def since_start(events: pd.DataFrame) -> float | None:
    """Mean seconds of the steps that the last bar of the training counts, the first ones among
    them, without evaluations; too few where those of another launch are among them."""
    last = of_training(events).tail(1)
    count, seconds = last["step"].sum(), (last["elapsed"] - last["paused"]).sum()
    fine = seconds * FINE >= 2 * last["unsure"].sum()
    return float(seconds / count) if count > 0 and fine else None


def of_training(events: pd.DataFrame) -> pd.DataFrame:
    """The bars that count optimizer steps, with what evaluations took so far."""
    bars = _bars(of_kind(events, Kind.METRIC, *_BAR, *_MEANS))
    if bars.empty:
        return bars.assign(paused=0.0, unsure=0.0)
    beside = where(events, among(events["kind"], [Kind.METRIC]) & among(events["pattern"], _BESIDE))
    bars = _training(_at_records(bars, beside), beside, steps_meant(events))
    return bars.assign(paused=_evaluated_before(bars, events))


def _evaluated_before(bars: pd.DataFrame, events: pd.DataFrame) -> pd.Series[float]:
    """Seconds that the evaluations took which the bar's source tells of in front of each bar."""
    rows = evaluations_told(events)
    paused = pd.Series(0.0, bars.index)
    for source, told in rows.assign(source=rows["source"].astype("str")).groupby("source"):
        mine = bars["source"] == source
        before = np.searchsorted(told["record"].to_numpy(), bars.loc[mine, "record"].to_numpy())
        paused[mine] = np.concatenate([[0.0], told["took"].cumsum()])[before]
    return paused


def _bars(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per bar that was read: its count, total and elapsed seconds.

    Those with the title of another step are left out: of the step before, or of a later epoch.
    """
    said = rows["value"].fillna(rows["seconds"])
    rows = rows.assign(source=rows["source"].astype("str"), said=said, own=rows["step"])
    one = ["source", "record"]
    found = rows.drop_duplicates(one)[[*one, *_OF_LINE, "own"]]
    if rows.empty:
        return found.assign(**dict.fromkeys(_BAR.values(), np.nan))
    for name, column in (_BAR | _MEANS).items():
        told = rows.loc[rows["name"] == name, [*one, "said"]].drop_duplicates(one)
        found = found.merge(told.rename(columns={"said": column}), on=one, how="left")
    fits = found["own"].isna() | found["own"].eq(found["step"]).fillna(value=False)
    return finer(found[fits].dropna(subset=list(_BAR.values())))


def _at_records(bars: pd.DataFrame, beside: pd.DataFrame) -> pd.DataFrame:
    """A quick loop's bar may be some steps behind the record that it stands in front of: it is
    read as redrawn there. Not one of the record before, that stands behind that."""
    dicts = where(beside, among(beside["pattern"], _DICTS))
    told = dicts.drop_duplicates("record").set_index("record")["step"].astype("float64")
    step = (bars["record"] + 1).map(told)
    late = bars["own"].isna() & (step > bars["step"]) & bars["step"].gt(0)
    return bars.assign(step=bars["step"].mask(late & ~bars["step"].isin(told), step))


def _training(bars: pd.DataFrame, beside: pd.DataFrame, stated: frozenset[float]) -> pd.DataFrame:
    """The bars that count optimizer steps."""
    if stated:
        return bars[bars["total"].isin(stated)]
    by_title = bars.loc[bars["pattern"].isin(_TITLED), "total"]
    if len(by_title):
        return _of_epochs(bars[bars["total"].isin(by_title)])
    numbered = beside[["segment", "step"]].dropna().drop_duplicates()
    met = bars.merge(numbered.astype("float64"), on=["segment", "step"])
    return bars[bars["total"].isin(met["total"].mode().head(1))]


def _of_epochs(bars: pd.DataFrame) -> pd.DataFrame:
    """Steps of all epochs, where a bar begins anew in each."""
    anew = bars.groupby(["segment", "source"])["step"].diff().lt(0) & bars["pattern"].eq(_EPOCHS)
    begun = anew.groupby([bars["segment"], bars["source"]]).cumsum()
    return bars.assign(step=bars["step"] + begun * bars["total"])


def _between(bars: pd.DataFrame) -> pd.DataFrame:
    """What lies between bars of one launch, in order; a bar that starts over begins anew.

    A bar that is drawn again has not moved: what passed is of the next step, as what it waited
    for, a save or an evaluation, is.
    """
    bars = _surest(bars)
    ends, windows = [], []
    count = elapsed = paused = off = np.nan
    told = zip(bars["step"], bars["moment"], bars["paused"], bars["unsure"], strict=True)
    for i, (step, now, out, unsure) in enumerate(told):
        steps, seconds = step - count, now - elapsed - (out - paused)
        if steps > 0 and seconds * FINE >= off + unsure:
            ends.append(i)
            windows.append((steps, now - elapsed, out - paused))
        elif steps >= 0 and seconds >= -off - unsure:
            continue
        count, elapsed, paused, off = step, now, out, unsure
    covers, passed, evaluated = np.array(windows, float).reshape(-1, 3).T
    found = bars.iloc[ends].assign(covers=covers, passed=passed, evaluated=evaluated)
    return found.assign(seconds=(passed - evaluated) / covers)


def _surest(bars: pd.DataFrame) -> pd.DataFrame:
    """Of bars of the same step that follow each other the one of the surest time, the first of
    them."""
    turn = bars["step"].ne(bars["step"].shift()).cumsum()
    least = bars["unsure"].groupby(turn).transform("min")
    return bars[bars["unsure"].eq(least)].loc[lambda sure: ~turn[sure.index].duplicated()]
