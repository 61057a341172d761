"""Two runs of one job: slower, faster, the same, or cannot tell.

Step times of a run depend on each other (a slow minute is slow throughout), so intervals
come from a moving-block bootstrap (Künsch 1989): whole stretches are drawn, not single
steps. What a reader decides on is the ratio of mean step times.

Judged are the steps that a report averages, where both runs have enough of them and tell their
seconds in the same way; else all that are timed alike. Where a step goes is always of the steps
that a report averages, so that the two agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsprof.analysis.breakdown import known_by, main_steps, regular_steps
from dsprof.events import Class
from dsprof.text.overview import overview
from dsprof.text.parts import Part

if TYPE_CHECKING:
    from dsprof.run import Run

Floats = NDArray[np.float64]
Answer = Literal["regression", "improvement", "none", "cannot tell"]

TOLERANCE: Final = 0.02  # a difference of less than 2 % does not matter

_FEWEST: Final = 8  # rows of a run; fewer hold no stretch worth drawing
_APART: Final = 4  # rows of a run that answer where no two of both are near: by chance 1 in 35
_FAR: Final = 1.25  # how much longer each must be then than any of the other run
_DRAWS: Final = 4000
_HOPE: Final = 100  # times the rows there are; who asks for more asks for nothing
_LEVEL: Final = 0.95
_MOST: Final = 20_000  # rows, evenly spread; more tells nothing new
_SEED: Final = 20_231_115  # the same two runs get the same answer


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs; seconds are of a step or of a sample.

    Attributes:
        rows: printed rows that were judged.
        seconds: their mean.
        steps: printed rows that a report of the run averages.
        step_seconds: their mean, and in `seconds_from` how it is known.
        classes: of that by class, as far as seen: what was only inferred to be 0 is not here.
        parts: of that as a report shows it; they add up to it.
    """

    rows: int
    seconds: float | None
    steps: int
    step_seconds: float | None
    seconds_from: str | None
    classes: dict[str, float]
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the second run compares with the first.

    Attributes:
        answer: what the interval allows to say.
        why: in a sentence.
        assumed: what must be so for the answer to hold, and what nothing says; "" if nothing.
        per: "step", or "sample" where the runs' batches are known to differ.
        seconds_from: how the seconds of the judged rows are known; None where not in one way.
        ratio, low, high: mean seconds of the second over the first, with a 95 % interval; of few
            rows, which have none, the least and the greatest ratio of two of them.
        needed: rows of each run that would decide it, where that can be estimated.
        first, second: the two runs.
        settings: configuration that differs: name to both values, None where unknown.
    """

    answer: Answer
    why: str
    assumed: str
    per: Literal["step", "sample"]
    seconds_from: str | None
    ratio: float | None
    low: float | None
    high: float | None
    needed: int | None
    first: Side
    second: Side
    settings: dict[str, tuple[Any, Any]]

    def document(self) -> dict[str, Any]:
        """The same as JSON types, `schema` 1."""
        from dsprof.text.document import SCHEMA, to_json

        return {"schema": SCHEMA, **to_json(asdict(self))}


def compare(first: Run, second: Run, *, tolerance: float = TOLERANCE) -> Comparison:
    """Judge `second` against `first`; differences within `tolerance` count as none."""
    rows_a, rows_b = _judgeable(first, second)
    measures = {known_by(rows) for rows in (rows_a, rows_b)}
    batches = _batches(first, second)
    batch_a, batch_b = batches or (1.0, 1.0)
    before: Floats = rows_a["seconds"].to_numpy(np.float64) / batch_a
    after: Floats = rows_b["seconds"].to_numpy(np.float64) / batch_b
    same = len(rows_a) > 0 and _same(first.steps, second.steps)
    obstacle = _incomparable(rows_a, rows_b) or _unlike(first, second)
    judged = dict(_SAME) if same else _judged(before, after, tolerance, obstacle)
    if judged["answer"] in {"none", "improvement"} and measures == {"timers"}:
        judged |= _unseen(first, second, batch_b / batch_a, tolerance)
    return Comparison(
        **judged,
        assumed="" if same or judged["answer"] == "cannot tell" else _assumed(first, second),
        per="sample" if batches else "step",
        seconds_from=measures.pop() if len(measures) == 1 else None,
        first=_side(first, before, batch_a),
        second=_side(second, after, batch_b),
        settings=differing(_configured(first), _configured(second)),
    )


_SAME: Final[dict[str, Any]] = {
    "answer": "none",
    "why": "both report exactly the same for every step",
    "needed": None,
    **dict.fromkeys(("ratio", "low", "high"), 1.0),
}


def _same(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Whether the runs are one and the same: two measurements agree nowhere so well."""
    return first.drop(columns="source").equals(second.drop(columns="source"))


