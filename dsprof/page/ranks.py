"""Ranks side by side, and who waits for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import pipeline_phases
from dsprof.analysis.ranks import of_median_rank
from dsprof.analysis.rest import untimed
from dsprof.charts import beyond_median, has_words, rank_map, rank_phases
from dsprof.findings.ranks.late_in_part import late_parts
from dsprof.findings.ranks.late_ranks import may_wait, stands_out
from dsprof.findings.ranks.late_replica import late_replica
from dsprof.page import words
from dsprof.page.model import Among, Cell, Chart, Section, Table
from dsprof.page.proofs import among
from dsprof.text.parts import UNTIMED
from dsprof.units import format_ranks, format_seconds, format_share

if TYPE_CHECKING:
    from dsprof.findings.facts import Facts
    from dsprof.run import Run

COMPARED = 64  #: phases in the table; a lesser one tells nothing of a rank


def rank_section(run: Run) -> Section:
    """Which rank is slow, and where: the steps that the findings compare, and no others."""
    title = "Ranks"
    told = run.judged[0].compared
    table = rank_phases(told)
    if table is None:
        why = f"Ranks cannot be compared: {_lonely(run.phases)}. A recording covers every rank."
        return Section("ranks", title, why=why)
    table = _with_rest(run, table, told)
    chart = Chart(
        "ranks",
        rank_map(table),
        "Time per step of every rank and phase, beside that of the median rank.",
        _rank_rows(table, told),
        scale=_scale(table),
    )
    lead = _stages(run.judged[0]) if _is_pipeline(told) else _waiting(run.judged[0])
    return Section("ranks", title, lead=f"{lead} {_compared(told)}", charts=[chart])


def _with_rest(run: Run, table: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """The table with what no timer holds: recordings show that of every rank."""
    rest = untimed(told, run.judged[0].series) if run.is_recording else None
    if rest is None:
        return table
    both = pd.concat([table, rest.to_frame(UNTIMED).T])
    return both.loc[both.mean(axis=1).sort_values(ascending=False, kind="stable").index]


def _scale(table: pd.DataFrame) -> tuple[str, str, str]:
    most = format_seconds(beyond_median(table)[1])
    ends = f"{most} faster", f"{most} slower than the median rank"
    return *ends, "pale" if has_words(table) else "full"


def _lonely(phases: pd.DataFrame) -> str:
    if phases.empty:
        return "no line of the source has phases"
    ranks = len(phases["rank"].dropna().unique())
    if ranks > 1:
        return "no step is reported by two ranks"
    return "only one rank prints phases" if ranks else "lines with phases do not say of which rank"


def _compared(told: pd.DataFrame) -> str:
    steps = told["step"].nunique()
    ranks = words.count_of(told["rank"].nunique(), "rank")
    return f"Compared: {ranks} in {words.count_of(steps, 'step')} that most of them report."


def _is_pipeline(told: pd.DataFrame) -> bool:
    names = told["name"].drop_duplicates().astype(str)
    return len(pipeline_phases(pd.DataFrame(index=pd.Index(names)))) > 0


def _stages(facts: Facts) -> str:
    late = late_replica(facts)
    if late is None:
        return "The stages of a pipeline do different work: no rank is late by being slower."
    one, comes = late.latest, "comes" if len(late.latest.group) == 1 else "come"
    several = (
        f"{format_ranks(late.ranks).capitalize()} are late beside others of their stages. "
        if late.ranks != one.group
        else ""
    )
    return (
        f"The stages of a pipeline do different work. {several}Of the ranks of stage "
        f"{late.stage}, which do the same, {one.who} {comes} last in {format_share(one.held)} of "
        f"{words.count_of(one.steps, 'step')}, {format_seconds(one.delay)} per step after the "
        "median of the others."
    )


def _waiting(facts: Facts) -> str:
    """Who the others wait for, in words."""
    slow = facts.straggler
    if slow is None:
        return "No rank stands out as the one that the others wait for."
    if why := may_wait(facts, slow):
        return f"Which rank is late is not known: {why}."
    if parts := [part for part in late_parts(facts) if part.when]:
        return " ".join(
            f"{part.late.who.capitalize()} {'comes' if len(part.late.group) == 1 else 'come'} last "
            f"in {format_share(part.late.held)} of the steps {part.when}, "
            f"{format_seconds(part.late.delay)} per step after the median other rank."
            for part in parts
        )
    if not stands_out(slow):
        return (
            f"No rank stands out: the one that comes last most often, {slow.who}, "
            f"does so in {format_share(slow.held)} of {words.count_of(slow.steps, 'step')}."
        )
    comes, loses, it, itself = "comes", "it loses", "it", "it is quickest itself"
    if len(slow.group) > 1:
        comes, loses, it, itself = "come", "they lose", "them", "they are quickest themselves"
    waits = f", in {slow.meeting}, where {itself}" if slow.meeting else ""
    return (
        f"{slow.who.capitalize()} {comes} last in {format_share(slow.held)} of "
        f"{words.count_of(slow.steps, 'step')}; {loses} most of that {slow.place}. The median "
        f"other rank waits {format_seconds(slow.delay)} per step for {it}{waits}."
    )


def _rank_rows(table: pd.DataFrame, told: pd.DataFrame) -> Table:
    """Per phase: the median, and the slowest and fastest rank; all in one unit."""
    names = [str(name) for name in table.index[:COMPARED]]
    values = table.to_numpy(dtype=float)[: len(names)]
    ranks = table.columns.to_numpy(dtype=np.int64)
    slowest, fastest = ranks[np.nanargmax(values, axis=1)], ranks[np.nanargmin(values, axis=1)]
    three = (of_median_rank(values), np.nanmax(values, axis=1), np.nanmin(values, axis=1))
    said = np.array(words.column(np.concatenate(three))).reshape(3, -1).T.tolist()
    rows = []
    for name, (median, most, least), slow, fast in zip(names, said, slowest, fastest, strict=True):
        mine = told[(told["name"] == name).to_numpy(dtype=bool)]
        rows.append(
            [
                Cell(name),
                Cell(median, among=among(mine)),
                Cell(f"{most}, rank {slow}", among=_of_rank(mine, slow)),
                Cell(f"{least}, rank {fast}", among=_of_rank(mine, fast)),
            ]
        )
    head = ["phase", "median rank", "slowest", "fastest"]
    left = len(table) - len(rows)
    more = f"{words.count_of(left, 'shorter phase')} only drawn." if left > 0 else ""
    return Table("Time per step by rank", head, rows, numeric=frozenset({1, 2, 3}), more=more)


def _of_rank(rows: pd.DataFrame, rank: int) -> Among | None:
    return among(rows[rows["rank"].to_numpy(dtype=np.int64, na_value=-1) == rank])
