"""Where the seconds of an average optimizer step go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import CLASSES, Class
from dsprof.recording.layout import SUFFIX
from dsprof.recording.table import distinct
from dsprof.run.job.longest import longest_part
from dsprof.run.steps.durations import ENOUGH, whole_steps
from dsprof.run.steps.stretches import steps_of
from dsprof.run.table import STEP, numbers, where, within

#: How reports say that a mean is only of the one step, or of the steps, whose whole time is known.
_WHOLE: Final = ("the one whose whole time is known", "those whose whole time is known")

#: Names of point-to-point timers: those of the pipeline engines of DeepSpeed and DeeperSpeed, and
#: of Megatron's schedules; and of calls that a recording saw inside them.
_PIPELINE = (
    r"(?:^|_in_)pipe_(?:send|recv)|(?:forward|backward)-(?:send|recv)"
    r"|(?:forward|backward)_(?:send|recv)"
)

#: The first row of a launch with at least this many rows is left out: the first step also builds
#: kernels, buckets and traces.
_WARM_UP_FROM = 6

#: Of fewer rows the first one is left out if it is at least this many times the largest of the
#: others. Where the launch is known to begin with it less is enough, and one other may remain:
#: otherwise, of two rows either may be the unusual one.
_WARM_UP_RATIO = 3.0
_FIRST_RATIO = 1.5
_FIRST_OF_TWO_RATIO = 2.0
_WARM_UP_OTHERS = 2

#: Several rows at the start, such as those during which models are compiled, are left out if even
#: the least of them is that slow: at most this many, and at most this part of all rows.
_WARM_UP_MOST = 10
_WARM_UP_PART = 0.1

#: Timers are known to leave something out if they lack more than this part of a single step whose
#: whole time is known, unless that step is unusual: its timers sum to `_LIKE` times the median.
_LEFT_OUT = 0.1
_LIKE = 1.5

#: So many steps, or windows, that the clock tells show by themselves how a run goes on.
_SERIES = 10
#: Part of the run, from the first to the last step, that these must reach over.
_ALL_ALONG = 0.9

_RATES = ("samples_per_second", "tokens_per_second", "tflops")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The mean optimizer step of the (segment, engine) of a run that lasted longest.

    Attributes:
        seconds: duration of one step.
        classes: seconds per class; only classes that the source tells.
        phases: one row per phase, largest first: `name` (index), `class`, `seconds` (self time per
            step and rank, scaled like the classes if timers exceed their step) and `mixed` (it
            holds both compute and communication). Of its last row: `step`, `shown` (self time),
            `held` (with the timers inside it), `raw` (the source's name), `source` and `line`.
        windows: number of rows that are averaged.
        first, last: the first and the last optimizer step of these rows.
    """

    seconds: float
    classes: dict[str, float]
    phases: pd.DataFrame
    windows: int
    first: int
    last: int

    def of(self, *classes: str) -> float | None:
        """Seconds per step in these classes together; None if the source tells none of them."""
        known = [self.classes[name] for name in classes if name in self.classes]
        return sum(known) if known else None


def main_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The rows of the (segment, engine) that took most time, without its warm-up.

    Launches and engines have different step times, so a mean over several would describe none of
    them. Nor may steps be averaged whose seconds are known in different ways, because timers leave
    out what nobody timed. So only steps whose whole time the source states are returned if there
    are enough of them (`ENOUGH`), or if one of them shows that timers leave out much of it.
    """
    return _known_alike(_warm(longest_part(steps)))


def _known_alike(part: pd.DataFrame) -> pd.DataFrame:
    """Of these rows those that `main_steps` returns."""
    whole = whole_steps(part)
    timers = part["seconds"]
    left_out = timers < (1 - _LEFT_OUT) * part["whole_seconds"]
    usual = timers < _LIKE * timers.median()
    return whole if len(whole) >= ENOUGH or (left_out & usual).any() else part


def averaged_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The rows that the mean step is taken over: those of `main_steps` that are divided alike."""
    return told_alike(main_steps(steps))


def regular_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The same for a view over time: every row of the longest part whose seconds are known in the
    same way, without the warm-up.

    The clock's, where it tells most of these steps, or windows, one by one, or shows of some that
    timers leave out most of their time; not where it tells of a part of the run alone, nor where it
    shows that rates are of slower steps alone: these stick out of single steps, not of windows.
    """
    part = _warm(longest_part(steps))
    by_clock = where(part, part["whole_from"].eq("clock") & ~part["smoothed"].astype(bool))
    if _span(by_clock) < _ALL_ALONG * _span(part):
        return part
    known, whole = (by_clock[name].sum() for name in ("seconds", "whole_seconds"))
    most = 2 * len(by_clock) > part["seconds"].notna().sum() and whole >= known
    left_out = len(by_clock) >= _SERIES and whole >= 2 * known
    return whole_steps(by_clock) if most or left_out else part


def _span(part: pd.DataFrame) -> float:
    """Steps from the first to the last of these, one launch's."""
    return float(np.ptp(numbers(part["step"]))) if len(part) else 0.0


