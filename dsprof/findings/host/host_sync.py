"""Diagnostics that make the host wait for the GPU, and so slow the run that they measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.findings.evidence import phase_evidence, row_evidence, whole
from dsprof.findings.facts import COLLECTING, Facts, promise
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.proofs import average_proof
from dsprof.findings.thresholds import (
    SYNC_CRITICAL,
    SYNC_WARNING,
    UNACCOUNTED_CRITICAL,
    UNACCOUNTED_WARNING,
    grade,
)
from dsprof.run.table import among, where
from dsprof.units import format_bytes, format_seconds, format_share


class Sync(NamedTuple):
    """A setting that makes the host wait for the GPU; `recorded` is its name in recordings."""

    path: str
    severity: Severity
    why: str
    recorded: str = ""
    of_device: bool = False  # on a CPU there is nothing to wait for

    def is_on(self, facts: Facts) -> bool:
        """As the engine had it, where a recording tells; else as the job's own JSON says."""
        told = facts.run.config.get(self.recorded)
        if isinstance(told, int | float):
            return bool(told)
        return facts.setting(self.path) is True


_SYNCS = (
    Sync(
        "comms_logger.enabled",
        Severity.WARNING,
        "it waits for the GPU after every communication call, so nothing overlaps any more",
        "comms_logger",
        of_device=True,
    ),
    Sync(
        "memory_breakdown",
        Severity.WARNING,
        "it collects Python's garbage on rank 0 inside the backward timers, every step",
        "memory_breakdown",
    ),
    Sync("flops_profiler.enabled", Severity.INFO, "it hooks every module at its profile step"),
    Sync(
        "wall_clock_breakdown",
        Severity.INFO,
        "its timers wait for the GPU when they are read, and before 0.6.2 at each start and stop",
        "wall_clock_breakdown",
        of_device=True,
    ),
    Sync(
        "timers.throughput.synchronized",
        Severity.INFO,
        "DeepSpeed's throughput timer waits for the GPU at both ends of every micro-batch, by "
        "default",
        "throughput_timer_synchronized",
        of_device=True,
    ),
)


def host_sync(facts: Facts) -> list[Finding] | str:
    """Diagnostics that are switched on make the host wait for the GPU.

    Two things leave a price: `memory_breakdown` in a log (see `Facts.collecting`), and in a
    recording the device, which idles where the host waits for it. Gain: at best all of that.
    """
    syncs = [sync for sync in _SYNCS if not (sync.of_device and facts.on_cpu)]
    seen, price = _printed(facts), _price(facts)
    on = [sync for sync in syncs if sync.path in seen or sync.is_on(facts)]
    recorded = any(sync.recorded in facts.run.config for sync in _SYNCS if sync.recorded)
    if not (facts.has_config or recorded or seen or price):
        return "DeepSpeed's configuration is not in the source"
    if not on and price is None:
        return []
    costly = [sync for sync in on if sync.severity is Severity.WARNING]
    seconds = price.seconds if price else None
    return [
        Finding(
            rule="host-sync",
            severity=price.severity if price else costly[0].severity if costly else Severity.INFO,
            title=price.title if price else _named(costly, on),
            summary=price.summary if price else _NO_PRICE,  # the advice says what each does
            share=facts.share(seconds),
            seconds_per_step=seconds,
            phase=price.phase if price else None,
            evidence=(price.evidence if price else ())
            + (tuple(seen.values()) or _config_lines(facts, on)),
            advice=_switched_off(on) or (_ASK_LESS,),
            gain=promise(seconds) if seconds and not (price and price.is_part) else None,
            confidence="medium",
        )
    ]


class Price(NamedTuple):
    """What waiting for the GPU costs, where the source shows it."""

    seconds: float  # of a step
    severity: Severity
    title: str
    summary: str
    phase: str
    evidence: tuple[Evidence, ...]
    is_part: bool = False  # it costs more where nothing is timed


_COLLECTING = (
    "{} per step lie {}in backward beside its computation and its reduction: that is where "
    "memory_breakdown works. The reduction is longer too, since the other ranks "
    "wait. Medium confidence: measure a run without it before anything else."
)
_UNTIMED = " It works between the timers, too, which nothing times."
_IDLING = (
    "{} of each step the GPU has nothing to do, from its last kernel until a host that waited for "
    "the whole device goes on."
)
_NO_PRICE = "Medium confidence: what that costs is not in the log; measure a run without."
_ASK_LESS = Advice(
    "torch.cuda.synchronize() and .item() in the loop",
    "",
    "less often",
    "the host may then prepare the next step while the GPU works on this one",
)


