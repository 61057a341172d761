"""How far a recorded rank came that the others then waited for."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.evidence import whole
from dsprof.findings.facts import Facts
from dsprof.findings.failures.ends import HANG, last_launch
from dsprof.run.recorded.moments import PHASE, ends
from dsprof.run.recorded.moments import STEP as WHOLE
from dsprof.run.table import STEP
from dsprof.units import format_seconds

_LATER: Final = "; phases that it ended less than a second after that may be missing."


def last_seen(facts: Facts, absent: pd.DataFrame) -> str:
    """What the one rank that did not arrive has recorded last, and how long before any other
    failed; "" where that is not known.
    """
    row = absent.iloc[0]
    rank, step = whole(row["rank"]), whole(row["step"])
    if len(absent) > 1 or rank is None or step is None:
        return ""
    known = facts.run.steps[facts.run.steps["segment"] == row["segment"]]
    reached = known.groupby("engine")["step"].max().astype("int64").to_dict() or {0: step}
    steps = [
        (whole(row["segment"]) or 0, engine, number)
        for engine, last_one in reached.items()
        for number in sorted({step, step + 1, last_one, last_one + 1})
    ]
    rows = facts.run.moments(pd.DataFrame(steps, columns=list(STEP)), {rank}, outer=True)
    rows = rows[rows["what"].isin([WHOLE, PHASE]) & rows["seconds"].notna()]
    if rows.empty:
        return ""
    rows = rows.assign(end=ends(rows))
    last = rows.sort_values(["end", "what"]).iloc[-1]  # a step behind its phases
    of_step = f"step {last['step']:,}" + f" of engine {last['engine']}" * (len(reached) > 1)
    what = of_step if last["what"] == WHOLE else f"{last['path']} in {of_step}"
    told = last_launch(facts.run)
    fatal = told["severity"].eq(Severity.CRITICAL) & ~told["kind"].isin(HANG)
    failed = told["at"][fatal].min()
    waited = (failed - pd.Timestamp(int(last["end"]))).total_seconds()
    before = f", {format_seconds(waited)} before any other failed" if waited > 0 else ""
    return f" The last that rank {rank} recorded is the end of {what}{before}{_LATER}"
