"""Classes of time that take too large a share of the step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from dsprof.analysis.whatif import quicker
from dsprof.events import Severity
from dsprof.findings.advice import change, fused_optimizer, more_micro_batches
from dsprof.findings.beside.generation import generation_bound
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import COLLECTING, NO_TIMERS, Facts, first_of, promise
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.host.host_bound import host_bound
from dsprof.findings.ranks.contention import cpu_contention
from dsprof.findings.ranks.garbage import garbage_collection
from dsprof.findings.resources.cpu_threads import more_threads
from dsprof.findings.seen.places import Place, look_at, place_of
from dsprof.findings.thresholds import (
    COMPUTE_BOUND,
    OFFLOAD_CRITICAL,
    OFFLOAD_SAVED,
    OFFLOAD_WARNING,
    OPTIMIZER_CRITICAL,
    OPTIMIZER_WARNING,
    grade,
)
from dsprof.units import format_seconds, format_share


class Limit(NamedTuple):
    """How large a share of the step some classes may take, and what part of it could be saved."""

    rule: str
    classes: tuple[str, ...]
    warning: float
    critical: float
    saved: float = 1.0


#: Where what ranks wait for each other's input is worth a sentence: as a share of their own.
WORTH: Final = 0.05


def optimizer_bound(facts: Facts) -> list[Finding] | str:
    """The optimizer itself, on the GPU, takes a large share of the step.

    Gain: twice the micro-batches halve it per sample; if every rank updates all parameters,
    sharding over n ranks leaves 1/n of it.
    """
    if facts.is_offloaded:
        return "the optimizer is offloaded: offload-bound judges it"
    shard = _shard_optimizer(facts)
    found = too_large(
        facts,
        Limit(
            "optimizer-bound",
            ("optimizer",),
            OPTIMIZER_WARNING,
            OPTIMIZER_CRITICAL,
            saved=1 - 1 / (facts.layout.data_parallel or 2) if shard else 0.5,
        ),
        "the optimizer's own work",
        "Updating the parameters costs the same however many samples a step has.",
        (
            more_micro_batches(facts, "fewer updates per sample (mind the larger batch)"),
            *shard,
            *fused_optimizer(facts),
        ),
    )
    if isinstance(found, str):
        return found
    brings_its_own = facts.on_cpu or "zenflow" in facts.flavours
    if facts.shows_deepspeed and facts.may_be_offloaded and not brings_its_own:
        found = [_or_offloaded(one) for one in found]
    if facts.run.step_may_gather:
        return [_or_gathering(one) for one in found]
    untimed = _untimed_step(facts)
    if not untimed:
        return found
    return [_of_step(one, untimed, _beside(facts), _behind_update(facts, untimed)) for one in found]


def _or_offloaded(found: Finding) -> Finding:
    """The finding if it is not known where the optimizer runs, and it takes most of a step."""
    if 2 * (found.share or 0.0) < 1:  # on a GPU it hardly takes more than all else together
        return found
    return replace(
        found,
        summary=f"{found.summary} Nothing says whether it is offloaded: on a CPU an update takes "
        "several times as long.",
    )


def _or_gathering(found: Finding) -> Finding:
    """The finding if it is not known whether parameters are gathered in that time, too."""
    return replace(
        found,
        title=f"{format_share(found.share or 0.0)} of a step is the optimizer's step, which may "
        "hold ZeRO's communication",
        summary=f"{found.summary} The ZeRO stage is not known: with ZeRO on, the step would hold "
        "the gathering of the updated parameters as well, and nothing times that separately, "
        "hence medium confidence.",
        advice=found.advice[:1],  # it halves the steps, whatever they consist of
        gain=promise(0.5 * (found.seconds_per_step or 0.0)),
        confidence="medium",
    )


def _untimed_step(facts: Facts) -> float:
    """Seconds of step() outside of its inner timers, if they are most of the class; else 0."""
    if facts.breakdown is None:
        return 0.0
    rows = facts.phases_of("optimizer")
    outer = rows[(rows.index == "step") & (rows["shown"] < rows["held"])]
    seconds = float(outer["seconds"].sum())
    return seconds if 2 * seconds > float(rows["seconds"].sum()) else 0.0


def _behind_update(facts: Facts, untimed: float) -> Place | None:
    """The place behind `optimizer_step` if most of the class lies there."""
    place = place_of(facts, inside="step")
    if place is None or (place.before, place.after) != ("optimizer_step", ""):
        return None
    whole = float(facts.phases_of("optimizer")["seconds"].sum())
    return place if 2 * place.share * untimed > whole else None


def _beside(facts: Facts) -> str:
    """Words for what is timed inside step() and belongs to another class."""
    inside = facts.run.phases["parent"].eq("step").to_numpy(bool, na_value=False)
    named = facts.run.phases["name"][inside].isin(facts.phases_of("communication").index)
    return " apart from the communication timed in it" if named.any() else ""


def _of_step(found: Finding, untimed: float, beside: str, place: Place | None) -> Finding:
    """The finding if most of it is not shown by a timer to be the update of parameters."""
    does = (
        f"{place.much} of that {place.words}, as the learning rate scheduler and DeepSpeed's own "
        "reports do"
        if place
        else "as the search for overflows, the gradient norm, the all-reduces of both and the "
        "learning rate scheduler do"
    )
    return replace(
        found,
        title=f"{format_share(found.share or 0.0)} of a step is step(){beside}, most of it "
        + (place.words if place else "in no inner timer"),
        summary=f"{found.summary} {format_seconds(untimed)} lie outside the timers inside step(), "
        f"{does}. Medium confidence: nothing times them separately.",
        evidence=(*found.evidence, *(place.proof if place else ())),
        # the change halves the calls of step(), whatever they do
        advice=(*((look_at(place.words),) if place else ()), *found.advice[:1]),
        gain=promise(0.5 * (found.seconds_per_step or 0.0)),
        confidence="medium",
    )


_OFFLOAD: Final = "zero_optimization.offload_optimizer"
_STATES: Final = "engine.offload_states(...)"

#: Phases that move models, because something else needs the memory, to what could be changed.
_MOVES: Final = {
    ("offload_states", "reload_states"): (
        Advice(f"{_STATES} and reload_states()", "", "less often", "each moves all states"),
        Advice(
            f"{_STATES}, include=",
            "",
            "fewer states",
            "what nobody else needs the memory of can stay",
        ),
    ),
    ("sleep_time", "wake_up_time"): (  # slime
        Advice(
            "rollouts",
            "on the GPUs of training",
            "on others",
            "then nothing has to move (takes more GPUs)",
        ),
        Advice(
            "--rollout-batch-size",
            "",
            "larger",
            "each turn moves the model once, however many answers it has (mind the larger batch)",
        ),
    ),
}


def offload_bound(facts: Facts) -> list[Finding] | str:
    """Optimizer states or parameters outside the GPU take a large share of the step.

    Gain: at best all of it, if the states fit on the GPUs after all. The update then takes GPU time
    that this source does not show; GPU memory is at least five times as fast. States that a script
    moves itself it may have to.
    """
    device = facts.run.config.get("offload_optimizer")
    classes = ("offload", "optimizer") if facts.is_offloaded else ("offload",)
    if facts.breakdown is not None and facts.seconds_of("offload") is None and not device:
        return "no offload timer, and the configuration is not known to offload"
    where = {"cpu": "to the CPU", "nvme": "to NVMe"}.get(str(device), "off the GPU")
    by_script = _moved_by_script(facts, classes)
    found = too_large(
        facts,
        Limit("offload-bound", classes, OFFLOAD_WARNING, OFFLOAD_CRITICAL),
        f"optimizer work offloaded {where}" if device else "moving data off and onto the GPU",
        "Offloading trades speed for memory."
        + (" The whole update runs there and is counted." if device else ""),
        by_script
        or (
            *(more_threads(facts) if device else ()),
            *(_off_the_disk(facts) if device == "nvme" else _onto_the_gpu(facts, device)),
        ),
    )
    if isinstance(found, str):
        return found
    least = 0.0 if by_script else OFFLOAD_SAVED
    lost = [one.seconds_per_step or 0.0 for one in found]
    return [replace(one, gain=(least * s, s)) for one, s in zip(found, lost, strict=True)]


def _onto_the_gpu(facts: Facts, device: object) -> tuple[Advice, ...]:
    return (
        Advice(
            f"{_OFFLOAD}.device",
            str(device or ""),
            "none",
            "if the states fit after all (more GPUs, ZeRO-3, smaller micro-batch)",
        ),
        *_ratio(facts, f"{_OFFLOAD}.ratio"),
        *change(facts, f"{_OFFLOAD}.pin_memory", "true", "pinned memory copies faster"),
    )


def _off_the_disk(facts: Facts) -> tuple[Advice, ...]:
    """Two ranks of a CPU that updated 6 million parameters took 126 ms with NVMe, 92 ms where both
    ways were pipelined, and 9 ms with the CPU's memory (docs/diagnosis.md)."""
    room = "needs a larger buffer_count: 4 a part, of three parts"
    return (
        Advice(
            f"{_OFFLOAD}.device",
            "nvme",
            "cpu, or none",
            "if the states fit into the host's memory, or the GPUs', after all",
        ),
        *change(
            facts,
            f"{_OFFLOAD}.pipeline_read",
            "true",
            f"the next part is read while one is updated; {room}",
        ),
        *change(
            facts,
            f"{_OFFLOAD}.pipeline_write",
            "true",
            "the part before is written while one is updated",
        ),
    )


