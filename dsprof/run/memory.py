"""Memory and GPU rows as the source gives them."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind
from dsprof.run.table import of_kind

COLUMNS: Final = (
    "segment", "engine", "step", "rank", "host", "at", "name", "bytes", "count", "value",
    "text", "source", "line",
)  # fmt: skip


def memory(events: pd.DataFrame) -> pd.DataFrame:
    """Bytes by name (`dsprof.events.MEMORY`); `text` is what the source said about the moment."""
    return of_kind(events, Kind.MEMORY)[list(COLUMNS)].reset_index(drop=True)


def gpu(events: pd.DataFrame) -> pd.DataFrame:
    """Samples of the GPU itself (`dsprof.events.GPU`); `text` is its UUID, `rank` who uses it.

    One rank of a node samples all of its GPUs; who uses which, each rank says of itself
    (config "gpu"). A GPU that several ranks share has its samples once for each of them.
    """
    columns = [*COLUMNS[:-2], "raw", "seconds", *COLUMNS[-2:]]
    rows = of_kind(events, Kind.GPU)[columns].reset_index(drop=True)
    if rows.empty or (users := _users(events)).empty:
        return rows
    sampled = rows.assign(text=rows["text"].astype("object"))
    found = sampled.merge(users, "left", on=["segment", "text"], suffixes=("", "_user"))
    user = found.pop("rank_user")
    return found.assign(rank=found["rank"].fillna(user), text=found["text"].astype("category"))


def _users(events: pd.DataFrame) -> pd.DataFrame:
    """`segment`, `text` (UUID) and `rank` of each rank that named its GPU."""
    rows = of_kind(events, Kind.CONFIG)
    rows = rows[(rows["name"] == "gpu") & rows["text"].notna() & rows["rank"].notna()]
    users = rows[["segment", "text", "rank"]].drop_duplicates()
    return users.assign(text=users["text"].astype("object"))