def _judgeable(first: Run, second: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both to judge by; sums of timers, which leave out what nobody timed, only
    where too few rows tell all of a step, or one run alone has a rate at each."""
    whole = main_steps(first.steps), main_steps(second.steps)
    alike = known_by(whole[0]) == known_by(whole[1]) != "rated"  # by few rates, without a spread
    if min(map(len, whole)) >= _FEWEST and alike:
        return whole
    each = regular_steps(first.steps), regular_steps(second.steps)
    if {known_by(rows) for rows in each} != {"timers", "throughput"}:
        return each
    timed = _by_timers(first, each[0]), _by_timers(second, each[1])
    same = set(first.phases["name"]) == set(second.phases["name"])
    return timed if same and min(map(len, timed)) >= _FEWEST else each


def _by_timers(run: Run, steps: pd.DataFrame) -> pd.DataFrame:
    """Those of `steps` that are timed, in terms of their timers."""
    timed = run.timed[steps.index]
    return steps.assign(seconds=timed, seconds_from="timers")[timed > 0]


def _unseen(first: Run, second: Run, batches: float, tolerance: float) -> dict[str, Any]:
    """What takes back that timers let the second run pass: the few whole steps that both tell do
    not, so that what nobody timed may be what became slower."""
    before, after = main_steps(first.steps), main_steps(second.steps)
    ratio = float(after["seconds"].mean() / before["seconds"].mean()) / batches
    measures = {known_by(rows) for rows in (before, after)}
    if "timers" in measures or (len(measures) > 1 and measures != {"rated", "throughput"}):
        return {}
    if ratio <= 1 + tolerance:
        return {}
    why = f"timers leave out what nobody timed, and whole steps, too few to judge, take {ratio:.2f}"
    return {"answer": "cannot tell", "why": f"{why} times as long", "needed": _FEWEST}


def _judged(first: Floats, second: Floats, tolerance: float, obstacle: str) -> dict[str, Any]:
    """The fields of a `Comparison` that say what the interval allows to say."""
    rows = min(len(first), len(second))
    few = not obstacle and _APART <= rows < _FEWEST
    if few and (apart := _far_apart(first, second, tolerance)):
        return apart
    if obstacle or rows < _FEWEST:
        why = obstacle or f"{rows} timed rows, {_FEWEST} needed of each run"
        needed = None if obstacle else _FEWEST
        return {"answer": "cannot tell", "why": why, "needed": needed} | dict.fromkeys(
            ("ratio", "low", "high")
        )
    ratio, low, high = interval(first, second)
    answer = judge(low, high, tolerance)
    undecided = answer == "cannot tell"
    needed = _needed(ratio, low, high, tolerance, rows) if undecided else None
    found = {"answer": answer, "why": _WHY[answer], "needed": needed}
    return found | {"ratio": ratio, "low": low, "high": high}


def _far_apart(first: Floats, second: Floats, tolerance: float) -> dict[str, Any] | None:
    """What few rows say for which no interval is to be had, if each is far from all of the other
    run's."""
    low, high = float(second.min() / first.max()), float(second.max() / first.min())
    far = max(_FAR, 1 + tolerance)
    if low < far and high > 1 / far:
        return None
    slower = low >= far
    where = (
        f"the shortest of the second run takes {low:.3g} times as long as the longest of the first"
        if slower
        else f"the longest of the second run takes {high:.3g} of the shortest of the first"
    )
    return {
        "answer": "regression" if slower else "improvement",
        "why": f"few rows, but {where}",
        "needed": None,
        "ratio": float(second.mean() / first.mean()),
        "low": low,
        "high": high,
    }


def _batches(first: Run, second: Run) -> tuple[float, float] | None:
    """Samples of a step where they differ: then only seconds of a sample compare."""
    before, after = (run.config.get("train_batch_size") for run in (first, second))
    if not before or not after or before == after:
        return None
    return float(before), float(after)


#: What multiplies to the batch.
_FACTORS: Final = (
    "micro_batch_size", "gradient_accumulation_steps", "data_parallel_size", "world_size",
)  # fmt: skip
_ALIKE: Final = 0.05  # by which what rates tell may be off


def _unlike(first: Run, second: Run) -> str:
    """What shows that steps hold unlike many samples, where not both batches are told."""
    if _untold(first, second) is None:
        return ""
    samples = [_samples(run) for run in (first, second)]
    if all(samples):
        less, more = sorted(samples)
        differ = less < (1 - _ALIKE) * more
        told = f"{samples[0]:,.0f} samples in one run and about {samples[1]:,.0f} in the other"
        return f"by its rate of samples, a step takes about {told}" if differ else ""
    for name in _FACTORS:
        one, other = (run.config.get(name) for run in (first, second))
        if one and other and one != other:
            which = _untold(first, second)
            return f"{name} is {one} in one run and {other} in the other, and {which} its batch"
    return ""


def _assumed(first: Run, second: Run) -> str:
    """That batches are the same, where neither they nor rates show it."""
    which = _untold(first, second)
    if which is None or all(_samples(run) for run in (first, second)):
        return ""
    return f"the batch is the same in both: {which} it"


def _untold(first: Run, second: Run) -> str | None:
    """Which of them do not tell their batch: `the second run does not tell`."""
    told = [bool(run.config.get("train_batch_size")) for run in (first, second)]
    if all(told):
        return None
    return f"the {'second' if told[0] else 'first'} run does not tell" if any(told) else _NEITHER


_NEITHER: Final = "neither run tells"


def _samples(run: Run) -> float:
    """Samples of a step, as told, or by rates beside seconds of whole steps; else 0."""
    told = run.config.get("train_batch_size")
    if told:
        return float(told)
    rows = main_steps(run.steps)
    whole = rows[rows["seconds_from"].isin(("logged", "clock"))]
    found = (whole["samples_per_second"] * whole["seconds"]).median()
    return 0.0 if pd.isna(found) else float(found)


_WHY: Final = {
    "regression": "the whole interval lies above what is tolerated",
    "improvement": "the whole interval lies below what is tolerated",
    "none": "the whole interval lies within what is tolerated",
    "cannot tell": "the interval holds both a difference that matters and none",
}


def judge(low: float, high: float, tolerance: float) -> Answer:
    """What an interval of the ratio allows to say."""
    if low > 1 + tolerance:
        return "regression"
    if high < 1 - tolerance:
        return "improvement"
    if low >= 1 - tolerance and high <= 1 + tolerance:
        return "none"
    return "cannot tell"


def interval(first: Floats, second: Floats) -> tuple[float, float, float]:
    """Ratio of the means (second over first), and its 95 % interval."""
    first, second = _thinned(first), _thinned(second)
    chance = np.random.default_rng(_SEED)
    ratios = block_means(second, chance) / block_means(first, chance)
    ratio = float(second.mean() / first.mean())
    low, high = np.quantile(ratios, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    wider = _few_blocks(min(len(part) / _block_length(part) for part in (first, second)))
    return ratio, float(ratio - (ratio - low) * wider), float(ratio + (high - ratio) * wider)


def _few_blocks(blocks: float) -> float:
    """How much wider an interval of few independent stretches must be: Student's t over normal."""
    from scipy.special import ndtri, stdtrit

    freedom, tail = max(1.0, blocks - 1), (1 + _LEVEL) / 2
    return float(stdtrit(freedom, tail) / ndtri(tail) * math.sqrt((freedom + 1) / freedom))


def block_means(values: Floats, chance: np.random.Generator) -> Floats:
    """Means of `_DRAWS` resamples made of whole stretches of `values`.

    The stretches wrap around the end, so that every value is drawn equally often.
    """
    size = len(values)
    length = _block_length(values)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:length]]))])
    blocks = (sums[length:] - sums[:-length])[:size]
    drawn = chance.integers(0, size, size=(_DRAWS, max(1, round(size / length))))
    return np.asarray(blocks[drawn].mean(axis=1) / length)