def known_by(steps: pd.DataFrame) -> str | None:
    """How the seconds of these steps are known, which is the same for all; None without steps."""
    return str(steps["seconds_from"].iloc[0]) if len(steps) else None


def without_first(steps: pd.DataFrame) -> str:
    """Words for what `main_steps` and `regular_steps` leave out at the start: `without the first
    step, a warm-up`, or "".
    """
    part = longest_part(steps)
    return _without_first(part, len(part) - len(_warm(part)))


def _without_first(part: pd.DataFrame, many: int) -> str:
    """The same of so many rows: of means over windows, how many steps these are of; of lines that
    tell of a single step now and then, that these are of no first one. Where no launch is seen to
    begin, why they are slow is unknown."""
    if not many:
        return ""
    left = part[:many]
    steps = round(left["covers"].sum())
    if not left["warm_up"].iloc[0]:
        begin = int(left["step"].iloc[0] - left["covers"].iloc[0]) + 1
        end = int(left["step"].iloc[-1])
        which = f"step {end:,}" if begin == end else f"steps {begin:,} to {end:,}"
        return f"without {which}, far slower than the rest"
    if steps > many:
        return f"without the first {steps:,} steps, a warm-up"
    if part["step"].diff().median() > 1:
        told = f"{many} printed ones, up" if many > 1 else "printed one, up"
        return f"without the first {told} to step {int(left['step'].iloc[-1]):,}, a warm-up"
    return f"without the first {many if many > 1 else 'step'}, a warm-up"


def left_aside(steps: pd.DataFrame) -> str:
    """Words for the steps that `main_steps` returns, such as `, without the first step, a warm-up`;
    "" if all.
    """
    part = longest_part(steps)
    warm = _warm(part)
    main = len(_known_alike(warm))
    few = main < len(warm)
    untold = few and pd.isna(part["whole_seconds"].iloc[0])
    first = "" if untold else _without_first(part, len(part) - len(warm))
    return f", {_WHOLE[main > 1]}" * few + (f", {first}" if first else "")


def engines(steps: pd.DataFrame) -> dict[int, float]:
    """Engine → mean seconds of its steps, in the launch that took most time.

    The engine that reports are about comes first. Empty unless several engines have timed steps.
    """
    part = longest_part(steps)
    if part.empty:
        return {}
    launch = steps[steps["segment"] == part["segment"].iloc[0]]
    means = launch.groupby("engine")["seconds"].mean().dropna()
    judged = int(part["engine"].iloc[0])
    order = sorted(means.index, key=lambda engine: (engine != judged, engine))
    return {int(engine): float(means[engine]) for engine in order} if len(means) > 1 else {}


def follow_each_other(steps: pd.DataFrame) -> bool:
    """Whether each engine of a launch is known to end its last step before another one's first, as
    where a script trains a model for each fold or setting. Then they take no turns.
    """
    ends = steps.groupby(["segment", "engine"])["at"].agg(["min", "max"])
    ends = ends.sort_values(["segment", "min"])
    others = ends.index.get_level_values("segment").to_series(index=ends.index).duplicated()
    before = ends["max"].shift()
    return bool(ends.notna().all(axis=None) and (ends["min"] > before)[others].all())


def _warm(part: pd.DataFrame) -> pd.DataFrame:
    begins = len(part) > 0 and bool(part["warm_up"].iloc[0])
    warms_up = begins and (len(part) >= _WARM_UP_FROM or _is_cut(part))
    return part.iloc[max(int(warms_up), _slow_starts(part)) :]


def _is_cut(part: pd.DataFrame) -> bool:
    """Whether the first step is not whole: that of a recording begins with its first phase, so that
    what the loop did before, such as loading data, is no part of it.
    """
    return len(part) > 1 and str(part["source"].iloc[0]).endswith(SUFFIX)


def _slow_starts(part: pd.DataFrame) -> int:
    """The number of rows at the start that are each at least `_WARM_UP_RATIO` times the largest of
    all rows after them; a launch's very first one alone, `_FIRST_RATIO` times.
    """
    seconds = part["seconds"].to_numpy(dtype=float)
    begins = len(part) > 1 and bool(part["warm_up"].iloc[0])
    others = 1 if begins else _WARM_UP_OTHERS
    most = min(len(seconds) - others, _WARM_UP_MOST, max(1, int(len(part) * _WARM_UP_PART)))
    least = np.minimum.accumulate(seconds)
    rest = np.fmax.accumulate(seconds[::-1])[::-1]
    slow = [many for many in range(1, most + 1) if least[many - 1] >= _WARM_UP_RATIO * rest[many]]
    ratio = _FIRST_RATIO if len(seconds) > 2 else _FIRST_OF_TWO_RATIO
    is_slow = begins and most > 0 and least[0] >= ratio * rest[1]
    return max(slow, default=int(is_slow))


