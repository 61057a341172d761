"""What the lines of a collective that timed out show: who waited in which call, who is missing."""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

import pandas as pd

from dsprof.analysis.layout import Layout, layout_of
from dsprof.events import Kind
from dsprof.findings.facts import Facts
from dsprof.findings.failures.ends import HANG, ended_launch, last_launch
from dsprof.run.ends.progress import reached
from dsprof.run.job.config import config

_BARRIER: Final = r"OpType=BARRIER\b|OpType=ALLREDUCE, NumelIn=1,"
_OPERATION: Final = re.compile(r"OpType=(\w{1,40})")
_WHOLE: Final = r"Timeout\(ms\)=\d"  #: what ends it
_BETWEEN_TWO: Final = ("SEND", "RECV", "COALESCED", "BATCH_P2P")  #: not called by all of a group
#: A group of that name is one. Before torch 2.4, messages between two ranks counted as calls, too;
#: those that are split from another at once, as a DeviceMesh's, share a name.
_OWN_NAME: Final = r"^ID \d+ PG GUID (?!.*(?:\(mesh_|:split:))"


class OutOfStep(NamedTuple):
    """Ranks by the operation that they called under this number."""

    call: int
    ranks: dict[str, tuple[int, ...]]


def rank_behind(facts: Facts, rows: pd.DataFrame) -> int | None:
    """The rank that had started the fewest collectives, if one is below all others."""
    calls = _calls(facts, rows)
    told = reached(facts.run.told, calls).groupby(calls["rank"]).max().dropna()
    lowest = told[told == told.min()]
    return int(lowest.index[0]) if len(told) > 1 and len(lowest) == 1 else None


def rank_missing(facts: Facts, waiting: tuple[int, ...]) -> int | None:
    """The one rank of the job that does not report a timeout, if all others do."""
    told = last_launch(facts.run)["rank"].dropna()
    size = size_of_job(facts)
    ranks = set(range(size)) if size else {int(rank) for rank in told}
    left = ranks - set(waiting)
    return left.pop() if ranks.issuperset(waiting) and waiting and len(left) == 1 else None


def more_failed(facts: Facts, reports: pd.DataFrame) -> bool:
    """Whether something else failed behind the reports: a source that ends with them may be cut
    before the last one."""
    others = facts.run.problems[~facts.run.problems["kind"].isin(HANG)]
    last = reports.groupby("source", observed=True)["line"].max()
    return any(
        (others["line"][others["source"] == name] > line).any() for name, line in last.items()
    )


def all_in_one_call(facts: Facts, rows: pd.DataFrame, waiting: tuple[int, ...]) -> bool:
    """Whether every rank of the job says that it waits, and all in the same call."""
    size, calls = size_of_job(facts), _calls(facts, rows)
    whole_line = calls["text"].astype("str").str.contains(_WHOLE)
    alike = len(calls.drop_duplicates(["text", "count"])) == 1
    return (
        size is not None
        and size > 1
        and waiting == tuple(range(size))
        and bool(whole_line.all() and calls["count"].notna().all())
        and alike
    )


def in_operation(facts: Facts, rows: pd.DataFrame) -> str:
    """` in ALLREDUCE, call 880`: what the first of them waited in; its number alone, where the
    word is cut off in all of them."""
    calls = _calls(facts, rows)
    for _, call in calls.iterrows():
        found = _OPERATION.search(str(call["text"]))
        if found:
            number = "" if pd.isna(call["count"]) else f", call {int(call['count']):,}"
            return f" in {found[1]}{number}"
    told = calls["count"].dropna()
    return f" in call {int(told.iloc[0]):,}" if len(told) else ""


def said_if_elsewhere(facts: Facts, rows: pd.DataFrame, behind: int, inside: str) -> str:
    """That it waits itself, in a collective that no other is in, where it says so."""
    own = in_operation(facts, rows[(rows["rank"] == behind).fillna(value=False)])
    if not own or not inside or own == inside:
        return ""
    return f" It waits itself,{own}: it skipped a collective, or the others called an extra one."


