"""A learning rate that does not move, where the Trainer's schedule should move it.

The Trainer does not advance its schedule behind a step that DeepSpeed skipped (transformers,
`optimizer_step_was_skipped`). DeepSpeed's own lines would count such steps, but under the Trainer
it prints none unless it is asked to.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.findings.advice import bf16, change
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Finding
from dsprof.findings.thresholds import RATE_STANDSTILL
from dsprof.run.table import of_kind, where

_DIGITS: Final = 4  #: behind the point, of a rate that somebody set and a schedule may keep
_EXACT: Final = 11  #: of one that was computed
_EITHER: Final = "either its schedule keeps it, or their steps were skipped"


def standstill(facts: Facts) -> list[Finding]:
    """The last records of the Trainer all have the same learning rate, which nobody would set."""
    rows = _of_one_process(facts)
    block = rows["value"].ne(rows["value"].shift()).cumsum()
    last = rows[block == block.max()]
    if len(last) < RATE_STANDSTILL or facts.run.config.get("dtype") not in {None, "fp16"}:
        return []
    rate = float(last["value"].iloc[0])
    if len(last) < len(rows) if rate == 0 else _is_round(rate):
        return []  # the end of a schedule, or a rate that somebody set
    why = "their steps were most likely skipped" if rate == 0 else _EITHER
    return [
        Finding(
            rule="overflow-streak",
            severity=Severity.WARNING,
            title=f"The learning rate stands still at {rate:.4g} in the last {len(last):,} "
            f"records: {why}",
            summary="The Trainer does not advance its schedule behind a step that is skipped, as "
            "where fp16 gradients overflow; such a step teaches the model nothing. Medium "
            "confidence: no line counts skipped steps, and a schedule may keep such a rate.",
            evidence=tuple(
                row_evidence(row, f"learning rate {row['value']:.6g}")
                for _, row in last.iloc[[0, -1]].iterrows()
            ),
            advice=(
                *change(facts, "steps_per_print", "1", "DeepSpeed then counts skipped steps"),
                *bf16(facts, "bf16 needs no loss scale and skips nothing"),
            ),
            confidence="medium",
        )
    ]


def _of_one_process(facts: Facts) -> pd.DataFrame:
    """The rates that the Trainer printed in the last launch; each host may print all of them."""
    rows = of_kind(facts.run.told, Kind.METRIC, "lr")
    rows = rows[rows["pattern"].astype("str").str.startswith("huggingface.")]
    last = rows["segment"] == facts.run.told["segment"].max()
    if not last.any():
        return rows[:0]
    rows = rows[rows["value"].notna() & last]
    whose = rows.groupby(["source", "host", "rank"], dropna=False, observed=True).ngroup()
    return where(rows, whose == 0)


def _is_round(rate: float) -> bool:
    """Whether it has few digits, as one that somebody set."""
    return float(f"{rate:.{_DIGITS}e}") == float(f"{rate:.{_EXACT}e}")
