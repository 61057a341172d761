"""Which failure ended a launch, and how that is said.

What was survived, and how earlier launches ended, is told by `dsprof.findings.earlier`.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.events import Severity

if TYPE_CHECKING:
    from dsprof.run import Run

OOM: Final = ("oom", "host-oom")
HANG: Final = ("absent", "watchdog", "stuck", "desync")

#: What any other kind of failure does to its process.
ENDED: Final = {
    "exception": "ended with an exception",
    "shm-full": "lost a worker of its data loader (most likely a full /dev/shm)",
    "root-cause": "is what the launcher names as the first failure",
    "exit": "exited with an error",
    "signal": "was killed by a signal",
    "gone": "ended without a word",
    "connection": "lost its connection to a peer",
    "rendezvous": "did not find the other workers",
    "port-in-use": "could not open the launcher's port: it is taken",
    "cancelled": "was ended by the scheduler",
    "overflow-limit": "ended because the loss scale cannot shrink any further",
    "checkpoint-failed": "could not write a checkpoint",
    "build-failed": "could not build an extension",
    "network-error": "lost its network link",
}

_STOPPED: Final = "was stopped by SIGINT, as Ctrl-C sends it"

#: Ends of a run; other problems are warnings of other rules.
_FATAL: Final = (*OOM, *HANG, *(ENDED.keys() - {"checkpoint-failed", "network-error"}))

_NOT_WELL: Final = ("exit", "signal", "gone", "root-cause", "killed-by-launcher")


def last_launch(run: Run) -> pd.DataFrame:
    """Problems of the last launch that may have ended it."""
    segments = run.told["segment"]
    return launch(run, int(segments.max()) if len(segments) else 0)


def launch(run: Run, segment: int) -> pd.DataFrame:
    """Problems of one launch, without those that training went on behind, exceptions that Python
    only printed, and what came when all had ended well."""
    rows = run.problems
    rows = rows.loc[(rows["segment"] == segment) & ~rows["survived"]]
    if rows.empty:
        return rows
    told = run.told[run.told["segment"] == segment]
    return rows[~_only_printed(told, rows) & ~_behind_success(told, rows)]


def _only_printed(told: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """Exceptions of destructors, threads and the like, with all of their chain: no process ends
    of them."""
    printed, chained = (_places(told, name) for name in ("printed_exception", "chained_exception"))
    ordered = rows.sort_values("line", kind="stable")
    found: list[bool] = []
    before: dict[tuple[Any, ...], bool] = {}  # of the last row of each source and rank
    ranks = ordered["rank"].astype("object").fillna(-1)
    for source, line, rank in zip(ordered["source"], ordered["line"], ranks, strict=True):
        goes_on = (source, line) in chained and before.get((source, rank), False)
        found.append((source, line) in printed or goes_on)
        before[source, rank] = found[-1]
    return pd.Series(found, ordered.index, dtype=bool).reindex(rows.index)


def _places(told: pd.DataFrame, name: str) -> set[tuple[Any, ...]]:
    marks = told[(told["name"] == name) & told["line"].notna()]
    return set(zip(marks["source"], marks["line"], strict=True))


def _behind_success(told: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[bool]:
    """What a source prints behind the good ends of all processes of its launch: it ended none."""
    ends = told[(told["name"] == "exited_well") & told["line"].notna()]
    size = told.loc[told["name"] == "world_size", "value"].max()
    ended = len(ends[["source", "host", "value"]].drop_duplicates())
    failed = rows["kind"].isin(_NOT_WELL) & rows["value"].ne(0)
    if not ended or ended < size or failed.any():
        return pd.Series(data=False, index=rows.index)
    last = ends.groupby("source", observed=True)["line"].max().to_dict()
    return rows["line"] > rows["source"].astype("object").map(last)


def first_failure(run: Run) -> pd.Series[Any] | None:
    """What ended the last launch: the root cause, else the first fatal row; None if nothing."""
    return first_of(last_launch(run))


def first_of(problems: pd.DataFrame) -> pd.Series[Any] | None:
    """The root cause among the problems of one launch, else the first fatal one."""
    cause = problems["root_cause"].fillna(False).astype(bool)
    fatal = problems["kind"].isin(_FATAL) & (problems["severity"] != Severity.INFO)
    ended = problems["kind"].isin(list(ENDED))
    if not fatal.any():
        ended &= problems["kind"] != "network-error"  # a warning, as long as it ends nobody
    named = problems[cause & (fatal | ended)]
    rows = named if len(named) else problems[fatal]
    return None if rows.empty else rows.iloc[0]


def said_of(row: pd.Series[Any]) -> str:
    """A failure as a sentence: `Rank 1 on w0 ran out of GPU memory after step 7`."""
    kind = str(row["kind"])
    if kind in OOM:
        said = f"ran out of {'host' if kind == 'host-oom' else 'GPU'} memory{_device(row)}"
    elif kind == "stuck":
        said = "was ended: NCCL's watchdog was stuck"
    elif kind in HANG:
        said = "waited for a collective until it timed out"
    else:
        killed = signal_of(row)
        stopped = str(row["text"]).startswith("KeyboardInterrupt")
        said = f"was killed by {killed}" if killed else _STOPPED if stopped else ENDED[kind]
    return f"{_who(row)} {said}{when(row)}"


def _device(row: pd.Series[Any]) -> str:
    """` (GPU 1)`: the device as its process counts them, where NCCL names it."""
    known = row["kind"] == "oom" and pd.notna(row["value"])
    return f" (GPU {int(row['value'])})" if known else ""


def _who(row: pd.Series[Any]) -> str:
    task = f"Task {row['task']}" if "task" in row else "A process"
    rank = f"Rank {int(row['rank'])}" if pd.notna(row["rank"]) else task
    return rank + (f" on {row['host']}" if pd.notna(row["host"]) else "")


def when(row: pd.Series[Any]) -> str:
    """` after step 7`: the last step that was complete before; "" if the source prints none."""
    return f" after step {int(row['step']):,}" if pd.notna(row["step"]) else ""


def step_span(row: pd.Series[Any]) -> tuple[int, int] | None:
    """The same step as a finding's first and last one."""
    return None if pd.isna(row["step"]) else (int(row["step"]), int(row["step"]))


def signal_of(row: pd.Series[Any]) -> str | None:
    """The signal that ended a process, by its name; None where its exit code tells of none."""
    if row["kind"] not in ("exit", "signal", "root-cause") or pd.isna(row["value"]):
        return None
    code = int(row["value"])
    number = code if row["kind"] == "signal" else -code
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
