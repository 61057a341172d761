"""Failures that a run has left behind: caught ones, and those of earlier launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence, span
from dsprof.findings.facts import Facts
from dsprof.findings.failures.ends import (
    ended_launch,
    first_failure,
    first_of,
    launch,
    said_of,
    when,
)
from dsprof.findings.finding import Evidence, Finding
from dsprof.quotes import quoted, quoted_in_title

if TYPE_CHECKING:
    from dsprof.run import Run

_SHOWN: Final = 3


def earlier_failure(facts: Facts) -> list[Finding] | str:
    """What failed but did not end the last launch: told, and never the verdict."""
    return [*_survived(facts.run), *_launches(facts.run)]


def _survived(run: Run) -> list[Finding]:
    """Errors of the last launch that training went on behind."""
    last = run.told["segment"].max()
    rows = run.problems
    rows = rows[rows["survived"] & (rows["segment"] == last) & (rows["severity"] == "warning")]
    if rows.empty:
        return []
    first = rows.iloc[0]
    many = "an error was" if len(rows) == 1 else f"{len(rows):,} errors were"
    if (run.told.loc[run.told["segment"] == last, "name"] == "exited_well").any():
        title = f"The launch ended well; {many} printed on the way"
        why = "The launcher then reported that its processes ended with 0"
    else:
        title = f"{many[0].upper()}{many[1:]} survived: training went on{_until(run, last)}"
        why = "The same launch printed more steps after it"
    return [
        Finding(
            rule="earlier-failure",
            severity=Severity.WARNING,
            title=title,
            summary=f"Printed{when(first)}{_text(first)}. {why}, so it was caught, or ended a "
            "process that training does not need.",
            steps=span(rows["step"]),
            evidence=_proof([row for _, row in rows.head(_SHOWN).iterrows()]),
        )
    ]


def _launches(run: Run) -> list[Finding]:
    """How launches before the last one failed."""
    launches, last = sorted(run.told["segment"].unique()), ended_launch(run)
    failed = {
        number: row
        for number, segment in enumerate(launches, 1)
        if segment < last and (row := first_of(launch(run, segment))) is not None
    }
    if not failed:
        return []
    alike: dict[str, list[int]] = {}  # each failure is quoted once
    for number, row in list(failed.items())[-_SHOWN:]:
        alike.setdefault(f"{said_of(row)}{_text(row)}.", []).append(number)
    told = [f"{_which(numbers)} of {len(launches):,}: {said}" for said, numbers in alike.items()]
    return [
        Finding(
            rule="earlier-failure",
            severity=Severity.WARNING,
            title=_title(run, last, list(failed.values())),
            summary=" ".join(told),
            evidence=_proof(list(failed.values())[-_SHOWN:]),
        )
    ]


def _title(run: Run, last: int, failed: list[pd.Series[Any]]) -> str:
    """How many failed, how if all did alike, and what became of the last launch."""
    many = "An earlier launch" if len(failed) == 1 else f"{len(failed):,} earlier launches"
    how, *others = dict.fromkeys(map(said_of, failed))
    told = "" if others else f": {how}"
    if first_failure(run) is not None:
        return f"{many} failed too{told}"
    until = _until(run, last)
    came = f"came{until} and" if until else "prints no step, but"
    return f"{many} failed{told}; the last one {came} shows no failure"


def _which(numbers: list[int]) -> str:
    """`Launch 2`, `Launches 1, 2 and 3`."""
    *others, last = [f"{number:,}" for number in numbers]
    return f"Launches {', '.join(others)} and {last}" if others else f"Launch {last}"


def _until(run: Run, segment: int) -> str:
    """The last step a launch printed: ` to step 59`; "" if it printed none.

    A recording says which steps have ended: what follows the last one counts to the next.
    """
    rows = run.steps if run.is_recording else run.told
    steps = rows.loc[rows["segment"] == segment, "step"].dropna()
    return "" if steps.empty else f" to step {int(steps.max()):,}"


def _text(row: pd.Series[Any]) -> str:
    return f": {quoted_in_title(row['text']).rstrip('. ')}" if pd.notna(row["text"]) else ""


def _proof(rows: list[pd.Series[Any]]) -> tuple[Evidence, ...]:
    return tuple(
        row_evidence(row, quoted(row["text"], 200) if pd.notna(row["text"]) else str(row["kind"]))
        for row in rows
    )
