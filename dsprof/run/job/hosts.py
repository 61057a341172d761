"""Hosts by their names, of which one may have several: a launcher's prefix may be an address, or
a short name, where a process on that host gives itself another one."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pandas as pd

from dsprof.events import TASK
from dsprof.recording.layout import SUFFIX
from dsprof.run.table import among, where

#: Lines in which torchrun, on each host, calls that by its own name.
_BY_ITSELF: Final = ("launcher.root_cause", "launcher.other_failures")
_LOCAL: Final = (
    "localhost"  #: a launcher's name of a host, and of the line in which NCCL has its own
)


def by_own_names(events: pd.DataFrame) -> pd.DataFrame:
    """The same with a host by its own name where a launcher calls it localhost and NCCL, in the
    same source and launch, names it: one host alone."""
    told = where(events, among(events["name"], [_LOCAL]))
    if told.empty:
        return events
    key = ["segment", "source"]
    names = told[[*key, "text"]].drop_duplicates().drop_duplicates(key, keep=False)
    own = events[key].merge(names, how="left", on=key)["text"].set_axis(events.index)
    here = (events["host"] == _LOCAL) & own.notna()
    hosts = events["host"].astype("str").mask(here, own).astype("category")
    return events.assign(host=hosts)


def hosts_of(events: pd.DataFrame) -> list[str]:
    """A name of each host that is told, its own one where that is known."""
    told = map(str, events["host"].dropna().unique())
    names = {name for name in told if not name.startswith(TASK)}
    if len(names) > 1:
        names -= _short(names)
        names -= _given(events, names)
    return sorted(names)


def _short(names: set[str]) -> set[str]:
    """`node1` beside `node1.cluster.local`, the only name that begins so."""
    whole: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        first, dot, _ = name.partition(".")
        if dot and not first.isdigit():
            whole[first].add(name)
    return {name for name in names if len(whole.get(name, ())) == 1}


def _given(events: pd.DataFrame, names: set[str]) -> set[str]:
    """Names that others give to a host whose own name is told of the same ranks, in the same
    launch: of that one alone."""
    recorded = [one for one in events["source"].dropna().unique() if str(one).endswith(SUFFIX)]
    itself = events["source"].isin(recorded) | events["pattern"].isin(_BY_ITSELF)
    own = set(map(str, events.loc[itself, "host"].dropna().unique())) & names
    if not own or own == names:
        return set()
    key = ["segment", "rank"]
    told = events.loc[events["rank"].notna() & events["host"].isin(names), [*key, "host"]]
    told = told.drop_duplicates().astype({"host": "str"})
    by_itself = told["host"].isin(own)
    met = told[by_itself].merge(told[~by_itself], on=key, suffixes=("_own", ""))
    met = met[["host_own", "host"]].drop_duplicates()
    alone = ~met["host_own"].duplicated(keep=False) & ~met["host"].duplicated(keep=False)
    return set(met.loc[alone, "host"])
