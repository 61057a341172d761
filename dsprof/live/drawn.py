"""What follows from the events alone: computed when there are new ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dsprof.analysis.breakdown import main_steps
from dsprof.findings import Finding
from dsprof.findings.failures.ends import first_failure
from dsprof.live import resources, tables
from dsprof.live.judged import Recent, Whole
from dsprof.live.picture import Figures, Verdict
from dsprof.live.processes import Process
from dsprof.run import Run
from dsprof.text.overview import Overview, overview
from dsprof.text.words import number, of_ranks, whole_number


def recent_of(run: Run, processes: Sequence[Process]) -> Recent:
    if run.recorded.empty:
        return Recent()
    seen = overview(run)
    gpus = tuple(resources.gpus_of(run))
    step = -1 if seen.last is None else seen.last
    return Recent(
        world=whole_number(run.meta.get("world_size")),
        step=step,
        records=whole_number(run.steps["step"].max()) if run.counted else None,
        exited=_exited(run),
        failure=_failure(run),
        figures=_figures(run, seen, step),
        verdict=_verdict(run, seen, processes),
        findings=_findings(run),
        bars=tuple(tables.bars_of(run)),
        own=tables.rank_bars(run),
        ranks=tables.ranks_of(run, processes),
        comm=tables.comm_of(run),
        memory=tuple(resources.memory_of(run, gpus)),
        gpus=gpus,
    )


def whole_of(run: Run, processes: Sequence[Process]) -> Whole:
    if run.recorded.empty:
        return Whole()
    return Whole(
        segments=frozenset(int(segment) for segment in run.recorded["segment"].unique()),
        verdict=_verdict(run, overview(run), processes),
        findings=_findings(run),
        problems=tuple(tables.problems_of(run)),
    )


def _findings(run: Run) -> tuple[Finding, ...]:
    """Before the first step nothing is missing: it is only not there yet."""
    early = run.steps.empty
    return tuple(f for f in run.findings if not (early and f.rule == "unaccounted-time"))


def _figures(run: Run, seen: Overview, step: int) -> Figures:
    total, eta = tables.totals(run)
    if eta is None and total and step >= 0 and seen.seconds:
        eta = max(0, total - step) * (seen.seconds_apart or seen.seconds)
    return Figures(
        total_steps=total,
        eta=eta,
        seconds=seen.seconds,
        samples_per_second=seen.samples_per_second_of_steps or seen.samples_per_second,
        tokens_per_second=seen.tokens_per_second,
        tflops=seen.tflops,
        loss=number(seen.loss[1]) if seen.loss and seen.loss_until is None else None,
        seconds_apart=seen.seconds_apart,
    )


def _verdict(run: Run, seen: Overview, processes: Sequence[Process]) -> Verdict | None:
    early = seen.last is None and bool(processes)  # a recording's first step is on its way
    if early or not run.findings:
        return None
    found = run.findings[0]
    parts = tuple(part for part in seen.parts if not part.inside)
    return Verdict(
        found.title,
        str(found.severity),
        seen.averaged,
        seen.seconds,
        seen.classes,
        parts,
        of_ranks(run, main_steps(run.steps)) if parts else "",
    )


def _failure(run: Run) -> str:
    """What a log says of the end of the last launch; it may be training by now, unless its command
    was seen to end.
    """
    row = first_failure(run)
    again = row is not None and row["segment"] != run.told["segment"].max()
    if row is None or again or not (row["root_cause"] or row["kind"] == "command"):
        return ""
    fatal = [found.title for found in run.findings if found.rule in {"oom", "rank-died", "hang"}]
    return fatal[0] if fatal else str(row["kind"])


def _exited(run: Run) -> int:
    told = run.told[run.told["name"] == "exited_well"]
    return int((told["segment"] == run.told["segment"].max()).sum())
