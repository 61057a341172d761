"""Where the seconds of an average optimizer step go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Class
from dsprof.recording.table import distinct
from dsprof.run.longest import longest_part
from dsprof.run.steps import ENOUGH, whole_steps
from dsprof.run.stretches import steps_of
from dsprof.run.table import numbers, where, within

CLASSES = tuple(str(member) for member in Class)

#: How reports say that a mean is of that step, or those, alone whose whole time the source says.
_WHOLE: Final = ("the one whose whole time is known", "those whose whole time is known")

#: Prefixes and suffixes of point-to-point timers: DeepSpeed's and DeeperSpeed's
#: pipeline engine, Megatron's schedules; and calls that a recording saw inside them.
_PIPELINE = (
    r"(?:^|_in_)pipe_(?:send|recv)|(?:forward|backward)-(?:send|recv)"
    r"|(?:forward|backward)_(?:send|recv)"
)

#: Rows left out at the start of a launch once there are that many: the first
#: step also builds kernels, buckets and traces.
_WARM_UP_FROM = 6

#: Of fewer rows the first one is left out where it is so many times the largest of the others.
#: At least two others remain, or one where the launch is known to begin with the first: of two rows
#: alone, either may be the unusual one.
_WARM_UP_RATIO = 3.0
_WARM_UP_OTHERS = 2

#: Several rows at the start, such as those that are compiled, are left out where the least of them
#: is as slow, up to so many, and up to that part of all.
_WARM_UP_MOST = 10
_WARM_UP_PART = 0.1

#: Part of a step beyond which one alone shows that timers leave something out, if its own sum to
#: less than so many times the usual.
_LEFT_OUT = 0.1
_LIKE = 1.5

_RATES = ("samples_per_second", "tokens_per_second", "tflops")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The mean optimizer step of the part of a run that lasted longest.

    Attributes:
        seconds: of one step.
        classes: seconds per class; only classes the source tells.
        phases: one row per phase, largest first: `name` (index), `class`, `seconds` (self
            time per step and rank, scaled as the classes are where timers exceed their step),
            `mixed` (that is compute and communication unseparated); `step`, `shown` (seconds of
            its own), `held` (with the timers inside it), `raw` (its name there), `source` and
            `line` of its last row.
        windows: printed rows it is the mean of.
        first, last: optimizer steps at which it begins and ends.
    """

    seconds: float
    classes: dict[str, float]
    phases: pd.DataFrame
    windows: int
    first: int
    last: int

    def of(self, *classes: str) -> float | None:
        """Seconds per step spent in these classes; None if the source tells of none of them."""
        known = [self.classes[name] for name in classes if name in self.classes]
        return sum(known) if known else None


def main_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The rows of the (segment, engine) that took most time, without its first step.

    Launches and engines have different step times: their mean would be of nothing. Nor would
    a mean of steps that are known in different ways: timers leave out what nobody timed. So
    where a source says of enough steps how long all of each took, or of one that timers leave
    much of it out, these alone are meant.
    """
    part = _warm(longest_part(steps))
    whole = whole_steps(part)
    timers = part["seconds"]
    left_out = timers < (1 - _LEFT_OUT) * part["whole_seconds"]
    usual = timers < _LIKE * timers.median()
    return whole if len(whole) >= ENOUGH or (left_out & usual).any() else part


def averaged_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The rows that the mean step is of: `main_steps`, those that are timed alike."""
    return told_alike(main_steps(steps))


def regular_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """The same for a view over time: every row whose seconds are known, all in one way."""
    return _warm(longest_part(steps))


def known_by(steps: pd.DataFrame) -> str | None:
    """How the seconds of these steps are known, all in one way; None where there are no steps."""
    return str(steps["seconds_from"].iloc[0]) if len(steps) else None


def without_first(steps: pd.DataFrame) -> str:
    """`without the first step, a warm-up`: what `main_steps` and `regular_steps` leave out."""
    part = longest_part(steps)
    many = len(part) - len(_warm(part))
    return f"without the first {many if many > 1 else 'step'}, a warm-up" if many else ""


def left_aside(steps: pd.DataFrame) -> str:
    """`, without the first step, a warm-up`: which steps `main_steps` is of; "" if of all."""
    part = longest_part(steps)
    main = len(main_steps(steps))
    few = main < len(_warm(part))
    first = "" if few and pd.isna(part["whole_seconds"].iloc[0]) else without_first(steps)
    return f", {_WHOLE[main > 1]}" * few + (f", {first}" if first else "")