def _block_length(values: Floats) -> int:
    """Rows over which step times remember: twice where their correlation has died out."""
    size = len(values)
    calm = values - values.mean()
    spread = float(np.dot(calm, calm))
    shortest, longest = math.ceil(math.cbrt(size)), max(1, size // 4)
    if spread == 0:
        return min(shortest, longest)
    noise = 2 / math.sqrt(size)
    lags = range(1, longest)
    free = next((k for k in lags if np.dot(calm[k:], calm[:-k]) / spread < noise), longest)
    return min(max(shortest, 2 * free), longest)


def _thinned(values: Floats) -> Floats:
    return values[:: max(1, -(-len(values) // _MOST))]


def _needed(ratio: float, low: float, high: float, tolerance: float, rows: int) -> int | None:
    """Rows at which the interval would end before the nearest border; it shrinks as 1/sqrt."""
    room = min(abs(ratio - (1 + tolerance)), abs(ratio - (1 - tolerance)))
    if room < 1e-6:
        return None
    needed = math.ceil(rows * ((high - low) / 2 / room) ** 2)
    return needed if needed <= _HOPE * rows else None  # so near a border none would tell


def _incomparable(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Why seconds of the two are not of the same thing; "" if they are."""
    if first.empty or second.empty:
        which = "first" if first.empty else "second"
        return f"the {which} run does not say how long a step takes"
    sources = [known_by(part) for part in (first, second)]
    if sources[0] != sources[1]:
        return f"step seconds come from {sources[0]} in one run and from {sources[1]} in the other"
    return ""


def _side(run: Run, values: Floats, batch: float) -> Side:
    seen = overview(run)
    told = {
        *run.phases["class"].dropna().astype(str),
        *([str(Class.COMMUNICATION)] if len(run.comm) else []),
    }
    return Side(
        rows=len(values),
        seconds=float(values.mean()) if len(values) else None,
        steps=seen.averaged,
        step_seconds=None if seen.seconds is None else seen.seconds / batch,
        seconds_from=seen.seconds_from,
        classes={
            name: seconds / batch
            for name, seconds in seen.classes.items()
            if seconds or name in told or name == Class.OTHER
        },
        parts=[_scaled(part, batch) for part in seen.parts if not part.inside],
    )


def _scaled(part: Part, batch: float) -> Part:
    """The same of one sample."""
    return part if part.seconds is None else replace(part, seconds=part.seconds / batch)


def _configured(run: Run) -> dict[str, Any]:
    return {"versions": run.meta.get("versions") or {}, **run.config}


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that both or one of the runs tell and that are not the same, by dotted name."""
    flat = [dict(_flat(config)) for config in (first, second)]
    names = [name for name in {**flat[0], **flat[1]} if flat[0].get(name) != flat[1].get(name)]
    return {name: (flat[0].get(name), flat[1].get(name)) for name in sorted(names)}


def _flat(config: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """`{"a": {"b": 1}}` to `a.b`; the job's own JSON keeps its own names."""
    pairs: list[tuple[str, Any]] = []
    for name, value in config.items():
        inner = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            pairs += _flat(value, "" if inner == "ds_config" else inner)
        elif " object at 0x" not in str(value):  # an address says nothing
            pairs.append((inner, value))
    return pairs
