"""The tables of the picture: ranks, their bars, communication, problems. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import main_phases, main_steps
from dsprof.analysis.collectives import judged_calls, of_the_job, told_once
from dsprof.analysis.compared import MEETING
from dsprof.analysis.ranks import Straggler, straggler
from dsprof.analysis.rest import untimed, untimed_by_step
from dsprof.events import CLASSES, Class
from dsprof.findings.ranks.late_ranks import stands_out
from dsprof.findings.ranks.late_replica import late_replica
from dsprof.live.judged import Place, RankBars
from dsprof.live.picture import (
    Bar,
    CommRow,
    CommTable,
    ProblemRow,
    RankRow,
    RankTable,
)
from dsprof.live.processes import Process
from dsprof.run import Run
from dsprof.run.steps.calls import UNDIVIDED
from dsprof.run.steps.durations import clocked
from dsprof.text.parts import UNTIMED
from dsprof.text.words import count_of, known, number
from dsprof.units import format_ranks, format_seconds

_PHASES: Final = 12  # columns of the heat map; the rest is one column
_REST: Final = "rest"
_PROBLEMS: Final = 500
_CALLS: Final = 200
#: Of the last so many steps, the part of the step time by which a rank must lag to be named.
_LATE: Final = 0.05
#: A rank that has become late is named at once: last in each of so many steps (one may still be on
#: its way), by at least this part of them.
_JUST: Final = 6
_FAR: Final = 0.2

Frame = pd.DataFrame


def ranks_of(run: Run, processes: Sequence[Process]) -> RankTable:
    """The mean step of every rank by phase, and whom the others wait for."""
    steps = main_steps(run.steps)
    phases = main_phases(steps, run.phases)
    told = phases[phases["rank"].notna() & phases["self_seconds"].notna()]
    means = _means(told)
    meets = set(told.loc[told["class"].isin(MEETING), "name"].astype(str))
    own = means[[name for name in means if name not in meets]].sum(axis=1)
    waits = means[[name for name in means if name in meets]].sum(axis=1)
    rest = untimed(told, steps) if run.is_recording else None
    means = means if rest is None else means.assign(**{UNTIMED: rest})
    names = _columns(means)
    medians = means.quantile(0.5, interpolation="lower")
    shown = _shown(means, names)
    last = max((process.segment for process in processes), default=0)
    by_rank = {p.rank: p for p in processes if p.segment == last}
    everyone = sorted({*map(int, means.index), *(r for r in by_rank if r is not None)})
    hosts = _hosts(run, by_rank)
    means_of = _MeanSteps(shown, own, waits)
    rows = [_rank_row(rank, hosts.get(rank, ""), by_rank.get(rank), means_of) for rank in everyone]
    late, sentence = _who_is_late(run, told, waits, means_of.late_by)
    return RankTable(
        phases=tuple(names),
        medians=tuple(float(m) for m in _shown(medians.to_frame().T, names).iloc[0]),
        rows=tuple(_worst_first(rows)),
        late=late,
        sentence=sentence,
    )


def _means(told: Frame) -> Frame:
    """Self seconds per step: a row per rank, a column per phase."""
    table = told.assign(rank=told["rank"].astype("int64"), name=told["name"].astype("str"))
    sums = table.groupby(["rank", "name"])["self_seconds"].sum().unstack(fill_value=0)  # noqa: PD010
    steps = table.groupby("rank")["step"].nunique()
    found: Frame = sums.div(steps, axis=0)
    return found


def _columns(means: Frame) -> list[str]:
    order = [str(name) for name in means.mean().sort_values(ascending=False).index]
    return order if len(order) <= _PHASES else [*order[: _PHASES - 1], _REST]


def _shown(means: Frame, names: Sequence[str]) -> Frame:
    if _REST not in names:
        return means[list(names)]
    rest = [name for name in means if name not in names]
    return means[[n for n in names if n != _REST]].assign(**{_REST: means[rest].sum(axis=1)})


def _hosts(run: Run, by_rank: dict[int | None, Process]) -> dict[int, str]:
    events = run.events[["rank", "host"]].dropna().drop_duplicates("rank")
    found = {
        int(rank): str(host) for rank, host in zip(events["rank"], events["host"], strict=True)
    }
    return found | {r: p.host for r, p in by_rank.items() if r is not None and p.host}


class _MeanSteps:
    """The mean step of each rank, by rank."""

    def __init__(self, shown: Frame, own: pd.Series[float], waits: pd.Series[float]) -> None:
        table = zip(shown.index, shown.to_numpy(float).tolist(), strict=True)
        self.phases = {int(rank): tuple(seconds) for rank, seconds in table}
        self.own = dict(zip(self.phases, own.tolist(), strict=True))
        self.waits = dict(zip(self.phases, waits.tolist(), strict=True))
        self.late_by = _late_by(own, waits)
        self.nothing = (None,) * shown.shape[1]


def _late_by(own: pd.Series[float], waits: pd.Series[float]) -> dict[int, float]:
    """How much later than the median rank each one comes to where they meet."""
    if len(own) < 2:
        return {}
    if (waits > 0).any():
        late = -(waits - float(waits.quantile(0.5, interpolation="higher")))
    else:
        late = own - float(own.quantile(0.5, interpolation="lower"))
    return {int(str(rank)): float(seconds) for rank, seconds in late.items()}


def _rank_row(rank: int, host: str, process: Process | None, means: _MeanSteps) -> RankRow:
    own, waits = means.own.get(rank), means.waits.get(rank)
    quiet = process is not None and process.state in {"silent", "died"}
    return RankRow(
        rank=rank,
        host=host,
        state=process.state if process else "",
        step=process.step if process else None,
        seconds=None if own is None or waits is None else own + waits,
        phases=means.phases.get(rank, means.nothing),
        late_by=means.late_by.get(rank),
        waits=waits,
        operation=process.place if process is not None and quiet else None,
        code=process.code if process is not None and quiet else "",
    )


def _worst_first(rows: Sequence[RankRow]) -> list[RankRow]:
    """Hosts by their worst rank, and in each host the worst rank first."""

    def badness(row: RankRow) -> tuple[int, float]:
        return _ORDER.get(row.state, 3), -(row.late_by or 0.0)

    worst: dict[str, tuple[int, float]] = {}
    for row in rows:
        worst[row.host] = min(worst.get(row.host, (9, 0.0)), badness(row))
    return sorted(rows, key=lambda row: (worst[row.host], row.host, badness(row), row.rank))


_ORDER: Final = {"died": 0, "silent": 1}


def _who_is_late(
    run: Run, told: Frame, waits: pd.Series[float], late_by: Mapping[int, float]
) -> tuple[int | None, str]:
    """Who waits for whom, in a sentence."""
    if told["name"].astype("str").str.match(r"pipe_|(?:forward|backward)[-_](?:send|recv)").any():
        one = late_replica(run.judged[0])
        if one is None:
            return None, "the stages of a pipeline do different work: they are not compared"
        return one.ranks[0], _waiting(
            replace(one.latest, group=one.ranks, delay=one.seconds), waits
        )
    beside = untimed_by_step(told, main_steps(run.steps)) if run.is_recording else None
    found, now = straggler(told, beside), straggler(_last_steps(told, _JUST), beside)
    if found is None or now is None:
        return None, _NOBODY[min(told["rank"].nunique(), 2)]
    steps = main_steps(run.steps)["seconds"]
    usual, last = number(steps.mean()), number(steps.tail(_JUST).mean())
    late = usual and found.delay >= _LATE * usual and (found.held >= 0.5 or stands_out(found))
    far = last and now.steps >= _JUST - 1 and now.delay >= _FAR * last and now.held == 1.0
    if far and not (late and now.group == found.group):
        return now.group[0], f"{_waiting(now, waits)}, in the last {now.steps} steps"
    if late:
        return found.group[0], _waiting(found, waits)
    within = format_seconds(max(late_by.values()) - min(late_by.values()))
    return None, f"no rank is late: {count_of(found.ranks, 'rank')} within {within} per step"


#: By how many ranks report their phases.
_NOBODY: Final = (
    "",
    "only one rank reports its phases: nothing to compare",
    "no rank is known to make the others wait",
)


def _last_steps(told: Frame, count: int) -> Frame:
    steps = np.unique(told["step"])[-count:]
    return told[told["step"] >= steps[0]] if len(steps) else told


def _waiting(late: Straggler, waits: pd.Series[float]) -> str:
    others = [int(rank) for rank in waits.index if rank not in late.group]
    who = f"{format_ranks(others, 4)} wait{'s' if len(others) == 1 else ''}"
    lost = f"{format_seconds(late.delay)} per step, mostly {late.place}"
    return f"{who} for {late.who}: {lost}"


def bars_of(run: Run) -> Iterator[tuple[Place, Bar]]:
    """The steps that have a time, with their classes."""
    steps = clocked(run.steps)
    for row in steps[steps["seconds"].notna()].to_dict("records"):
        place = int(row["segment"]), int(row["step"]), int(row["engine"])
        classes = tuple(number(row[name]) for name in CLASSES)
        yield place, Bar(place[1], float(row["seconds"]), classes, str(row["bound"]))


def rank_bars(run: Run) -> RankBars:
    """In a recording, whose steps meet, what no timer of a rank covers is in its bars, too. Several
    engines have steps of the same numbers, and a bar for each.
    """
    rows = run.phases[run.phases["rank"].notna() & run.phases["self_seconds"].notna()]
    words = rows["class"].astype("str").replace(UNDIVIDED, str(Class.OTHER))
    table = rows.assign(**{"class": words})
    sums = table.groupby(["rank", "step", "engine", "class"])["self_seconds"].sum()
    told = sums.unstack(fill_value=0).reindex(columns=list(CLASSES), fill_value=0.0)  # noqa: PD010
    ranks, *steps = (told.index.get_level_values(name) for name in ("rank", "step", "engine"))
    by_step = run.steps.groupby(["step", "engine"])["seconds"].max()
    lasted = by_step if run.is_recording else by_step.iloc[:0]
    lasted = lasted.reindex(pd.MultiIndex.from_arrays(steps))
    return RankBars(
        ranks=ranks.to_numpy(np.int64),
        steps=steps[0].to_numpy(np.int64),
        seconds=told.to_numpy(np.float32),
        lasted=lasted.to_numpy(np.float32, na_value=np.nan),
    )


def comm_of(run: Run) -> CommTable:
    """Operation by size, dearest first; of a doubted call only counts and sizes are known."""
    once = told_once(of_the_job(run.comm))
    if once.empty:
        return CommTable()
    calls, steps, visits, _ = judged_calls(once, run.steps)
    link = number(run.meta.get("link_bytes_per_second"))
    groups = calls.assign(op=calls["op"].astype("str"), count=calls["count"].astype("float64"))
    groups.loc[calls["suspect"].notna(), ["seconds", "exposed_seconds", "busbw"]] = np.nan
    rows = [
        _comm_row(str(op), size, part, visits, link)
        for (op, size), part in groups.groupby(["op", "bytes"], dropna=False)
    ]
    return CommTable(tuple(sorted(rows, key=_price)[:_CALLS]), steps)


def _price(row: CommRow) -> tuple[float, float]:
    """The dearest first; where times are unknown, what moves most."""
    return -(row.exposed or row.seconds or 0.0), -row.count * (row.bytes or 0.0)


def _comm_row(op: str, size: Any, part: Frame, visits: float, link: float | None) -> CommRow:
    busbw = number(part["busbw"].median())
    return CommRow(
        op=op,
        bytes=number(size),
        count=float(part["count"].sum()) / visits,
        seconds=_sum(part["seconds"], visits),
        exposed=_sum(part["exposed_seconds"], visits),
        busbw=busbw,
        link=busbw / link if busbw and link else None,
    )


def _sum(values: pd.Series[float], visits: float) -> float | None:
    return float(values.sum()) / visits if values.notna().any() else None


def problems_of(run: Run) -> list[ProblemRow]:
    """The last ones, in their order."""
    return [
        ProblemRow(
            kind=str(row["kind"]),
            severity=str(row["severity"]),
            rank=int(row["rank"]) if known(row["rank"]) else None,
            host=str(row["host"]) if known(row["host"]) else "",
            step=int(row["step"]) if known(row["step"]) else None,
            text=str(row["text"]) if known(row["text"]) else "",
            first=bool(row["root_cause"]),
            source=str(row["source"]) if known(row["source"]) else "",
            line=int(row["line"]) if known(row["line"]) else None,
        )
        for row in run.problems.tail(_PROBLEMS).to_dict("records")
    ]


def totals(run: Run) -> tuple[int | None, float | None]:
    """Steps the job means to run, and seconds to go as the source itself says."""
    events = run.events
    total = events.loc[events["name"] == "total_steps", "value"].dropna()
    eta = events.loc[events["name"] == "eta", "seconds"].dropna()
    return (
        int(total.iloc[-1]) if len(total) and np.isfinite(total.iloc[-1]) else None,
        number(eta.iloc[-1]) if len(eta) else None,
    )