def engines(steps: pd.DataFrame) -> dict[int, float]:
    """Engine → mean seconds of its steps, of the launch that took most time; the judged one first.

    Empty unless steps of several engines are timed.
    """
    part = longest_part(steps)
    if part.empty:
        return {}
    launch = steps[steps["segment"] == part["segment"].iloc[0]]
    means = launch.groupby("engine")["seconds"].mean().dropna()
    judged = int(part["engine"].iloc[0])
    order = sorted(means.index, key=lambda engine: (engine != judged, engine))
    return {int(engine): float(means[engine]) for engine in order} if len(means) > 1 else {}


def _warm(part: pd.DataFrame) -> pd.DataFrame:
    warms_up = len(part) >= _WARM_UP_FROM and bool(part["warm_up"].iloc[0])
    return part.iloc[max(int(warms_up), _slow_starts(part)) :]


def _slow_starts(part: pd.DataFrame) -> int:
    """How many rows at the start are each several times the largest of all that follow."""
    seconds = part["seconds"].to_numpy(dtype=float)
    begins = len(part) > 1 and bool(part["warm_up"].iloc[0])
    others = 1 if begins else _WARM_UP_OTHERS
    most = min(len(seconds) - others, _WARM_UP_MOST, max(1, int(len(part) * _WARM_UP_PART)))
    least = np.minimum.accumulate(seconds)
    rest = np.fmax.accumulate(seconds[::-1])[::-1]
    slow = [many for many in range(1, most + 1) if least[many - 1] >= _WARM_UP_RATIO * rest[many]]
    return max(slow, default=0)


def breakdown_of(steps: pd.DataFrame, phases: pd.DataFrame) -> Breakdown | None:
    """The mean step of `steps` (as `main_steps` gives them); None if no step has a time."""
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
    """The mean of a column over the steps of all rows: of a rate that over their time.

    Bars stand at any distance: their rows weigh more as they cover more. Seconds that are not of
    the step a rate is of leave the rate to say how long that is: steps of one batch take so much
    longer as they are slower.
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
    """Of how many steps each row counts: what a bar says as many as it covers, any other one."""
    weights: np.ndarray = np.where(steps["seconds_from"] == "bar", numbers(steps["covers"]), 1.0)
    return weights


def told_alike(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of which the same classes are known, as of most: a mean over steps that lack a
    class would count it as nothing there. All steps, if none of them is divided."""
    kind = np.zeros(len(steps), np.int64)  # a bit for each class that is known
    for bit, name in enumerate(CLASSES):
        kind |= steps[name].notna().to_numpy().astype(np.int64) << bit
    divided = kind[kind > 0]
    if not len(divided):
        return steps
    often = np.bincount(divided)[divided]
    return where(steps, kind == divided[often.argmax()])  # of those as often the first one


def pipeline_phases(phases: pd.DataFrame) -> pd.DataFrame:
    """The point-to-point rows of a `Breakdown.phases` table."""
    return phases[phases.index.str.contains(_PIPELINE)] if len(phases) else phases


def main_phases(steps: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """The phases of `steps` (as `main_steps` gives them)."""
    return within(steps, phases, "segment", "engine", "step")


#: What a phase's last row tells, and what that is called in the table.
_LAST = ("class", "mixed", "step", "self_seconds", "seconds", "raw", "source", "line")
_SHOWN = {"self_seconds": "shown", "seconds": "held"}


def _phase_table(steps: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """Self seconds of `steps` per name, step and rank, largest first: where timers sum to more
    than their class has of a step, so much less of each."""
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
        if word == Class.CHECKPOINT or not mine.any():  # what is saved between steps is of none
            continue
        timed = sums[:, mine].sum(axis=1) / np.maximum(ranks, 1.0)
        part = np.divide(numbers(steps[word]), timed, out=np.ones(len(timed)), where=timed > 0)
        sums[:, mine] *= np.fmin(1.0, part)[:, None]
    words = name.cat.categories.astype(str)
    last = at.lasts(code, len(words)).max(axis=0, initial=-1)
    found = np.flatnonzero(last >= 0)
    table = phases.iloc[last[found]][list(_LAST)]
    table = table.set_axis(words[found]).rename(columns=_SHOWN)
    total = np.bincount(known // (len(CLASSES) + 1), sums.sum(axis=0), len(words))[found]
    table.insert(1, "seconds", total / max(1.0, ranks.sum()))
    largest_first: pd.DataFrame = table.sort_values("seconds", ascending=False, kind="stable")
    return largest_first


def shares(breakdown: Breakdown) -> dict[str, float]:
    """Part of the step per class, 0 to 1."""
    if not breakdown.seconds or not np.isfinite(breakdown.seconds):
        return {}
    return {name: value / breakdown.seconds for name, value in breakdown.classes.items()}
