"""A job that did not end when its training did."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.failures.ends import step_span, when
from dsprof.findings.failures.schedulers import may_be_time
from dsprof.findings.finding import Advice, Finding
from dsprof.quotes import quoted
from dsprof.run.ends.harmless import OVER, behind_training
from dsprof.run.table import among, where
from dsprof.units import format_seconds


def said_if_over(facts: Facts, row: pd.Series[Any]) -> str:
    """That it ended no training, where the trainer had said before that this was over."""
    if not behind_training(facts.run.told, row.to_frame().T).any():
        return ""
    return (
        " The trainer had said that training was over: this came behind it, as in a last save or "
        "evaluation, at the end of processes, or in what the script does next."
    )


def at_exit(facts: Facts) -> list[Finding]:
    """A job whose training was over, and which did not end until its scheduler ended it, for its
    time and not for what others needed."""
    last = facts.run.told["segment"].max()
    rows = facts.run.problems
    rows = where(rows, (rows["kind"] == "cancelled") & (rows["segment"] == last))
    if rows.empty:
        return []
    told = where(facts.run.told, facts.run.told["segment"] == last)
    rows = rows[rows["severity"] == Severity.INFO]
    rows = rows[rows["text"].astype("str").map(may_be_time).astype(bool)]
    overs = where(told, among(told["name"], OVER) & told["line"].notna())
    if rows.empty or overs.empty or among(told["name"], ["exited_well"]).any():
        return []
    row, over = rows.iloc[0], overs.iloc[-1]
    known = pd.notna(row["at"]) and pd.notna(over["at"])
    seconds = (row["at"] - over["at"]).total_seconds() if known else 0.0
    later = f" {format_seconds(seconds)} later" if seconds > 0 else ""
    return [
        Finding(
            rule="hang",
            severity=Severity.WARNING,
            title=f"Training was over{when(row)}, but the job was not: its scheduler ended it"
            + later,
            summary="That ended no training. Either something ran behind it, such as an evaluation "
            "or a save, or a process hung on its way out: a longer time limit helps in the first "
            "case only. Medium confidence: these lines do not say which.",
            steps=step_span(row),
            evidence=tuple(row_evidence(one, quoted(one["text"], 200)) for one in (over, row)),
            advice=(
                Advice(
                    "py-spy dump --pid", "", "of each rank, behind training", "shows what it is at"
                ),
            ),
            confidence="medium",
        )
    ]
