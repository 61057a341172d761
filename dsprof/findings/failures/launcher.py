"""Whose failure it was, where only a launcher or a scheduler tells.

torchrun, mpirun and srun name a rank or a task below a failure that does not say whose it is; an
exception of torch_npu does so in its second line.

DeepSpeed's launcher names none, but shows which rank was dead already when it ended all ranks of
its node: it ends them one after the other, in the order of their ranks, and waits for each; a
process that it had found dead it does not wait for (`terminate_process_tree` of
launcher/launch.py, 0.9 and later). So the time stamps of its lines tell what its last line, which
quotes the command of the last rank whoever failed, does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.layout import layout_of
from dsprof.findings.evidence import row_evidence
from dsprof.findings.failures.ends import ended_launch, last_launch
from dsprof.findings.finding import Evidence
from dsprof.findings.thresholds import DEAD_WAIT, ENDING_WAIT
from dsprof.quotes import quoted
from dsprof.run.job.config import config

if TYPE_CHECKING:
    from dsprof.run import Run

#: Failures of one process, by its own fault.
_OWN: Final = (
    "oom", "host-oom", "shm-full", "exception", "build-failed", "checkpoint-failed",
    "wrong-arguments",
)  # fmt: skip
_OF_THE_KERNEL: Final = r"oom[-_]kill event"  # slurmstepd's words for what srun then names
_OF_CANN: Final = re.compile(r"E[A-Z]\d{4}: ")
_OUT_OF_MEMORY: Final = r"^tasks? [\d,-]{1,200}: Out Of Memory"
_EXITED: Final = r"^tasks? [\d,-]{1,200}: exit code "
_SEVERAL: Final = re.compile(r"tasks? \d{1,9}[,-]")
_CODES: Final = 127  #: exit codes above it are signals, below 0 as well
_BUS_ERRORS: Final = (-7, 135)  #: of a process that touched what /dev/shm had no room for


class Named(NamedTuple):
    """A failure with the rank or `task` and host of the only process that is named for it."""

    failure: pd.Series[Any]
    row: pd.Series[Any]  # the line about it
    by: str  # whose line that is


def named(run: Run, failure: pd.Series[Any]) -> Named | None:
    """The process that it, or the launcher, names below a failure that does not say whose it is;
    None where it names several, or several failures do not say so."""
    if failure["kind"] not in _OWN or pd.notna(failure["rank"]):
        return None
    own = _own_line(run, failure)
    if own is not None:
        return Named(pd.Series({**failure, "rank": own["rank"]}), own, "torch_npu")
    rows = last_launch(run)
    rows = rows[rows["source"] == failure["source"]]
    below = rows[rows["line"] > failure["line"]]
    found = below[_about(failure, below)]
    if len(found) != 1 or (below["kind"] == "restart").any() or not _alone(failure, rows):
        return None
    row = found.iloc[0]
    if pd.notna(failure["host"]) and failure["host"] != row["host"]:
        return None
    if _SEVERAL.match(str(row["text"])):
        return None
    who, by = {name: row[name] for name in ("rank", "host")}, "The launcher"
    if pd.isna(row["rank"]):
        who["task"] = str(row["text"]).split(":")[0].removeprefix("task ")
        by = "The scheduler"
    return Named(pd.Series({**failure, **who}), row, by)


def _own_line(run: Run, failure: pd.Series[Any]) -> pd.Series[Any] | None:
    """The line right behind an exception of torch_npu in which it says its rank, or in front of
    the code of CANN that explains it."""
    told = run.told
    next_to = -1 if _OF_CANN.match(str(failure["text"])) else 1
    own = (told["source"] == failure["source"]) & (told["line"] == failure["line"] + next_to)
    rows = told[own & (told["name"] == "npu_error") & told["rank"].notna()]
    return None if rows.empty else rows.iloc[0]


def _about(failure: pd.Series[Any], below: pd.DataFrame) -> pd.Series[bool]:
    """Which lines may be about the process that failed: what the launcher calls the first one,
    else tasks that ended by themselves."""
    text = below["text"].astype("str")
    if _by_kernel(failure):
        return (below["kind"] == "host-oom") & text.str.match(_OUT_OF_MEMORY)
    failed = below["value"].between(1, _CODES)
    if failure["kind"] == "shm-full":
        failed |= below["value"].isin(_BUS_ERRORS)
    no_code = below["value"].isna()  # of MPI_ABORT
    first = (below["kind"] == "root-cause") & (failed | no_code) & below["rank"].notna()
    task = (below["kind"] == "exit") & failed & text.str.match(_EXITED)
    return first if first.any() else task


def _by_kernel(failure: pd.Series[Any]) -> bool:
    return bool(re.match(_OF_THE_KERNEL, str(failure["text"])))


def _alone(failure: pd.Series[Any], rows: pd.DataFrame) -> bool:
    """Whether no other process failed without a name; the kernel's kills are counted elsewhere."""
    nameless = rows["kind"].isin(_OWN) & rows["rank"].isna()
    return _by_kernel(failure) or int(nameless.sum()) == 1


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
    layout = layout_of(config(run.as_told, ended_launch(run)), run.meta)
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


def said_of_named(who: Named | None) -> str:
    """A sentence on who named the process; "" if nobody did."""
    if who is None:
        return ""
    task = "task" in who.failure
    one = f"task {who.failure['task']}" if task else f"rank {int(who.failure['rank'])}"
    return f" {who.by} names {one}; the message itself does not name it."


def evidence_of(run: Run, row: pd.Series[Any], who: Named | None) -> tuple[Evidence, ...]:
    """The line of a failure, and the launcher's line about it."""
    text = str(row["text"]) if pd.notna(row["text"]) else str(row["kind"])
    launcher = last_launch(run)
    launcher = launcher[(launcher["kind"] == "root-cause") & (launcher["line"] != row["line"])]
    told = [who.row] if who is not None else [one for _, one in launcher.head(1).iterrows()]
    return (
        row_evidence(row, quoted(text, 300)),
        *(row_evidence(one, quoted(one["text"], 200)) for one in told),
    )
