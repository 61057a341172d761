"""Compares two runs of one job: slower, faster, the same, or cannot tell.

The measure is the ratio of mean step times, with its interval (`dsprof.analysis.ratio`).

The steps that a report averages are judged if both runs have enough of them and know their seconds
in the same way; otherwise all steps that are timed alike. The division of a step into classes is
always that of the steps that a report averages, so that it agrees with the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import (
    engines,
    known_by,
    main_steps,
    mean_of,
    weights_of,
)
from dsprof.analysis.comparable import FEWEST, comparable
from dsprof.analysis.ratio import Answer, Times, interval, judge, rows_needed
from dsprof.events import Class
from dsprof.findings.rules import ENDED
from dsprof.run.steps.between import SURPLUS
from dsprof.text.overview import overview
from dsprof.text.parts import Part
from dsprof.text.words import measured_by

if TYPE_CHECKING:
    from dsprof.run import Run

TOLERANCE: Final = 0.02  # a difference of less than 2 % does not matter

_APART: Final = 4  # rows of a run that suffice if all are far from the other's: chance is 1 in 35
_FAR: Final = 1.25  # the least ratio between any two rows of the two runs in that case


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs. Seconds are per step or per sample, see `Comparison.per`.

    Attributes:
        rows: number of rows that were judged.
        seconds: their mean.
        steps: number of rows that a report of the run averages.
        step_seconds: their mean.
        seconds_from: how it is known.
        recorded: the run was recorded inside training, not read from a log.
        failure: what ended it, as a report of it begins; "" if nothing is known to have.
        classes: its seconds by class, as far as seen; a class that is only inferred to be 0 is
            absent.
        parts: its division as a report shows it; they add up to it.
    """

    rows: int
    seconds: float | None
    steps: int
    step_seconds: float | None
    seconds_from: str | None
    recorded: bool
    failure: str
    classes: dict[str, float]
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the second run compares with the first.

    Attributes:
        answer: the conclusion that the interval allows.
        why: the reason, in words.
        assumed: an assumption of the answer that neither run confirms; "" if there is none.
        per: "step", or "sample" if the runs' batches are known to differ.
        seconds_from: how the seconds of the judged rows are known; None if not all in one way.
        ratio, low, high: mean seconds of the second run over the first, with a 95 % interval. Few
            rows have no interval; for them, the least and the greatest ratio of any two rows.
        needed: rows of each run that would be enough to decide, if that can be estimated.
        first, second: the two runs.
        settings: configuration that differs: name → both values, None if unknown.
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
        """The comparison as JSON types (docs/json.md), `schema` 1."""
        from dsprof.text.document import SCHEMA, to_json

        return {"schema": SCHEMA, **to_json(asdict(self))}


def compare(first: Run, second: Run, *, tolerance: float = TOLERANCE) -> Comparison:
    """Judge `second` against `first`; differences within `tolerance` count as none."""
    rows_a, rows_b = comparable(first, second)
    measures = {known_by(rows) for rows in (rows_a, rows_b)}
    batches = _batches(first, second)
    batch_a, batch_b = batches or (1.0, 1.0)
    before, after = _times(rows_a, batch_a), _times(rows_b, batch_b)
    same = len(rows_a) > 0 and _same(first.steps, second.steps)
    obstacle = _incomparable((first, rows_a), (second, rows_b)) or _unlike(first, second)
    judged = dict(_SAME) if same else _judged(before, after, tolerance, obstacle)
    if judged["answer"] in {"none", "improvement"}:
        unseen = {"timers": _unseen, "throughput": _between}
        for beside in (unseen[way] for way in unseen if measures == {way}):
            judged |= beside(first, second, batch_b / batch_a, tolerance)
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
    """Whether both are the same run: two measurements never agree in every value."""
    return first.drop(columns="source").equals(second.drop(columns="source"))


def _times(rows: pd.DataFrame, batch: float) -> Times:
    return Times(rows["seconds"].to_numpy(np.float64) / batch, weights_of(rows))


def _unseen(first: Run, second: Run, batches: float, tolerance: float) -> dict[str, Any]:
    """Fields that revoke a pass by timers; empty if nothing contradicts it.

    It is revoked if the few whole steps that both runs have are slower in the second run, because
    untimed work may be what became slower. `batches` is the second run's samples per step over the
    first's.
    """
    before, after = main_steps(first.steps), main_steps(second.steps)
    ratio = mean_of(after, "seconds") / mean_of(before, "seconds") / batches
    measures = {known_by(rows) for rows in (before, after)}
    if "timers" in measures or (len(measures) > 1 and measures != {"rated", "throughput"}):
        return {}
    if ratio <= 1 + tolerance:
        return {}
    why = f"timers leave out what nobody timed, and whole steps, too few to judge, take {ratio:.2f}"
    return {"answer": "cannot tell", "why": f"{why} times as long", "needed": FEWEST}