def said_if_apart(facts: Facts, rows: pd.DataFrame) -> str:
    """That the ranks do not wait in the same collective, where their lines show it."""
    calls = _calls(facts, rows)
    whole_line = calls["text"].astype("str").str.contains(_WHOLE)
    calls = calls[calls["count"].notna() & calls["rank"].notna() & whole_line]
    ranks = calls.groupby("text", observed=True)["rank"].unique()
    if len(ranks) < 2:
        return ""
    said = " They wait in different ones: of several process groups, or out of step."
    fewest, most = ranks.str.len().min(), ranks.str.len().max()
    if len(ranks) > 2 or fewest > 1 or most == 1:
        return said
    odd = ranks[ranks.str.len() == 1]
    what = str(odd.index[0]).split(", Timeout")[0]
    return f"{said} Rank {int(odd.iloc[0][0])} alone waits in {what}."


def out_of_step(facts: Facts, rows: pd.DataFrame) -> OutOfStep | None:
    """Ranks that wait in different operations under one number of one process group: all of its
    ranks make the same calls in the same order, but for messages between two of them."""
    calls = _calls(facts, rows).dropna(subset=["rank", "count"])
    operation = calls["text"].astype("str").str.extract(rf"{_OPERATION.pattern}.*{_WHOLE}")[0]
    calls = calls.assign(operation=operation, group=calls["rank"].map(_groups(facts)))
    calls = calls.dropna(subset=["operation", "group"])
    calls = calls[~calls["operation"].isin(_BETWEEN_TWO)]
    alone = calls.groupby("rank")["count"].transform("nunique") == 1
    for _, told in calls[alone].groupby(["group", "count"], observed=True):
        ranks = told.groupby("operation")["rank"].unique()
        if len(ranks) > 1:
            who = {str(name): tuple(sorted(map(int, ranks[name]))) for name in ranks.index}
            in_order = dict(sorted(who.items(), key=lambda item: item[1]))
            return OutOfStep(int(told["count"].iloc[0]), in_order)
    return None


def _groups(facts: Facts) -> pd.Series[Any]:
    """The process group of each rank whose watchdogs report on one alone, which its name tells
    from all others."""
    told = facts.run.told
    mine = (told["segment"] == ended_launch(facts.run)) & (told["name"] == "last_enqueued_work")
    told = told[mine.to_numpy(dtype=bool)].dropna(subset=["rank", "text"])
    groups = told.astype({"text": "str"}).groupby("rank")["text"].agg(["nunique", "first"])
    alone = (groups["nunique"] == 1) & groups["first"].astype("str").str.contains(_OWN_NAME)
    return groups.loc[alone, "first"]


def may_be_barrier(rows: pd.DataFrame) -> bool:
    """Whether ranks waited in a barrier, or in what NCCL's is: an all-reduce of one number."""
    said = rows["text"].astype("str")
    said = said[said.str.contains("OpType=")]
    return bool(len(said)) and bool(said.str.contains(_BARRIER).all())


def is_before_recorder(facts: Facts, rows: pd.DataFrame) -> bool:
    """Whether a PyTorch before 2.1 printed it: it tells no numbers of elements (NumelIn), and has
    no flight recorder."""
    calls = _calls(facts, rows)["text"].astype("str")
    named = calls[calls.str.contains(_WHOLE)]
    return bool(len(named)) and not named.str.contains("NumelIn=").any()


def was_first_call(facts: Facts, rows: pd.DataFrame) -> bool:
    """Whether it was the first of its group: nothing went through before."""
    calls = _calls(facts, rows)["count"]
    return bool(len(calls) and calls.eq(1).fillna(value=False).all())


def _calls(facts: Facts, rows: pd.DataFrame) -> pd.DataFrame:
    """The events of these problems: their `count` is the number of the collective."""
    told = facts.run.told
    same = (told["kind"] == Kind.PROBLEM) & told["name"].isin(rows["kind"])
    told = told[same.to_numpy(dtype=bool)]  # what an exception quotes of it has no number
    mine = told.set_index(["source", "line"]).index.isin(rows.set_index(["source", "line"]).index)
    return told[mine]


def size_of_job(facts: Facts) -> int | None:
    """How many ranks the job has, as it says or as its layout multiplies to."""
    layout = layout_of_job(facts)
    sequence = _told(facts).get("sequence_parallel_size", 1)
    sizes = (layout.data_parallel, layout.tensor_parallel, layout.stages, sequence)
    return layout.world_size or math.prod(one or 0 for one in sizes) or None


def layout_of_job(facts: Facts) -> Layout:
    return layout_of(_told(facts), facts.run.meta, pipeline=facts.is_pipeline)


def _told(facts: Facts) -> dict[str, Any]:
    """The settings of the launch that ended."""
    return config(facts.run.as_told, ended_launch(facts.run))