def breakdown_of(steps: pd.DataFrame, phases: pd.DataFrame) -> Breakdown | None:
    """The mean step of `steps` (from `main_steps`); None if there are none."""
    if steps.empty:
        return None
    told = told_alike(steps)
    known = [name for name in CLASSES if told[name].notna().any()]
    return Breakdown(
        seconds=mean_of(told, "seconds"),
        classes={name: mean_of(told, name) for name in known},
        phases=_phase_table(told, main_phases(told, phases)),
        windows=len(told),
        first=int(told["step"].iloc[0]),
        last=int(told["step"].iloc[-1]),
    )


def mean_of(steps: pd.DataFrame, column: str) -> float:
    """The mean of a column over steps; for rates the mean over time. NaN if no value is known.

    A row that is the mean of many steps weighs accordingly: lines need not stand equally far apart.
    A rate is weighted by the duration of its step. If `seconds` is not the duration that the rate
    is based on, 1 / rate stands for it, because with a constant batch a step takes longer in
    proportion as the rate is lower.
    """
    values = numbers(steps[column])
    known = ~np.isnan(values)
    if not known.any():
        return np.nan
    values, weights = values[known], weights_of(steps)[known]
    if column in _RATES:
        of_the_step = steps["seconds_from"].isin(["logged", "throughput", "bar"])[known].all()
        weights = weights * (numbers(steps["seconds"])[known] if of_the_step else 1 / values)
    return float(np.average(values, weights=weights))


def weights_of(steps: pd.DataFrame) -> np.ndarray:
    """The number of steps whose mean each row is, as bars, lines and time stamps tell it; else 1.
    [rows]"""
    of_several = steps["seconds_from"].isin(["bar", "logged", "clock"])
    weights: np.ndarray = np.where(of_several, numbers(steps["covers"]), 1.0)
    return weights


def told_alike(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps that have the most frequent set of known classes; all steps if none is divided.

    A mean over steps that lack a class would count it as zero there.
    """
    kind = np.zeros(len(steps), np.int64)  # a bit for each class that is known
    for bit, name in enumerate(CLASSES):
        kind |= steps[name].notna().to_numpy().astype(np.int64) << bit
    divided = kind[kind > 0]
    if not len(divided):
        return steps
    often = np.bincount(divided)[divided]
    return where(steps, kind == divided[often.argmax()])  # a tie goes to the earliest


def pipeline_phases(phases: pd.DataFrame) -> pd.DataFrame:
    """The point-to-point rows of a `Breakdown.phases` table."""
    return phases[phases.index.str.contains(_PIPELINE)] if len(phases) else phases


def main_phases(steps: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """The phases of `steps` (from `main_steps`)."""
    return within(steps, phases, *STEP)


#: Columns taken from a phase's last row, and new names for some of them in the table.
_LAST = ("class", "mixed", "step", "self_seconds", "seconds", "raw", "source", "line")
_SHOWN = {"self_seconds": "shown", "seconds": "held"}


def _phase_table(steps: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """`Breakdown.phases`: self seconds per name, step and rank, largest first.

    If timers sum to more than their class has in a step, all of them are scaled down to that.
    """
    phases = where(phases, phases["self_seconds"].notna())
    at = steps_of(steps, phases)
    name = phases["name"].astype("category")
    classes = phases["class"].astype("category").cat.set_categories(list(CLASSES)).cat.codes
    code, class_ = at.once(name.cat.codes.to_numpy(), classes.to_numpy())
    pair = code.astype(np.int64) * (len(CLASSES) + 1) + class_ % (len(CLASSES) + 1)
    known = distinct(pair)
    own = numbers(phases["self_seconds"])
    sums, ranks = at.sums(np.searchsorted(known, pair), len(known), own), at.ranks(phases["rank"])
    for number, word in enumerate(CLASSES):
        mine = known % (len(CLASSES) + 1) == number
        if word == Class.CHECKPOINT or not mine.any():  # saves between steps belong to no step
            continue
        timed = sums[:, mine].sum(axis=1) / np.maximum(ranks, 1.0)
        part = np.divide(numbers(steps[word]), timed, out=np.ones(len(timed)), where=timed > 0)
        sums[:, mine] *= np.fmin(1.0, part)[:, None]
    words = name.cat.categories.astype(str)
    last = at.lasts(code, len(words)).max(axis=0, initial=-1)
    found = np.flatnonzero(last >= 0)
    table = phases.iloc[last[found]][list(_LAST)]
    table = table.set_axis(words[found]).rename(columns=_SHOWN)
    weights = weights_of(steps)
    total = np.bincount(known // (len(CLASSES) + 1), weights @ sums, len(words))[found]
    table.insert(1, "seconds", total / max(1.0, float(weights @ ranks)))
    largest_first: pd.DataFrame = table.sort_values("seconds", ascending=False, kind="stable")
    return largest_first