def _between(first: Run, second: Run, batches: float, tolerance: float) -> dict[str, Any]:
    """Fields that revoke a pass by rates where time stamps that are too coarse for single steps
    show the second run's to take longer: rates leave out what lies between steps. Where stamps show
    no more than the rates, that may be so much more."""
    before, after = main_steps(first.steps), main_steps(second.steps)
    ratio = mean_of(after, "seconds") / mean_of(before, "seconds") / batches
    sure = known_by(before) == "clock"
    if known_by(after) != "clock" or ratio <= 1 + tolerance + (0.0 if sure else SURPLUS):
        return {}
    why = f"rates leave out what lies between steps, and by the time stamps steps take {ratio:.2f}"
    return {"answer": "cannot tell", "why": f"{why} times as long", "needed": None}


def _judged(first: Times, second: Times, tolerance: float, obstacle: str) -> dict[str, Any]:
    """The fields `answer`, `why`, `needed`, `ratio`, `low` and `high` of a `Comparison`."""
    rows = min(len(first.seconds), len(second.seconds))
    few = not obstacle and _APART <= rows < FEWEST
    if few and (apart := _far_apart(first, second, tolerance)):
        return apart
    if obstacle or rows < FEWEST:
        why = obstacle or f"{rows} step times, {FEWEST} needed of each run"
        needed = None if obstacle else FEWEST
        return {"answer": "cannot tell", "why": why, "needed": needed} | dict.fromkeys(
            ("ratio", "low", "high")
        )
    ratio, low, high = interval(first, second)
    answer = judge(low, high, tolerance)
    undecided = answer == "cannot tell"
    needed = rows_needed(ratio, low, high, tolerance, rows) if undecided else None
    found = {"answer": answer, "why": _why(answer, tolerance), "needed": needed}
    return found | {"ratio": ratio, "low": low, "high": high}


def _far_apart(first: Times, second: Times, tolerance: float) -> dict[str, Any] | None:
    """The same fields for few rows, which have no interval, if each row is far from all rows of the
    other run; else None.
    """
    low = float(second.seconds.min() / first.seconds.max())
    high = float(second.seconds.max() / first.seconds.min())
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
        "why": f"few step times, but {where}",
        "needed": None,
        "ratio": second.mean / first.mean,
        "low": low,
        "high": high,
    }


def _batches(first: Run, second: Run) -> tuple[float, float] | None:
    """Samples per step of both runs if they are known to differ, so that only seconds per sample
    can be compared; else None.
    """
    before, after = (run.config.get("train_batch_size") for run in (first, second))
    if not before or not after or before == after:
        return None
    return float(before), float(after)


#: Settings that determine the batch.
_FACTORS: Final = (
    "micro_batch_size", "gradient_accumulation_steps", "data_parallel_size", "world_size",
)  # fmt: skip
_ALIKE: Final = 0.05  # relative error of samples that are derived from rates


def _unlike(first: Run, second: Run) -> str:
    """Words for what shows that steps of the two runs have different numbers of samples, if not
    both state their batch; "" if nothing does.
    """
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
    made = [_backwards(run) for run in (first, second)]
    if all(made) and made[0] != made[1]:
        one, other = (_how_often(many) for many in made)
        runs = f"backward runs {one} a step in one run and {other} in the other"
        return f"{runs}, and {_untold(first, second)} its batch"
    return ""


def _backwards(run: Run) -> int:
    """How often a step of a recording runs backward, as for several micro-batches; 0 if unknown."""
    phases = run.phases
    if not run.is_recording:
        return 0
    times = phases["count"][phases["name"].eq("backward").to_numpy(bool, na_value=False)].median()
    return 0 if pd.isna(times) else round(float(times))


def _how_often(many: int) -> str:
    return "once" if many == 1 else f"{many:,} times"


def _assumed(first: Run, second: Run) -> str:
    """The assumption that both have the same batch, if neither settings nor rates show it; "" if
    they do.
    """
    which = _untold(first, second)
    if which is None or all(_samples(run) for run in (first, second)):
        return ""
    return f"the batch is the same in both: {which} it"


