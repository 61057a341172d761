"""What is said of ranks that are late: whether they stand out, where they run, what proves it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from dsprof.analysis.compared import MEETING
from dsprof.analysis.looks import Code
from dsprof.analysis.ranks import Straggler
from dsprof.analysis.trends import period
from dsprof.events import Class
from dsprof.findings.evidence import largest, rank_evidence
from dsprof.findings.facts import NO_COMMUNICATION, RANKS_UNTOLD, Facts, once
from dsprof.findings.finding import Advice, Evidence
from dsprof.findings.seen.anew import loading, making_batches
from dsprof.findings.seen.code_seen import change
from dsprof.findings.seen.places import BETWEEN_PHASES, Place, look_at
from dsprof.findings.seen.unseen import calls_unseen
from dsprof.findings.thresholds import (
    STRAGGLER_ABOVE_CHANCE,
    STRAGGLER_CHANCE,
    STRAGGLER_HELD,
    STRAGGLER_OFTEN,
)
from dsprof.run.table import plain


def may_wait(facts: Facts, late: Straggler) -> str | None:
    """Why the rank that seems late may itself be waiting; None if it is known to be late.

    The summary and the page ask this, too, before they name it.
    """
    are, come, it, itself = "is", "comes", "it", "itself"
    if len(late.group) > 1:
        are, come, it, itself = "are", "come", "they", "themselves"
    unseen = facts.hidden_communication in {NO_COMMUNICATION, RANKS_UNTOLD}
    backward = next((phase for phase in late.phases if "backward" in phase), None)
    if unseen and backward:  # it includes the reduction, and so the waiting
        return (
            f"{late.who} {are} longest in {backward}, where {it} may {itself} be waiting for the "
            "others: no communication between the ranks is timed"
        )
    missed = calls_unseen(facts)
    if missed:
        return (
            f"{late.who} {come} last, where {it} may {itself} be waiting for the others: a rank "
            f"issued {missed:,} collectives that its recording did not see"
        )
    return None


def stands_out(late: Straggler) -> bool:
    """Whether the same rank usually comes last, instead of each in turn."""
    often = late.held >= STRAGGLER_OFTEN and late.above_chance >= STRAGGLER_ABOVE_CHANCE
    return often or (late.held >= STRAGGLER_HELD and late.chance <= STRAGGLER_CHANCE)


@once
def meet_every(facts: Facts) -> int | None:
    """N, if recorded ranks meet in each Nth step, and in none between, as those of local SGD do."""
    phases = facts.compared
    if not facts.run.is_recording or calls_unseen(facts):
        return None
    steps = np.unique(plain(phases["step"]))
    meets = phases["class"].isin(MEETING) & (phases["self_seconds"] > 0)
    rows = np.flatnonzero(np.isin(steps, phases["step"][meets].unique()))
    return period(rows)


def is_steady(late: Straggler) -> bool:
    """Whether it comes late in nearly every step, instead of much later in some of them."""
    return late.held >= STRAGGLER_HELD and 2 * late.least >= late.delay


def node(facts: Facts, late: Straggler) -> Advice:
    """What to look at, if the delay is not of their own code."""
    hosts = hosts_of(facts, late)
    if late.meeting.startswith(_BETWEEN_TWO):
        return Advice(f"the work of {late.who}", "", "even it out", _DIFFERENT)
    share = "the data, or of the experts' tokens" if _exchanges_tokens(facts) else "the data"
    gpu, gpus = ("", "") if facts.on_cpu else _GPUS
    why = f"{gpu}a busy CPU or disk, or a larger share of {share}"
    if len(late.group) > 1 and not hosts:
        in_common = f"{gpus}a switch or a socket, or more work than the others"
        return Advice(f"what {late.who} have in common", "", "check it", in_common)
    named = f" ({' and '.join(hosts)})" if hosts else ""
    to = "check it" if _is_alone(facts) else "check it, or leave it out of the hostfile"
    return Advice(f"the node of {late.who}{named}", "", to, why)


def _exchanges_tokens(facts: Facts) -> bool:
    """Whether forward sends tokens to other ranks, as to the experts that these hold."""
    comm = facts.run.comm
    inside = comm["phase"].astype("str").str.startswith("forward")
    return bool((inside & comm["op"].astype("str").str.contains("all_to_all")).any())


_BETWEEN_TWO: Final = ("send", "recv")  # recorded calls between single ranks
_DIFFERENT: Final = (
    "ranks that send to single others, as stages of a pipeline, mostly do different work; if it is "
    "alike, check the node"
)
_GPUS: Final = ("a throttled or other GPU, ", "slower or throttled GPUs, ")


def own_code(facts: Facts, late: Straggler, place: Place | None) -> tuple[Advice, ...]:
    """Batches made ahead, if it waits for its own; how to see what a late rank does where a
    recording has no phase: that is the script's own code.
    """
    seen = change(code_of(facts, late, place), "quicker")
    if _waits_for_batches(facts, late):
        return (loading(facts), *seen)
    if late.phase or not facts.run.is_recording:
        return ()
    return seen or (look_at(place.words if place else BETWEEN_PHASES, f"rank {late.group[0]}"),)


def code_of(facts: Facts, late: Straggler, place: Place | None) -> Code | None:
    """What late ranks were seen to run where they lose most."""
    if _waits_for_batches(facts, late):
        return making_batches(facts, late.group)
    return place.code if place and not late.phase else None


def _waits_for_batches(facts: Facts, late: Straggler) -> bool:
    compared = facts.compared
    return bool((compared["class"].eq(Class.DATA) & compared["name"].eq(late.phase)).any())


def _is_alone(facts: Facts) -> bool:
    """Whether all ranks run on one host, by settings or recordings; a log may lack some hosts."""
    return facts.layout.nodes == 1


def hosts_of(facts: Facts, late: Straggler) -> tuple[str, ...]:
    """The host of the late rank; of a group only those whose ranks are all late, if that is all of
    it and others have other hosts.
    """
    pairs = facts.run.told[["rank", "host"]].dropna().drop_duplicates("rank")
    host_of = dict(zip(pairs["rank"].astype(int), pairs["host"].astype(str), strict=True))
    if len(late.group) == 1:
        return tuple(host_of[rank] for rank in late.group if rank in host_of)
    hosts = {host_of.get(rank, "") for rank in late.group}
    beside = {host for rank, host in host_of.items() if rank not in late.group}
    told = "" not in hosts and len(host_of) == facts.layout.world_size
    return tuple(sorted(hosts)) if told and not hosts & beside else ()


def proof_of(
    facts: Facts, late: Straggler, among: Collection[int] | None = None
) -> tuple[Evidence, ...]:
    """A late rank's longest such phase in the steps in which it is late, and another rank's in the
    same step, one of `among`.

    If it loses its time outside of phases: the longest wait for it, and its own in that step.
    """
    rows = facts.series_phases
    name = late.phase or late.meeting
    there = rows["step"].between(late.first, late.last) & (rows["name"] == name)
    named = rows[there.fillna(value=False) & rows["rank"].notna()]
    own = named["rank"].isin(late.group)
    if among is not None:
        own, named = own[alike := named["rank"].isin(among)], named[alike]
    longest, others = (named[own], named[~own]) if late.phase else (named[~own], named[own])
    if longest.empty:
        return ()
    worst = largest(longest, "self_seconds")
    beside = others[(others["step"] == worst["step"]).fillna(value=False)]
    return tuple(map(rank_evidence, (worst, *(row for _, row in beside.head(1).iterrows()))))
