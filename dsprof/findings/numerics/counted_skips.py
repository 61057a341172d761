"""How many steps were skipped, and when, where the source numbers its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.findings.evidence import row_evidence, whole
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Evidence
from dsprof.findings.numerics.skips import overflows
from dsprof.findings.proofs import of_step
from dsprof.findings.thresholds import (
    OVERFLOW_CRITICAL,
    OVERFLOW_STEPS,
    OVERFLOW_STREAK,
    OVERFLOW_WARNING,
)
from dsprof.run.table import STEP, among, numbers, where


@dataclass(frozen=True, slots=True)
class Skips:
    """Steps whose update was thrown away."""

    total: int
    of: int  # steps they were counted over
    recent: int  # in the last part that the source counts
    recent_of: int
    last: int | None  # later printed steps show no more of them; None if no later step is printed
    streak: int  # steps up to the last one, all of them skipped
    at_start: bool | None  # they came while the scaler looked for its first scale, and are over
    evidence: tuple[Evidence, ...]
    engine: int | None = None  # None: not told apart
    sought: float | None = None  # the loss scale, where the scaler still looks for one
    at_least: bool = False  # `recent` is what the total leaves, for no row stands in the middle
    uncounted: int = 0  # later steps without a count, as of a line that was cut, if no fewer follow

    @property
    def share(self) -> float:
        return self.total / self.of

    @property
    def endless(self) -> bool:
        """No scale is found any more."""
        return self.streak >= OVERFLOW_STREAK and self.sought is None and not self.uncounted

    @property
    def many(self) -> bool:
        return self.total >= OVERFLOW_STEPS and self.share >= OVERFLOW_WARNING

    @property
    def often(self) -> bool:
        """They go on, and often."""
        part = self.recent / max(1, self.recent_of)
        return self.endless or (part >= OVERFLOW_CRITICAL and self.sought is None)

    @property
    def lasts(self) -> bool:
        """They go on: what is over, or may be, is no part of a step."""
        return self.endless or (self.recent > 0 and self.sought is None)


#: A scale of 2^32 that is halved by each skip, or by each second one, is below 1 by then.
MOST_AT_START: Final = 66


def counted_skips(facts: Facts) -> Skips | None:
    """By the counter of the source where it has one, else by lines of single steps; of the engine
    that skips most. None if neither tells."""
    steps = facts.run.steps
    known = where(steps, steps["skipped"].notna())
    if len(known):
        launch = known[known["segment"] == known["segment"].iloc[-1]]
        of_engines = [_counted(facts, part) for _, part in launch.groupby("engine", sort=True)]
        return max(of_engines, key=lambda skips: skips.share)
    engines = steps["engine"][steps["overflow"].notna()].unique()
    if not len(engines) or overflows(facts.run)["step"].isna().any():
        return None  # some of its lines are of steps that nothing numbers
    flags = steps[steps["engine"].isin(engines)]
    if len(engines) == 1:  # lines may not say which of several it is that they are of
        return _flagged(facts, flags, of=len(steps))
    told = (
        _flagged(facts, own, of=len(own), engine=int(own["engine"].iloc[0]))
        for _, own in flags.groupby("engine", sort=True)
    )
    return max(filter(None, told), key=lambda skips: skips.share, default=None)


def _flagged(facts: Facts, flags: pd.DataFrame, of: int, engine: int | None = None) -> Skips | None:
    """By lines that tell of single steps; None if none of these was skipped."""
    flags = flags.assign(overflow=flags["overflow"].fillna(False).astype(bool))
    over = flags[flags["overflow"]]
    if over.empty:
        return None
    recent = flags.tail(max(1, len(flags) // 2))  # as by the counter
    recent = recent[recent["segment"] == flags["segment"].iloc[-1]]
    last = int(over["step"].iloc[-1])
    return Skips(
        total=len(over),
        of=of,
        recent=int(recent["overflow"].sum()),
        recent_of=len(recent),
        last=last if over.index[-1] < flags.index[-1] else None,
        streak=_streak(flags),
        at_start=last <= len(over),  # each from the first step on
        evidence=_overflow_lines(facts, over.head(3)),
        engine=engine,
    )


def _overflow_lines(facts: Facts, over: pd.DataFrame) -> tuple[Evidence, ...]:
    """The lines that tell of the overflows of these steps; else those of the steps."""
    told = overflows(facts.run).drop_duplicates([*STEP])
    said = over.merge(told, "left", [*STEP], suffixes=("", "_told"))
    return tuple(
        Evidence(
            str(row["source_told"] if known else row["source"]),
            whole(row["line_told"] if known else row["line"]),
            f"overflow at step {int(row['step']):,}" + (f": {row['text']}" if known else ""),
        )
        for _, row in said.iterrows()
        for known in [pd.notna(row["line_told"]) and pd.notna(row["text"])]
    )


def _counter_line(facts: Facts, row: pd.Series[Any]) -> Evidence:
    """The line that counts the skipped steps up to one; else that of the step."""
    told = of_step(facts.run.told, row)
    told = where(told, among(told["name"], ["skipped", "skipped_window"]))
    said = f"step {int(row['step']):,}: {int(row['skipped']):,} skipped so far"
    return row_evidence(told.iloc[-1] if len(told) else row, said)


def _counted(facts: Facts, part: pd.DataFrame) -> Skips:
    """From the cumulative counter of one engine, since step 0.

    Since the first row where the log joins late and that is worse: a resumed job may count
    from its restart, though its steps do not.
    """
    last = part.iloc[-1]
    step, skipped = numbers(part["step"]), numbers(part["skipped"])
    quiet = part.iloc[(skipped == skipped[-1]).argmax()]
    middle = part.iloc[(step >= (step[0] + step[-1]) / 2).argmax()]
    here, steps_here = _since(part.iloc[0], last)
    total, of = int(last["skipped"]), max(int(last["step"]), int(last["skipped"]), 1)
    if _joins_late(part) and steps_here and total / of < here / steps_here <= 1:
        total, of = here, steps_here
    recent, recent_of = _since(middle, last)
    at_least = not recent_of and total > MOST_AT_START
    if at_least:
        recent_of = of - of // 2
        recent = max(0, recent_of - (of - total))
    still = bool(quiet["step"] < last["step"])
    shown = [quiet, last] if still else [last]
    steps, streak = facts.run.steps, _all_skipped(part)
    same = (steps["segment"] == last["segment"]) & (steps["engine"] == last["engine"])
    later = int(steps["step"][same].max() - step[-1])
    return Skips(
        total=total,
        of=of,
        recent=recent,
        recent_of=recent_of,
        last=int(quiet["step"]) if still else None,
        streak=streak,
        at_start=_at_start(part, still=still),
        engine=int(last["engine"]),
        at_least=at_least,
        uncounted=later if later >= streak else 0,
        evidence=tuple(_counter_line(facts, row) for row in shown),
    )


def _since(before: pd.Series[Any], after: pd.Series[Any]) -> tuple[int, int]:
    """Skipped steps and steps between two rows of the counter."""
    return int(after["skipped"] - before["skipped"]), int(after["step"] - before["step"])


def _joins_late(part: pd.DataFrame) -> bool:
    """Whether the first row of the counter stands further from step 0 than from the next row."""
    step = part["step"].to_numpy(dtype=float)
    return len(step) > 1 and step[0] > step[1] - step[0]


def _all_skipped(part: pd.DataFrame) -> int:
    """Steps up to the last row that were skipped without exception, by the counter."""
    step, well = part["step"].to_numpy(dtype=int), (part["step"] - part["skipped"]).to_numpy(int)
    if well[-1] == 0:
        return int(step[-1])
    differs = np.flatnonzero(well != well[-1])
    return int(step[-1] - step[differs[-1] + 1 if len(differs) else 0])


def _at_start(part: pd.DataFrame, *, still: bool) -> bool | None:
    """Whether all skips come before the first update that is known to go well, or before a scale
    that had only fallen held for good; None: unknown."""
    counts = part["skipped"].to_numpy(dtype=int)
    rising = counts[: int(counts.argmax()) + 1]
    if (np.diff([0, *rising]) <= 0).any():
        return False
    before = rising[:-1] if still else counts[:-1]
    if (before < part["step"].to_numpy(dtype=int)[: len(before)]).any():
        # an update went well, and a later step was skipped, or may have been
        return still and _only_fell(part.iloc[: len(rising)])
    return True if still else None


def _only_fell(rows: pd.DataFrame) -> bool:
    """Whether the scale only fell, and found its place in no more steps than the start takes.

    Gradients differ: a scale that is too high for most of them lets a few through before.
    """
    scale = rows["loss_scale"]
    falls = scale.notna().all() and scale.is_monotonic_decreasing
    return bool(falls and rows["step"].iloc[-1] <= MOST_AT_START)


def _streak(flags: pd.DataFrame) -> int:
    """Steps up to the last one that are printed one by one, each as skipped."""
    over = flags.drop_duplicates("step", keep="last").iloc[::-1]
    row = np.arange(len(over))
    unbroken = over["overflow"].astype(bool) & (over["step"].iloc[0] - over["step"]).eq(row)
    return int(np.cumprod(unbroken.to_numpy(dtype=bool)).sum())
