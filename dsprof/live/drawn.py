"""What follows from the events alone: computed when there are new ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dsprof.findings.failures import first_failure
from dsprof.live import tables
from dsprof.live.picture import (
    CommRow,
    Figures,
    GpuRow,
    MemoryRow,
    ProblemRow,
    RankTable,
    Verdict,
)
from dsprof.live.processes import Process
from dsprof.run import Run
from dsprof.text.overview import Overview, overview
from dsprof.text.words import known, number


@dataclass(frozen=True, slots=True)
class Drawn:
    """The parts of a picture that only new events change; `step` is -1 before the first."""

    framework: str | None = None
    world: int | None = None
    segments: frozenset[int] = frozenset()
    step: int = -1
    failure: str = ""
    figures: Figures = field(default_factory=Figures)
    now: Verdict | None = None
    since: Verdict | None = None
    ranks: RankTable = field(default_factory=RankTable)
    comm: tuple[CommRow, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    gpus: tuple[GpuRow, ...] = ()
    problems: tuple[ProblemRow, ...] = ()


def drawn(recent: Run, whole: Run, processes: Sequence[Process]) -> Drawn:
    """Figures and tables of the last steps; `whole` is all that is kept of the run."""
    if recent.recorded.empty:
        return Drawn()
    seen = overview(recent)
    step = -1 if seen.last is None else seen.last
    early = step < 0 and bool(processes)  # a recording's first step is on its way
    return Drawn(
        framework=recent.meta.get("framework"),
        world=_whole(recent.meta.get("world_size")),
        segments=frozenset(int(segment) for segment in whole.recorded["segment"].unique()),
        step=step,
        failure=_failure(recent),
        figures=_figures(recent, seen, step),
        now=None if early else _verdict(recent, seen),
        since=None if early else _verdict(whole, overview(whole)),
        ranks=tables.ranks_of(recent, processes),
        comm=tuple(tables.comm_of(recent)),
        memory=tuple(tables.memory_of(recent)),
        gpus=tuple(tables.gpus_of(recent)),
        problems=tuple(tables.problems_of(whole)),
    )


def _figures(run: Run, seen: Overview, step: int) -> Figures:
    total, eta = tables.totals(run)
    if eta is None and total and step >= 0 and seen.median:
        eta = max(0, total - step) * seen.median
    return Figures(
        total_steps=total,
        eta=eta,
        seconds=seen.median or seen.seconds,
        samples_per_second=seen.samples_per_second,
        tokens_per_second=seen.tokens_per_second,
        tflops=seen.tflops,
        loss=number(seen.loss[1]) if seen.loss else None,
    )


def _verdict(run: Run, seen: Overview) -> Verdict | None:
    if not run.findings:
        return None
    found = run.findings[0]
    return Verdict(found.title, str(found.severity), seen.averaged, seen.seconds, seen.classes)


def _failure(run: Run) -> str:
    """What a log says of the launch's end."""
    row = first_failure(run)
    if row is None or not row["root_cause"]:
        return ""
    fatal = [found.title for found in run.findings if found.rule in {"oom", "rank-died", "hang"}]
    return fatal[0] if fatal else str(row["kind"])


def _whole(value: Any) -> int | None:
    return int(value) if known(value) and isinstance(value, int | float) else None