def _moved_by_script(facts: Facts, classes: Collection[str]) -> tuple[Advice, ...]:
    """What to change if a script's own calls of an engine, or the turns of a trainer whose GPUs are
    its rollouts' too, move most of what is moved."""
    if facts.breakdown is None:
        return ()
    seconds = facts.phases_of(*classes)["seconds"]
    for names, advice in _MOVES.items():
        if 2 * float(seconds[seconds.index.isin(names)].sum()) > float(seconds.sum()):
            return advice
    return ()


def compute_bound(facts: Facts) -> list[Finding] | str:
    """Nearly all of the step is computation, of which nothing could be saved."""
    why_not = facts.hidden_communication or facts.doubts.get(COLLECTING) or facts.too_few
    if why_not is not None:
        return why_not
    seconds = facts.seconds_of("compute")
    if seconds is None:
        return NO_TIMERS if facts.breakdown is None else "no timer of class compute"
    for rule, instead in _NO_COMPUTING.items():
        found = rule(facts)
        if isinstance(found, list) and (found and (facts.on_cpu or rule not in _OF_HOST)):
            return instead
    share = facts.share(seconds) or 0.0
    if share < COMPUTE_BOUND:
        return []
    exchanged = facts.run.exchanged
    return [
        Finding(
            rule="compute-bound",
            severity=Severity.INFO,
            title=f"{format_share(share)} of a step is computation"
            + (f", with {exchanged} in it" if exchanged else ""),
            summary=f"Forward and backward take {format_seconds(seconds)} per step "
            f"({facts.windows}); everything else together would gain little. "
            + _EXCHANGED * bool(exchanged)
            + "Faster from here on means better kernels, lower precision or less recomputation.",
            phase=first_of(facts.phases_of("compute")),
            evidence=phase_evidence(facts.phases_of("compute")),
            confidence="medium" if exchanged else "high",
        )
    ]


