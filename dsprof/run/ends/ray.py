"""Whose errors Ray tells: another process prints them, and Ray names the one they are of."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.run.table import among, where

_TRACEBACK: Final = 400  #: lines of one, from Ray's words to what was raised
#: What a process says as it ends, or Ray of it.
_OF_PROCESS: Final = ("exception", "oom", "host-oom", "shm-full", "watchdog", "nan")
#: Ray's words of a process that ended without any of its own; what others say beside is theirs.
_GONE: Final = (
    r"(?i:the actor (?:died|is dead))|^A worker died|Actor\w{0,20}Error|WorkerCrashedError"
)
_NEAR: Final = 10  #: lines around an error, in which Ray names the process that is gone


def of_ray(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Problems with the host, and the rank where it is known, of the process that Ray names. Whose
    line names its rank itself is of that one.

    Args:
        events: tidy events.
        rows: problems among them.
    """
    told = events[["name", "segment", "source", "line", "host", "rank", "text"]]
    named = where(told, among(events["name"], ["ray_task", "ray_gone"]) & told["line"].notna())
    if named.empty:
        return rows
    ranks = where(told, among(events["name"], ["ray_rank"]))
    of = {
        (str(host), str(pid)): rank
        for host, pid, rank in zip(ranks["host"], ranks["text"], ranks["rank"], strict=True)
    }
    of_gone = rows["text"].astype("str").str.contains(_GONE)
    found = rows.assign(host=rows["host"].astype("object"))
    for _, one in named.sort_values("line", kind="stable").iterrows():
        apart = found["line"] - one["line"]
        here = (found["source"] == one["source"]) & apart.notna()
        if one["name"] == "ray_task":
            behind = here & (apart > 0) & (apart <= _TRACEBACK)
            here = behind & (apart == apart[behind].min())
        else:
            here &= (apart.abs() <= _NEAR) & of_gone
        here &= found["kind"].isin(_OF_PROCESS) & rows["rank"].isna()
        if pd.notna(one["host"]):
            found.loc[here, "host"] = one["host"]
        rank = of.get((str(one["host"]), str(one["text"])))
        if rank is not None:
            found.loc[here, "rank"] = rank
    return found