def _price(facts: Facts) -> Price | None:
    collecting, idle = facts.collecting, _idle(facts)
    if collecting:
        share, beside, summed = facts.share(collecting) or 0.0, _is_beside(facts), _is_sum(facts)
        return Price(
            collecting,
            grade(share, UNACCOUNTED_WARNING, UNACCOUNTED_CRITICAL) or Severity.WARNING,
            f"Up to {format_share(share)} of {'the timed part of ' if summed else ''}a step is "
            "what memory_breakdown itself takes",
            _COLLECTING.format(
                format_seconds(collecting), "between the timers, or " if beside else ""
            )
            + (_UNTIMED if summed else ""),
            "backward",
            _collected(facts),
            is_part=summed,
        )
    share = facts.share(idle) or 0.0
    severity = grade(share, SYNC_WARNING, SYNC_CRITICAL)
    if severity is None:
        return None
    title = f"{format_share(share)} of a step the GPU idles because the host waits for it"
    rows = facts.phases_of("other")
    evidence = phase_evidence(rows[rows.index == SYNCHRONIZE], 1)
    return Price(idle, severity, title, _IDLING.format(format_seconds(idle)), SYNCHRONIZE, evidence)


#: Phase of recordings: the device, while the host waits for all of it.
SYNCHRONIZE = "synchronize"


def _idle(facts: Facts) -> float:
    """Seconds of a step; a recording tells of them only where they are the device's own."""
    if facts.breakdown is None or facts.run.config.get("phases_on") != "gpu":
        return 0.0
    rows = facts.phases_of("other")
    return float(rows["seconds"][rows.index == SYNCHRONIZE].sum())


def _named(costly: list[Sync], on: list[Sync]) -> str:
    names = ", ".join(sync.path for sync in costly or on)
    if costly:
        return f"Diagnostics that slow the run they measure are on: {names}"
    return f"Diagnostics are on: {names}"


def _switched_off(on: list[Sync]) -> tuple[Advice, ...]:
    """What is to be switched off, the dearest first."""
    return tuple(
        Advice(sync.path, "true", "false, once the diagnosis is made", sync.why)
        for sync in sorted(on, key=lambda sync: sync.path != "memory_breakdown")
    )


def _is_beside(facts: Facts) -> bool:
    """Whether time lies between the timers: a step that is their sum has none."""
    return bool(facts.outside_timers) and not _is_sum(facts)


def _is_sum(facts: Facts) -> bool:
    return bool(facts.steps["seconds_from"].eq("timers").all())


def _collected(facts: Facts) -> tuple[Evidence, ...]:
    table = facts.phases_of("other")
    inside = phase_evidence(table[table.index == "backward"], 1)
    if not _is_beside(facts):
        return inside
    *others, last = average_proof(facts)
    left = f"between the timers: {format_seconds(facts.outside_timers)} per step"
    return (*inside, *others, last._replace(text=f"{last.text}; {left}"))


def _printed(facts: Facts) -> dict[str, Evidence]:
    """Settings that the source's own lines give away."""
    found = {}
    comm = facts.run.told
    comm = where(comm, among(comm["kind"], [Kind.COMM]) & comm["pattern"].notna())
    if len(comm):
        first = comm.iloc[0]
        size = "" if pd.isna(first["bytes"]) else f" of {format_bytes(float(first['bytes']))}"
        found["comms_logger.enabled"] = row_evidence(first, f"{first['name']}{size} is logged")
    memory = where(facts.run.memory, facts.run.memory["step"].notna())
    looks = memory[memory["text"].astype(str).str.contains("Engine (?:before|after) ")]
    if len(looks):
        found["memory_breakdown"] = row_evidence(looks.iloc[0], str(looks.iloc[0]["text"]))
    elif COLLECTING in facts.doubts and len(memory):
        first = memory.iloc[0]
        said = f"{first['name']} within a step: {format_bytes(float(first['bytes']))}"
        found["memory_breakdown"] = row_evidence(first, said)
    return found


def _config_lines(facts: Facts, on: Sequence[Sync]) -> tuple[Evidence, ...]:
    """The lines of the job's own JSON that switch these on; it ends on the line of its event."""
    events: pd.DataFrame = facts.run.told
    rows = events[(events["kind"] == Kind.CONFIG) & (events["name"] == "ds_config")]
    if rows.empty:
        return ()
    last = rows.iloc[-1]
    lines, end = str(last["text"]).split("\n"), whole(last["line"])
    keys = [f'"{sync.path.partition(".")[0]}"' for sync in on]
    return tuple(
        Evidence(
            str(last["source"]),
            None if end is None else max(1, end - len(lines) + 1 + number),
            line.strip(),
        )
        for number, line in enumerate(lines)
        if any(key in line for key in keys)
    )
