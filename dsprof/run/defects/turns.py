"""Turns of loops that are no optimizer steps, or last longer than what one line of theirs tells."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import STEP, among, where
from dsprof.units import format_seconds

HYBRID: Final = "deepspeed_chat.hybrid"
VERL: Final = "verl.step"
#: Loops that print of each batch of their loader.
BATCHES: Final = tuple(
    f"loops.{name}"
    for name in (
        *("mmengine_epoch", "mmengine_iter", "mmengine_scalars", "mmcv"),
        *("metric_logger", "swin", "imagenet", "funasr"),
    )
)
LITGPT: Final = ("litgpt.step", "litgpt.micro_batch")
NANOGPT: Final = ("loops.nanogpt", "loops.nanogpt_evaluation")
_ASIDE: Final = ("validation", "save_checkpoint")
_ROUNDED: Final = 1.001


def several_batches(events: pd.DataFrame, source: Source) -> Outcome:  # noqa: ARG001  # a Defect
    """The hybrid engine tells of each batch that is generated, of which DeepSpeed-Chat's turn may
    hold several (`--generation_batches`): summed, for the turn lasts as long as all of them.

    Unknown where lines are missing, as behind the last turn. Rates are of one batch: left out.
    """
    printed = among(events["pattern"], [HYBRID]) & events["step"].notna().to_numpy()
    rows = where(events, printed)
    if rows.empty:
        return events, None
    usual = int(rows.groupby([*STEP])["record"].nunique().median())
    if usual < 2:
        return events, None
    by = [*STEP, "name"]
    timed = rows[rows["seconds"].notna()]
    all_there = timed.groupby(by, observed=True)["record"].transform("nunique") == usual
    sums = timed.groupby(by, observed=True)["seconds"].transform("sum")
    last = ~timed.duplicated(by, keep="last")
    seconds, value = events["seconds"].copy(), events["value"].copy()
    seconds.loc[timed.index] = sums.where(last & all_there)
    value.loc[rows.index] = float("nan")
    text = (
        f"the hybrid engine tells of {usual} batches a turn, and of each by itself: their times "
        "were summed"
    )
    return events.assign(seconds=seconds, value=value), met(
        "batches-of-a-turn", "repair", text, rows
    )


def done_aside(events: pd.DataFrame, source: Source) -> Outcome:  # noqa: ARG001  # a Defect
    """Some versions of verl validate and save inside of what they time as the step, others behind
    it: there the timers of a line, which follow each other on one clock, sum to more than its step
    by just that. Added, for the turn lasts as long.
    """
    rows = where(events, among(events["pattern"], [VERL]) & events["seconds"].notna().to_numpy())
    if rows.empty:
        return events, None
    line, name = [rows["source"], rows["record"]], rows["name"].astype("str")
    ahead = name.eq("wait_for_generation").groupby(line, observed=True).transform("any")
    is_own = rows["kind"].eq(Kind.PHASE) & ~(ahead & name.eq("generate"))
    timed, aside = (
        rows["seconds"].where(mine, 0.0).groupby(line, observed=True).transform("sum")
        for mine in (is_own, name.isin(_ASIDE))
    )
    steps = rows[name.eq("step_seconds") & aside.gt(0)]
    aside, most = aside[steps.index], _ROUNDED * steps["seconds"]
    behind = (timed[steps.index] > most) & (timed[steps.index] - aside <= most)
    steps = steps[behind.groupby(steps["segment"]).transform("any")]
    if steps.empty:
        return events, None
    seconds = events["seconds"].copy()
    seconds.loc[steps.index] += aside
    text = (
        "verl validates and saves after what it times as the step here: how long that took was "
        "added to these steps"
    )
    return events.assign(seconds=seconds), met("turn-without-validation", "repair", text, steps)


def of_micro_batches(events: pd.DataFrame, source: Source) -> Outcome:
    """A turn of a loop over its loader is a micro-batch, where DeepSpeed accumulates: an optimizer
    step takes several. Times are multiplied, and steps are those that the turns end in or make up.
    """
    many = source.config.get("gradient_accumulation_steps", 1)
    if not many > 1:
        return events, None
    rows = where(events, among(events["pattern"], BATCHES) & events["step"].notna().to_numpy())
    if rows.empty:
        return events, None
    names = ("step", "steps", "seconds", "value")
    step, steps, seconds, value = (events[name].copy() for name in names)
    counted = np.where(among(rows["pattern"], source.from_zero), 0, many - 1)
    step.loc[rows.index] = (rows["step"] + counted) // many
    steps.loc[rows.index] = (rows["steps"] // many).clip(lower=1)
    seconds.loc[rows.index] = rows["seconds"] * many
    totals = rows.index[rows["name"] == "total_steps"]
    value.loc[totals] = value[totals] // many
    text = (
        f"a turn of this loop is a micro-batch, of which an optimizer step takes {many} "
        "(gradient_accumulation_steps): its times and numbers were converted to those of steps"
    )
    return events.assign(step=step, steps=steps, seconds=seconds, value=value), met(
        "turns-of-micro-batches", "repair", text, rows
    )


def last_batch_alone(events: pd.DataFrame, source: Source) -> Outcome:  # noqa: ARG001  # a Defect
    """LitGPT times micro-batches. Where it pretrains it prints the one alone that ends a step: how
    long a step of several takes is unknown then.
    """
    timed = where(events, among(events["pattern"], LITGPT) & events["seconds"].notna().to_numpy())
    ends = among(events["pattern"], LITGPT[:1]) & among(events["name"], ["micro_step"])
    counted = where(events, ends)
    if timed.empty or counted.empty:
        return events, None
    many = (counted["value"] / counted["step"].where(counted["step"] > 0)).median()
    if pd.isna(many) or timed.groupby([*STEP])["record"].nunique().median() >= round(many):
        return events, None
    seconds = events["seconds"].copy()
    seconds.loc[timed.index] = float("nan")
    text = (
        f"only the last of a step's {many:.0f} micro-batches is printed, which takes "
        f"{format_seconds(float(timed['seconds'].mean()))}: how long a step takes is unknown"
    )
    return events.assign(seconds=seconds), met("last-micro-batch-alone", "doubt", text, timed)


def behind_evaluations(events: pd.DataFrame, source: Source) -> Outcome:  # noqa: ARG001  # a Defect
    """nanoGPT times one iteration alone, however rarely it prints, from the end of the one before:
    what it evaluates and saves in front of one is in its time, which is left out then.

    It evaluates before the iteration of the same number, forks behind that and before the next. A
    fork does not number what it evaluates: it may be in whatever time follows.
    """
    told = among(events["pattern"], NANOGPT)
    rows = where(events, told & among(events["name"], ["step_seconds", "eval_step", "eval_loss"]))
    timed = rows["name"].eq("step_seconds")
    if not timed.any():
        return events, None
    done = rows["value"].where(rows["name"].eq("eval_step"))
    done = done.groupby([rows["source"], rows["record"]], observed=True).transform("max")
    rows = rows.assign(done=done, evaluates=~timed).sort_values(["source", "line"])
    by = [rows["source"], rows["segment"]]
    trained = (~rows["evaluates"]).groupby(by, observed=True).cummax()  # the first is not read
    rows["unnumbered"] = rows["evaluates"] & rows["done"].isna() & trained
    before = rows.groupby(by, observed=True)[["done", "unnumbered"]].shift()
    late = (rows["step"] - before["done"]).between(0, 1) | before["unnumbered"].eq(other=True)
    late = late.fillna(value=False).astype(bool)
    late &= rows["name"].eq("step_seconds")
    steps, seconds = events["steps"].copy(), events["seconds"].copy()
    steps.loc[timed.index[timed]] = 1
    seconds.loc[late.index[late]] = float("nan")
    text = (
        "the time of an iteration runs from the end of the one before, and includes what was "
        "evaluated and saved between the two: times after an evaluation were left out"
    )
    return events.assign(steps=steps, seconds=seconds), met(
        "turns-behind-evaluations", "repair", text, rows[late]
    )
