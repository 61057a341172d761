"""All rules, applied one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from dsprof.events import GRAVITY, Severity
from dsprof.findings import trust
from dsprof.findings.beside import checkpoints, evaluations, generation
from dsprof.findings.bounds import bounded, modest
from dsprof.findings.communication import bound, calls, gathers, overlap, small_messages
from dsprof.findings.facts import Facts
from dsprof.findings.failures import deaths, earlier, hangs, network, oom, still
from dsprof.findings.finding import Abstention, Finding
from dsprof.findings.host import costly, host_bound, host_sync, input_data, shares
from dsprof.findings.numerics import divergence, losses, overflows
from dsprof.findings.over_time import spikes, throughput
from dsprof.findings.pipeline import bubbles
from dsprof.findings.ranks import contention, garbage, stragglers
from dsprof.findings.ranks.extremes import between
from dsprof.findings.resources import memory, throttled
from dsprof.findings.same_cause import told_once
from dsprof.findings.seen.unseen import doubted
from dsprof.findings.unknown import unaccounted
from dsprof.findings.unknown.unnumbered import unnumbered
from dsprof.findings.without_deepspeed import (
    for_megatron,
    for_nemo,
    for_others,
    for_trainer,
    for_unknown,
)

if TYPE_CHECKING:
    from dsprof.run import Run

#: A rule answers with findings (none: nothing is wrong) or says why it cannot judge.
Rule = Callable[[Facts], list[Finding] | str]

#: Every rule but `healthy`, which needs the answers of all others.
RULES: Final[Mapping[str, Rule]] = {
    "oom": oom.oom,
    "rank-died": deaths.rank_died,
    "hang": hangs.hang,
    "standing-still": still.standing_still,
    "earlier-failure": earlier.earlier_failure,
    "network-fallback": network.network_fallback,
    "communication-bound": bound.communication_bound,
    "pipeline-bubble": bubbles.pipeline_bubble,
    "pipeline-imbalance": bubbles.pipeline_imbalance,
    "straggler-rank": stragglers.straggler_rank,
    "slow-link": calls.slow_link,
    "small-messages": small_messages.small_messages,
    "no-overlap": overlap.no_overlap,
    "zero3-gather-stall": gathers.zero3_gather_stall,
    "data-bound": input_data.data_bound,
    "compute-bound": shares.compute_bound,
    "generation-bound": generation.generation_bound,
    "optimizer-bound": shares.optimizer_bound,
    "offload-bound": shares.offload_bound,
    "checkpoint-stall": checkpoints.checkpoint_stall,
    "evaluation-stall": evaluations.evaluation_stall,
    "unaccounted-time": unaccounted.unaccounted_time,
    "host-bound": host_bound.host_bound,
    "cpu-contention": contention.cpu_contention,
    "garbage-collection": garbage.garbage_collection,
    "host-sync": host_sync.host_sync,
    "memory-pressure": memory.memory_pressure,
    "memory-growth": memory.memory_growth,
    "allocator-thrash": memory.allocator_thrash,
    "overflow-streak": overflows.overflow_streak,
    "nan-loss": losses.nan_loss,
    "loss-diverged": divergence.loss_diverged,
    "step-spikes": spikes.step_spikes,
    "slowdown": throughput.slowdown,
    "gpu-throttled": throttled.gpu_throttled,
    "costly-setting": costly.costly_setting,
    "untrustworthy-timers": trust.untrustworthy_timers,
}

#: Rules about a step's time: where engines take turns, each has its own.
_OF_A_STEP: Final = (
    "communication-bound",
    "pipeline-bubble",
    "pipeline-imbalance",
    "straggler-rank",
    "small-messages",
    "no-overlap",
    "zero3-gather-stall",
    "data-bound",
    "compute-bound",
    "generation-bound",
    "optimizer-bound",
    "offload-bound",
    "evaluation-stall",
    "host-bound",
    "unaccounted-time",
    "step-spikes",
    "slowdown",
)

#: Findings that ended the run come before all that only slowed it.
ENDED: Final = ("oom", "rank-died", "hang")
#: So does what may have ended it, unless that is a mere note.
_MAY_HAVE: Final = "standing-still"
#: What will end it comes before what as severely slows it.
_WILL_END: Final = ("memory-growth",)
_PAST: Final = "earlier-failure"
#: What the run has left behind, and what nobody has measured, is no verdict on it.
_BESIDE: Final = (_PAST, "costly-setting")


def findings_of(run: Run) -> list[Finding]:
    """What is wrong: what ended the run first, then by severity and cost.

    The first one is the verdict.
    """
    return list(_judge(run)[0])


def abstentions_of(run: Run) -> list[Abstention]:
    """The rules that could not judge this run, and what they would need."""
    return list(_judge(run)[1])


_JUDGED: Final[WeakKeyDictionary[Run, tuple[list[Finding], list[Abstention]]]] = WeakKeyDictionary()


def _judge(run: Run) -> tuple[list[Finding], list[Abstention]]:
    """Findings and abstentions; a run does not change, so it is judged once."""
    if run not in _JUDGED:
        _JUDGED[run] = _judge_anew(run)
    return _JUDGED[run]


def _judge_anew(run: Run) -> tuple[list[Finding], list[Abstention]]:
    judged, *others = each = run.judged
    found: list[Finding] = []
    silent: list[Abstention] = []
    for name in RULES:
        _file(name, _asked(name, judged), found, silent)
    for facts in others:
        for name in _OF_A_STEP:
            answer = _asked(name, facts)
            found += answer if isinstance(answer, list) else []
    for facts in each:
        found = _told_once(found, facts)
    present = [one for one in found if one.rule not in _BESIDE]
    last = trust.healthy(each, present, [one.rule for one in silent])
    if isinstance(last, str) and not present:
        found.append(trust.no_verdict(judged, last))
    for facts in each:
        last = doubted(bounded(last, facts), facts)
    _file("healthy", last, found, silent)
    if run.counted:
        quoted = set(run.problems["text"])
        found = [unnumbered(one, quoted) for one in found]
    found = [_by_own_names(one, judged) for one in found]
    return _verdict_first(sorted(found, key=_cost)), silent


def _by_own_names(found: Finding, facts: Facts) -> Finding:
    """A finding whose advice names settings as users of what trains know them."""
    if facts.is_megatron_alone:
        forked = facts.may_be_megatron_deepspeed
        return for_megatron(found, first=facts.is_first_megatron, forked=forked)
    if facts.is_by_trainer:
        return for_trainer(found, alone=facts.is_torch_alone)
    if facts.is_torch_alone:
        return for_nemo(found) if facts.is_nemo else for_others(found)
    return found if facts.shows_deepspeed else for_unknown(found)


def _told_once(found: list[Finding], facts: Facts) -> list[Finding]:
    """Each cause once; of several engines, those of this one."""
    mine = [one for one in found if one.engine == facts.engine]
    others = [one for one in found if one.engine != facts.engine]
    return told_once(mine, facts) + others


def _asked(name: str, facts: Facts) -> list[Finding] | str:
    """What a rule says of a run, or of one of its engines, which its findings then name."""
    answer = doubted(bounded(RULES[name](facts), facts), facts)
    if isinstance(answer, str) and (told := between(name, facts)):
        answer = [modest(one, facts) for one in told]
    if isinstance(answer, str) or facts.engine is None or name not in _OF_A_STEP:
        return answer
    whose = f"Engine {facts.engine}: "
    return [replace(one, title=whose + one.title, engine=facts.engine) for one in answer]


def _file(
    name: str, answer: list[Finding] | str, found: list[Finding], silent: list[Abstention]
) -> None:
    if isinstance(answer, str):
        silent.append(Abstention(name, answer))
    else:
        found.extend(answer)


def _verdict_first(found: list[Finding]) -> list[Finding]:
    verdict = next(one for one in found if one.rule not in _BESIDE)
    return [verdict, *(one for one in found if one is not verdict)]


def _may_have_ended(finding: Finding) -> bool:
    return finding.rule == _MAY_HAVE and finding.severity is not Severity.INFO


def _cost(finding: Finding) -> tuple[bool, int, bool, bool, bool, float]:
    """Sorts the dearest first; of several notes, good news before details.

    Costs that read the same leave the order of `RULES`: a cause comes before what shows it.
    """
    return (
        not (finding.rule in ENDED or _may_have_ended(finding)),
        GRAVITY[finding.severity],
        finding.rule not in _WILL_END,
        finding.rule == _PAST,
        finding.rule != "healthy",
        -float(f"{finding.seconds_per_step or 0.0:.3g}"),
    )