def _untold(first: Run, second: Run) -> str | None:
    """Words for which runs do not state their batch, such as `the second run does not tell`; None
    if both do.
    """
    told = [bool(run.config.get("train_batch_size")) for run in (first, second)]
    if all(told):
        return None
    return f"the {'second' if told[0] else 'first'} run does not tell" if any(told) else _NEITHER


_NEITHER: Final = "neither run tells"


def _samples(run: Run) -> float:
    """Samples per step, as configured or by rate times seconds of whole steps; 0 if unknown."""
    told = run.config.get("train_batch_size")
    if told:
        return float(told)
    rows = main_steps(run.steps)
    whole = rows[rows["seconds_from"].isin(("logged", "clock"))]
    found = (whole["samples_per_second"] * whole["seconds"]).median()
    return 0.0 if pd.isna(found) else float(found)


def _why(answer: Answer, tolerance: float) -> str:
    """Where the interval lies, in words."""
    limit = f"{100 * tolerance:g} % (--tolerance)"
    if answer == "cannot tell":
        return f"part of the 95 % interval is within ±{limit}, part of it is not"
    where = {"regression": "above +", "improvement": "below -", "none": "within ±"}
    return f"the whole 95 % interval is {where[answer]}{limit}"


def _incomparable(*judged: tuple[Run, pd.DataFrame]) -> str:
    """Words for why the seconds of the two runs cannot be compared; "" if they can."""
    for which, (_, rows) in zip(("first", "second"), judged, strict=True):
        if rows.empty:
            return f"the {which} run does not say how long a step takes"
    one, other = (int(rows["engine"].iloc[0]) for _, rows in judged)
    if one != other and any(engines(run.steps) for run, _ in judged):
        return f"engine {one} takes most time in the first run, and engine {other} in the second"
    ways = [known_by(rows) for _, rows in judged]
    if ways[0] == ways[1]:
        return ""
    first, second = (
        measured_by(way, recorded=run.is_recording) or "several kinds of lines"
        for way, (run, _) in zip(ways, judged, strict=True)
    )
    return f"step times come from {first} in the first run and from {second} in the second"


def _side(run: Run, times: Times, batch: float) -> Side:
    seen = overview(run)
    told = {
        *run.phases["class"].dropna().astype(str),
        *([str(Class.COMMUNICATION)] if len(run.comm) else []),
    }
    return Side(
        rows=len(times.seconds),
        seconds=times.mean if len(times.seconds) else None,
        steps=seen.averaged,
        step_seconds=None if seen.seconds is None else seen.seconds / batch,
        seconds_from=seen.seconds_from,
        recorded=run.is_recording,
        failure=_failure(run),
        classes={
            name: seconds / batch
            for name, seconds in seen.classes.items()
            if seconds or name in told or name == Class.OTHER
        },
        parts=[_scaled(part, batch) for part in seen.parts if not part.inside],
    )


def _failure(run: Run) -> str:
    verdict = run.findings[0]
    return verdict.title if verdict.rule in ENDED else ""


def _scaled(part: Part, batch: float) -> Part:
    """The same per sample."""
    return part if part.seconds is None else replace(part, seconds=part.seconds / batch)


#: What every stage of a pipeline says of itself: whose line came last is no setting.
_OF_A_STAGE: Final = frozenset({"stage", "stage_layers", "stage_parameters"})


def _configured(run: Run) -> dict[str, Any]:
    told = {name: value for name, value in run.config.items() if name not in _OF_A_STAGE}
    return {"versions": run.meta.get("versions") or {}, **told}


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, or that only one run has: dotted name → both values, None if
    unknown.
    """
    flat = [dict(_flat(config)) for config in (first, second)]
    names = [name for name in {**flat[0], **flat[1]} if flat[0].get(name) != flat[1].get(name)]
    return {name: (flat[0].get(name), flat[1].get(name)) for name in sorted(names)}


def _flat(config: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """Pairs of dotted name and value: `{"a": {"b": 1}}` gives `a.b`. The keys of the job's own JSON
    (`ds_config`) get no prefix.
    """
    pairs: list[tuple[str, Any]] = []
    for name, value in config.items():
        inner = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            pairs += _flat(value, "" if inner == "ds_config" else inner)
        elif " object at 0x" not in str(value):  # a memory address differs in every run
            pairs.append((inner, value))
    return pairs
