"""Which line proves how long a step took, by how that is known."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.events import Kind
from dsprof.findings.evidence import largest, row_evidence, whole
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Evidence
from dsprof.run.steps.durations import averages
from dsprof.run.table import STEP, of_kind, positions, where
from dsprof.units import format_count, format_seconds

_RATE: Final = "samples_per_second"
#: Metric whose line proves the seconds of a step, by how they are known.
_STATED: Final = {
    "logged": "step_seconds",
    "throughput": _RATE,
    "rated": _RATE,
}


def average_proof(facts: Facts) -> tuple[Evidence, ...]:
    """A line that the mean step rests on: that of the last step, or the last that has a rate.

    By the clock: the first and the last line of those whose time stamps are compared, or the
    last two where it was set back.
    """
    if by_the_clock(facts):
        stamped = _stamped_lines(facts)
        ends = stamped.iloc[[0, -1] if stamped["at"].is_monotonic_increasing else [-2, -1]]
        return tuple(
            row_evidence(_carrier(facts, row), _stamped(row)) for _, row in ends.iterrows()
        )
    rates = positions(facts.steps, of_kind(facts.run.told, Kind.METRIC, _RATE), *STEP)
    last = rates.max(initial=-1) if facts.steps["seconds_from"].eq("rated").any() else -1
    return (step_proof(facts, facts.steps.iloc[last]),)


def _stamped_lines(facts: Facts) -> pd.DataFrame:
    """Lines whose stamps are compared, one a step: those that mark the judged steps or, where
    hardly one of them is stamped, the last of these steps; or those that mark the others."""
    told = facts.run.told
    lines = told[told["at"].notna() & told["step"].notna()]
    lines = lines[positions(facts.steps, lines, *STEP) >= 0]
    marks, *others = (
        rows[rows["at"].notna()]
        for rows in (facts.steps, lines.drop_duplicates(list(STEP), keep="last"), facts.own_steps)
    )
    found = next((rows for rows in (marks, *others) if len(rows) > 1), marks)
    return pd.concat([_before(facts), marks]) if found is marks else found


def _carrier(facts: Facts, row: pd.Series[Any]) -> pd.Series[Any]:
    """The line that has the stamp of a step: others of the step, which may be stamped earlier or
    not at all, can stand before it."""
    told = of_step(facts.run.told, row)
    told = told[(told["at"] == row["at"]).to_numpy(dtype=bool, na_value=False)]
    return row if told.empty else told.iloc[0]


def _before(facts: Facts) -> pd.DataFrame:
    """The step at whose stamp the first of the judged ones begins, if that is known."""
    own, first = facts.own_steps, facts.steps.iloc[0]
    begins = own["step"].eq(first["step"] - first["covers"]) & own["segment"].eq(first["segment"])
    return own[begins & own["at"].notna() & own["at"].le(first["at"])].tail(1)


def by_the_clock(facts: Facts) -> bool:
    """Whether time stamps tell how long the judged steps took."""
    return bool(facts.steps["seconds_from"].eq("clock").any())


def step_proof(facts: Facts, row: pd.Series[Any]) -> Evidence:
    """The line that says how long one step took, or how fast it was, or has its timers."""
    step, takes = f"step {whole(row['step']):,}", format_seconds(row["seconds"])
    metric = _STATED.get(str(row["seconds_from"]), "")
    told = of_step(facts.run.told, row)
    told = told[(told["name"] == metric).to_numpy(dtype=bool)]
    if row["seconds_from"] == "rated" and told.empty:
        return _by_timers(facts, row, f"{step}: {takes}, computed from its timers")
    if row["seconds_from"] == "timers":
        many = float(averages(row.to_frame().T).iloc[0])
        mean = f" a step in the {many:,.0f} up to it" if many > 1 else ""
        return _by_timers(facts, row, f"{step}: {takes}{mean}, the sum of its timers")
    if row["seconds_from"] in {"bar", "logged", "clock"} and row["covers"] > 1:
        return row_evidence(row, f"{step}: {takes} a step in the {row['covers']:,.0f} up to it")
    if told.empty or metric == "step_seconds":
        return row_evidence(row if told.empty else told.iloc[-1], f"{step}: {takes}")
    rate = told["value"].iloc[-1]
    batch = format_count(round(rate * row["seconds"]))
    said = f"{step}: {format_count(rate)} samples/s, so {batch} take {takes}"
    return row_evidence(told.iloc[-1], said)


def mark_proof(facts: Facts, row: pd.Series[Any]) -> Evidence:
    """The line of a step that nothing times, with its loss where it has one."""
    told = of_step(facts.run.told, row)
    told = told[((told["name"] == "loss") & (told["value"] == row["loss"])).to_numpy(dtype=bool)]
    if told.empty:
        return row_evidence(row, f"step {whole(row['step']):,}")
    return row_evidence(told.iloc[-1], f"step {whole(row['step']):,}: loss {row['loss']:.6g}")


def _by_timers(facts: Facts, row: pd.Series[Any], text: str) -> Evidence:
    """The line of the step's largest timer, which mostly has the others, too."""
    phases = of_step(facts.run.phases, row)
    outer = phases[phases["parent"].isna().to_numpy(dtype=bool)]
    if outer.empty:
        return row_evidence(row, text)
    most = largest(outer, "seconds")
    return row_evidence(
        most, f"{text}, most of it {most['name']}: {format_seconds(most['seconds'])}"
    )


def _stamped(row: pd.Series[Any]) -> str:
    at = "" if pd.isna(row["at"]) else f" is stamped {_time_of_day(row['at'])}"
    return f"step {whole(row['step']):,}{at}"


def _time_of_day(at: pd.Timestamp) -> str:
    """As fine as stamps are: whole seconds do not prove how long steps of milliseconds took."""
    return f"{at:%H:%M:%S}" + (f".{at.microsecond // 1000:03}" if at.microsecond else "")


def of_step(rows: pd.DataFrame, row: pd.Series[Any]) -> pd.DataFrame:
    """Rows of the step of `row`."""
    same = [(rows[key] == row[key]).to_numpy(dtype=bool, na_value=False) for key in STEP]
    return where(rows, np.all(same, axis=0))