_EXCHANGED: Final = (
    "Medium confidence: activations are exchanged inside them, too, which no timer shows. "
)
#: Those about the host, of which a GPU's own time has nothing.
_OF_HOST: Final = (cpu_contention, garbage_collection)
#: Rules whose findings say that what looks like computing is not.
_NO_COMPUTING: Final = {
    host_bound: "in phases that compute, the GPU waits for the host",
    cpu_contention: "what looks like computing is partly waiting for a CPU",
    garbage_collection: "what looks like computing is partly collecting garbage",
    generation_bound: "most of its computation is generating",
}


def too_large(
    facts: Facts,
    limit: Limit,
    what: str,
    why: str,
    advice: tuple[Advice, ...],
    *,
    beside: float = 0.0,
    later: str = "",
) -> list[Finding] | str:
    """A finding if the classes together exceed a threshold, with what ranks wait `beside` that for
    one that is in them longer; `beside` is negative where a part of it costs nothing.
    """
    own = facts.seconds_of(*limit.classes)
    if own is None:
        return NO_TIMERS if facts.breakdown is None else f"no timer of class {limit.classes[0]}"
    seconds = own + beside
    table = facts.phases_of(*limit.classes)
    share = facts.share(seconds) or 0.0
    severity = grade(share, limit.warning, limit.critical)
    if severity is None:
        return []
    return [
        Finding(
            rule=limit.rule,
            severity=severity,
            title=f"{format_share(share)} of a step is {what}",
            summary=f"{format_seconds(own)} per step ({facts.windows}). {why}"
            + (later.format(format_seconds(abs(beside))) if abs(beside) > WORTH * own else ""),
            share=share,
            seconds_per_step=seconds,
            phase=first_of(table),
            evidence=phase_evidence(table),
            advice=advice,
            gain=promise(_saved(facts, limit, seconds)),
        )
    ]


def _saved(facts: Facts, limit: Limit, seconds: float) -> float:
    """What could be saved of a step; of ranks that can be compared, no more than the longest one
    would work less.
    """
    saved = limit.saved * seconds
    if facts.replay is None:
        return saved
    return min(saved, *(quicker(facts.replay[0], name, limit.saved) for name in limit.classes))


def _ratio(facts: Facts, path: str) -> tuple[Advice, ...]:
    """Only with ZeRO-3 can a part of the update stay on the GPU."""
    if facts.layout.zero_stage != 3:
        return ()
    return change(facts, path, "0.8", "the rest of the update stays on the GPU")


def _shard_optimizer(facts: Facts) -> tuple[Advice, ...]:
    if facts.layout.zero_stage != 0 or facts.layout.data_parallel == 1:
        return ()
    return (
        Advice("zero_optimization.stage", "0", "1", "each rank then updates only its own shard"),
    )
