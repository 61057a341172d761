"""Failures and warnings, and which of them came first.

When one rank of a job dies the others die of it, loudly and at once: the last lines of a
log are victims. The cause is looked for among the rows of one failure (a segment, split
where the launcher restarts its workers) in this order:

1. what only a fault by itself prints (out of memory, an exception, a full disk, a port in
   use, the scheduler), the earliest first; a rank the launcher names as root cause wins;
2. a process that went without a word: a signal or exit code that is not the launcher's
   own SIGTERM, or the launcher's root cause alone;
3. a collective that timed out: the rank that had enqueued least is the one waited for;
4. a broken connection, if nothing else is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.run.table import Numbers, keys, of_kind

COLUMNS: Final = (
    "segment", "kind", "severity", "rank", "host", "at", "step", "text", "root_cause",
    "value", "source", "line",
)  # fmt: skip

_OWN_FAULT: Final = (
    "oom", "host-oom", "exception", "overflow-limit", "port-in-use", "cancelled",
    "checkpoint-failed", "build-failed",
)  # fmt: skip
_SILENT: Final = ("exit", "signal", "root-cause")
_STUCK: Final = ("watchdog", "desync", "network-error", "rendezvous")
_BROKEN: Final = ("connection",)

#: What an exception says when a peer died first.
_OF_A_PEER: Final = (
    r"Connection (?:closed|reset|refused)|Broken pipe|peer (?:exited|closed)|remote process exited"
    r"|ncclRemoteError|ncclSystemError|DistBackendError|NCCL communicator was aborted"
    r"|Socket Timeout|recvBytes|sendBytes|SignalException|ChildFailedError|CalledProcessError"
)
_SIGTERM: Final = (15, -15, 143)

_SEVERE: Final = {*_OWN_FAULT, *_SILENT, *_STUCK, *_BROKEN} - {"checkpoint-failed"}


def problems(events: pd.DataFrame, severities: Mapping[str, str]) -> pd.DataFrame:
    """One row per failure or warning, in the order of the log; `root_cause` marks the first
    cause of each failure.

    Args:
        events: tidy events.
        severities: pattern → severity, as the dialects say; the kind decides otherwise.
    """
    rows = of_kind(events, Kind.PROBLEM).reset_index(drop=True)
    kind = rows["name"].astype("str")
    usual = pd.Series(np.where(kind.isin(_SEVERE), Severity.CRITICAL, Severity.WARNING), rows.index)
    severity = rows["pattern"].astype("str").map(dict(severities)).astype("object")
    found = rows.assign(
        kind=kind,
        severity=severity.fillna(usual).astype("str").astype("category"),
        root_cause=False,
    )
    suspicion = _suspicion(found)
    failure = _failures(found)
    for number in np.unique(failure):
        cause = _cause(found[failure == number], suspicion[failure == number])
        if cause is not None:
            found.loc[cause, "root_cause"] = True
    return found[list(COLUMNS)]


def _failures(rows: pd.DataFrame) -> Numbers:
    """Which failure each row belongs to: a segment, split behind each restart."""
    restarts = (rows["kind"] == "restart").astype("int64")
    behind = restarts.groupby(rows["segment"]).cumsum() - restarts
    return keys(rows.assign(restarts=behind), "segment", "restarts").astype(float)


def _suspicion(rows: pd.DataFrame) -> Numbers:
    """1 to 4 as the module says, the less the likelier the cause; NaN for no cause at all."""
    kind, text = rows["kind"], rows["text"].astype("str")
    groups = (_OWN_FAULT, _SILENT, _STUCK, _BROKEN)
    found = np.select([kind.isin(names) for names in groups], [1.0, 2.0, 3.0, 4.0], np.nan)
    victim = (kind == "exception") & text.str.contains(_OF_A_PEER).fillna(False).astype(bool)
    found[victim.to_numpy()] = 4.0
    ended = rows["value"].isin(_SIGTERM) | (rows["value"] == 0)
    found[(kind.isin(_SILENT) & ended).to_numpy()] = np.nan
    return found


def _cause(rows: pd.DataFrame, suspicion: Numbers) -> int | None:
    """Index of the row that came first among the likeliest causes of one failure."""
    if np.isnan(suspicion).all() or not (rows["severity"] == Severity.CRITICAL).any():
        return None
    likeliest = rows[suspicion == np.nanmin(suspicion)]
    named = rows.loc[rows["kind"] == "root-cause", "rank"].dropna()
    of_named = likeliest[likeliest["rank"].isin(named)]
    likeliest = of_named if len(of_named) else likeliest
    waited_for = likeliest[(likeliest["kind"] == "watchdog") & likeliest["value"].notna()]
    if len(waited_for):
        return int(waited_for.index.to_numpy()[waited_for["value"].argmin()])
    return _first(likeliest)


def _first(rows: pd.DataFrame) -> int:
    """By time where every row has one, else by place in the log."""
    timed = rows["at"].notna().all()
    place = int(rows["at"].argmin()) if timed else 0
    return int(rows.index.to_numpy()[place])
