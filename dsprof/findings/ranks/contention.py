"""Ranks that are ready to run and wait for a CPU."""

from __future__ import annotations

from typing import Final

from dsprof.analysis.cpu import CpuWait, cpu_waits
from dsprof.analysis.ranks import Straggler
from dsprof.events import Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts, once, promise
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.ranks.backwards import Cause
from dsprof.findings.ranks.stopped import (
    how_many,
    is_sampled,
    judged_launches,
    longer_than_others,
)
from dsprof.findings.resources.cpu_threads import fewer_threads
from dsprof.findings.thresholds import (
    CPU_CRITICAL,
    CPU_WARNING,
    WAITING_EXPLAINS,
    grade,
)
from dsprof.units import format_seconds, format_share


@once
def cpu_contention(facts: Facts) -> list[Finding] | str:
    """The thread that trains is ready to run and gets no CPU: others have them, or a limit is
    reached.

    On a GPU this is a note: the host may be ahead. Gain: at best what the rank that waits longest
    waits.
    """
    waits = waits_for_cpu(facts)
    if not waits:
        return "no count of how long a thread waits for a CPU: only recordings on Linux have it"
    worst = waits[0]
    severity = grade(worst.share, CPU_WARNING, CPU_CRITICAL)
    if severity is None:
        return []
    who = tuple(sorted(one.rank for one in waits if one.share >= CPU_WARNING))
    seconds = None
    if facts.on_cpu and len(facts.run.judged) == 1 and facts.average:
        seconds = worst.share * facts.average
    reason = ": its container's CPU limit is used up" if _stopped(worst) else ""
    return [
        Finding(
            rule="cpu-contention",
            severity=severity if facts.on_cpu else Severity.INFO,
            title=_title(worst, who, len(waits)) + reason,
            summary=f"The thread of rank {worst.rank} that trains was ready to run, and had no "
            f"CPU, for {format_seconds(worst.seconds)} of {format_seconds(worst.of)}, by the "
            f"kernel's count. {_why(facts, worst)} {_ALL_PHASES if facts.on_cpu else _AHEAD}",
            share=worst.share,
            seconds_per_step=seconds,
            ranks=who,
            evidence=(_proof(worst),),
            advice=_advice(facts, worst),
            gain=promise(seconds) if seconds else None,
            confidence="high" if facts.on_cpu else "low",
        )
    ]


_ALL_PHASES: Final = "Whatever it does meanwhile takes longer: computing, too, is partly waiting."
_AHEAD: Final = "Whether the GPU waits meanwhile is unknown: the host may be ahead of it."


def _stopped(wait: CpuWait) -> bool:
    """Whether a limit explains what a thread waited. That of others is unknown: each of its
    threads that wanted to run was stopped.
    """
    return wait.stopped is not None and wait.stopped >= WAITING_EXPLAINS * wait.seconds


def _why(facts: Facts, wait: CpuWait) -> str:
    if wait.stopped is None:
        return (
            "Other threads had all that it may use, unless a limit that the recording does not "
            "know was used up."
        )
    limit = f"the limit of its container ({_cpus(facts)})"
    stopped = f"for {format_seconds(wait.stopped)} meanwhile, added up over CPUs"
    if _stopped(wait):
        return f"{limit[:1].upper()}{limit[1:]} was used up: its threads were stopped {stopped}."
    return f"Other threads had all that it may use: {limit} stopped its threads {stopped}."


def _cpus(facts: Facts) -> str:
    limit = facts.run.config["cpu_limit"]
    return f"{limit:.4g} CPU{'s' * (limit != 1)}"


def short_of_cpu(facts: Facts, late: Straggler) -> Cause | None:
    """Late ranks that wait for a CPU longer than the others, if that is most of the delay."""
    waits = waits_for_cpu(facts)
    longer = longer_than_others(facts, late, waits)
    if longer is None:
        return None
    worst = next(one for one in waits if one.rank in late.group)
    wait = "waits" if len(late.group) == 1 else "wait"
    limit = " The CPU limit of its container is used up." if _stopped(worst) else ""
    said = (
        f"{late.who[:1].upper()}{late.who[1:]} {wait} {format_seconds(longer.own)} per step for a "
        f"CPU, the others {format_seconds(longer.others)} at most.{limit}"
    )
    title = f": {late.who} {wait} for a CPU" if facts.on_cpu else ""  # a host may be ahead
    return Cause(said, _advice(facts, worst), title, (_proof(worst),))


@once
def waits_for_cpu(facts: Facts) -> list[CpuWait]:
    """Of each rank of the launches that are judged, who waits longest first."""
    return list(filter(is_sampled, cpu_waits(facts.run.told, judged_launches(facts))))


def _title(worst: CpuWait, who: tuple[int, ...], of: int) -> str:
    time = f"{format_share(worst.share)} of the time"
    if len(who) == 1:
        return f"Rank {worst.rank} is ready to run and waits for a CPU, {time}"
    many = how_many(who, of)
    return f"{many} ranks are ready to run and wait for a CPU, rank {worst.rank} for {time}"


def _proof(worst: CpuWait) -> Evidence:
    waited = format_seconds(float(worst.row["seconds"]))
    return row_evidence(worst.row, f"rank {worst.rank} has waited {waited} for a CPU so far")


def _advice(facts: Facts, worst: CpuWait) -> tuple[Advice, ...]:
    if _stopped(worst):
        more = Advice(
            "CPU limit of the container",
            _cpus(facts),
            "more",
            "limits.cpu of a pod, --cpus of docker, CPUQuota of systemd: whoever uses it up is "
            "stopped",
        )
        return (*fewer_threads(facts), more)
    cores = facts.run.config.get("cpu_cores")
    host = f" on {worst.host}" if worst.host else ""
    return (
        *fewer_threads(facts),
        Advice(
            f"what else is busy{host}",
            "",
            "see with top: end or move it",
            "other jobs, data workers and threads of libraries take the CPUs that training needs",
        ),
        Advice(
            "CPUs that a rank may use",
            f"{int(cores):,}" if cores else "",
            "more, or others for each rank",
            "--cpus-per-task, limits.cpu or a binding may leave too few",
        ),
    )
