"""Programs that a shell did not find: it ends with code 127, and named them before."""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.run.table import among, where

_CODE: Final = 127
_ADVICE: Final = Advice(
    "PATH on that host",
    "",
    "the environment of the job (conda activate, module load), in shells without a login, too",
    "a shell that a launcher starts may not load what yours does",
)

#: Programs without which nothing trains; of others a script may do without.
_LAUNCHERS: Final = re.compile(
    r"(?:^|/)(?:deepspeed|torchrun|accelerate|python[\d.]*|mpirun|mpiexec|srun|pdsh|ray|swift|uv"
    r"|axolotl|llamafactory-cli|litgpt|composer|conda)$"
)


def missing_of(facts: Facts, row: pd.Series[Any]) -> pd.Series[Any] | None:
    """The line that names the program, of a process that ended because its shell found none."""
    if row["kind"] not in ("exit", "root-cause") or row["value"] != _CODE:
        return None
    told = _told(facts, row["segment"])
    mine = told[(told["source"] == row["source"]) & (told["line"] < row["line"])]
    if pd.notna(row["host"]):
        mine = mine[mine["host"].isna() | (mine["host"] == row["host"])]
    return None if mine.empty else mine.iloc[-1]


def said_of_missing(row: pd.Series[Any], missing: pd.Series[Any] | None) -> str:
    """What the code means, and which program it was; "" of another code."""
    if row["kind"] not in ("exit", "root-cause") or row["value"] != _CODE:
        return ""
    said = " 127 is what a shell ends with where it does not find a program"
    return f"{said}: {missing['text']}." if missing is not None else f"{said}."


def against_missing(row: pd.Series[Any]) -> tuple[Advice, ...]:
    """What helps; empty of another code."""
    return (_ADVICE,) if said_of_missing(row, None) else ()


def never_started(facts: Facts) -> list[Finding]:
    """That a launcher was not found, where a source shows no failure and no step."""
    rows = _told(facts, facts.run.told["segment"].max())
    rows = rows[rows["text"].astype("str").str.contains(_LAUNCHERS)]
    if rows.empty or len(facts.run.steps):
        return []
    row = rows.iloc[0]
    return [
        Finding(
            rule="rank-died",
            severity=Severity.CRITICAL,
            title=f"A shell did not find {row['text']}"
            + (f" on {row['host']}" if pd.notna(row["host"]) else ""),
            summary="The source shows no step and no other failure. That nothing else ran it is "
            "not told: hence medium confidence.",
            evidence=(row_evidence(row, f"{row['text']}: not found"),),
            advice=(_ADVICE,),
            confidence="medium",
        )
    ]


def _told(facts: Facts, segment: int) -> pd.DataFrame:
    told = facts.run.told
    return where(told, among(told["name"], ["command_not_found"]) & (told["segment"] == segment))
