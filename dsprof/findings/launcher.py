"""Which rank was dead already when DeepSpeed's launcher ended all ranks of its node.

It ends them one after the other, in the order of their ranks, and waits for each; a process
that it had found dead it does not wait for (`terminate_process_tree` of launcher/launch.py,
0.9 and later). So the time stamps of its lines tell what its last line, which quotes the
command of the last rank whoever failed, does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.layout import layout_of
from dsprof.findings.thresholds import DEAD_WAIT, ENDING_WAIT

if TYPE_CHECKING:
    from dsprof.run import Run


class Dead(NamedTuple):
    """A rank that the launcher did not have to end."""

    rank: int
    waited: float  # seconds, at least, for each of the others
    row: pd.Series[Any]  # the launcher's line about it


def dead_rank(run: Run, failure: pd.Series[Any]) -> Dead | None:
    """The one rank that was dead when the launcher ended the others of its only node."""
    if failure["kind"] != "exit" or pd.notna(failure["rank"]):
        return None
    ended = _ended(run, failure)
    layout = layout_of(run.config, run.meta)
    if len(ended) < 2 or layout.world_size != len(ended) or layout.nodes != 1:
        return None
    times = pd.concat([ended["at"], pd.Series([failure["at"]])])
    if times.isna().any():
        return None
    waits = np.diff(times.to_numpy("datetime64[ns]")) / np.timedelta64(1, "s")
    rank = int(waits.argmin())
    others = np.delete(waits, rank)
    if not 0 <= waits[rank] < DEAD_WAIT or others.min() < ENDING_WAIT:
        return None
    return Dead(rank, float(others.min()), ended.iloc[rank])


def _ended(run: Run, failure: pd.Series[Any]) -> pd.DataFrame:
    """The launcher's lines about the processes that it ended, in its order: that of the ranks."""
    rows = run.problems
    mine = (rows["kind"] == "killed-by-launcher") & (rows["line"] < failure["line"])
    for key in ("segment", "source"):
        mine &= rows[key] == failure[key]
    said = rows["text"].astype("str").str.startswith("Killing subprocess ")
    found: pd.DataFrame = rows[mine & said].sort_values("line")
    return found
