"""Turns of reinforcement learning that mostly generate what the model then trains on."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Class, Severity
from dsprof.findings.advice import shown
from dsprof.findings.evidence import phase_evidence
from dsprof.findings.facts import NO_TIMERS, Facts, first_of, once
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.thresholds import GENERATION_WARNING
from dsprof.recording.table import EVALUATION
from dsprof.run.table import where
from dsprof.units import format_seconds, format_share

#: How the dialects and recordings call it; the second is what of it is waited for, where the next
#: turn's answers are generated while this one trains.
GENERATE: Final = ("generate", "wait_for_generation")
#: What a recording adds to the names of calls inside it.
_INSIDE: Final = "_in_generate"
#: Flavours of loops that leave it to an engine of its own, such as vLLM or SGLang.
_OF_ENGINES: Final = ("verl", "verl-ahead", "openrlhf", "slime", "skyrl")

_LARGER: Final = Advice(
    "sequences that are generated at a time",
    "",
    "more, if memory allows",
    "each token reads all weights once, for however many sequences",
)
_LONGEST: Final = Advice(
    "longest answers",
    "",
    "look how many reach the limit, and whether they need to",
    "a turn waits for its longest answer, while ever fewer sequences share the work",
)
#: verl's name for the part of the answers that are as long as any may be.
_CUT: Final = "response_length/clip_ratio"
_AHEAD: Final = Advice(
    "generation",
    "in turns with training",
    "beside it, one turn ahead",
    "only what takes longer than training is then waited for; answers are of weights a turn old",
)
_GPUS: Final = Advice(
    "GPUs that generate",
    "",
    "more, taken from those that train",
    "training waits for the answers of a turn",
)
_ENGINE: Final = Advice(
    "generate()",
    "transformers' own",
    "an inference engine, such as vLLM (use_vllm in TRL)",
    "in Python it makes one token after the other, of one batch that waits for its longest answer",
)
_GATHERED: Final = Advice(
    "ds3_gather_for_generation (TRL)",
    "",
    "true, if memory allows",
    "ZeRO-3 gathers all parameters for each token, unless they stay gathered meanwhile",
)


@once
def generation_bound(facts: Facts) -> list[Finding] | str:
    """Most of a turn is generating. What that could be at best is not known: it gains nothing that
    could be promised.
    """
    if facts.breakdown is None:
        return NO_TIMERS
    rows = _rows(facts)
    if rows.empty:
        return "no timer of generating: the job only trains"
    if _is_evaluation(facts):
        return "what is generated is evaluated, and not trained on"
    seconds = float(rows["seconds"].sum())
    share = facts.share(seconds) or 0.0
    if share < GENERATION_WARNING:
        return []
    waits = str(rows.index[0]) == GENERATE[1]
    what = "waiting for answers that are being generated" if waits else "generating"
    return [
        Finding(
            rule="generation-bound",
            severity=Severity.WARNING,
            title=f"{format_share(share)} of a step is {what}",
            summary=f"{format_seconds(seconds)} of {format_seconds(facts.average or 0.0)} per step "
            f"({facts.windows}). All that is done with the answers, training included, takes the "
            f"rest.{_calls(facts)} What a better generator would save is not known.",
            share=share,
            seconds_per_step=seconds,
            phase=first_of(rows),
            evidence=phase_evidence(rows),
            advice=_advice(facts, waits=waits),
        )
    ]


def unexplained_generation(facts: Facts) -> float:
    """Seconds per step of class `other` that `generation-bound` tells."""
    if isinstance(found := generation_bound(facts), str) or not found:
        return 0.0
    rows = _rows(facts)
    return float(rows["seconds"][rows["class"] == Class.OTHER].sum())


def generates(facts: Facts) -> bool:
    """Whether some time of a step is known to be generating."""
    return facts.breakdown is not None and not _rows(facts).empty


def _rows(facts: Facts) -> pd.DataFrame:
    assert facts.breakdown is not None
    table = facts.breakdown.phases
    return where(table, table.index.isin(GENERATE))


def _is_evaluation(facts: Facts) -> bool:
    """Whether most of it is in steps that hold a recorded evaluation."""
    phases = facts.phases
    evaluated = phases.loc[phases["name"] == EVALUATION, "step"]
    generated = phases[phases["name"].isin(GENERATE)]
    inside = generated["step"].isin(evaluated)
    seconds = generated["self_seconds"]
    return bool(2 * seconds[inside].sum() > seconds.sum())


def _calls(facts: Facts) -> str:
    """What ranks communicate while they generate, beside it."""
    seconds = _communicated(facts)
    return f" Beside it, {format_seconds(seconds)} of calls between ranks." if seconds else ""


def _communicated(facts: Facts) -> float:
    table = facts.phases_of("communication")
    return float(table["seconds"][table.index.str.endswith(_INSIDE)].sum())


def _advice(facts: Facts, *, waits: bool) -> tuple[Advice, ...]:
    if waits:
        return (_GPUS, _longest(facts))
    if not facts.flavours.isdisjoint(_OF_ENGINES):
        return (_LARGER, _AHEAD, _longest(facts))
    if facts.run.is_recording:
        gathered = (_GATHERED,) if facts.layout.zero_stage == 3 and _communicated(facts) else ()
        return (*gathered, _ENGINE, _LARGER)
    if "hybrid" in facts.flavours:
        return (_LARGER, _longest(facts))
    key = "hybrid_engine.enabled"
    kernels = Advice(key, shown(facts, key), "true", "generates with kernels made for inference")
    return (kernels, _LARGER)


def _longest(facts: Facts) -> Advice:
    """With the part of the answers that end at the limit, where verl's records tell it."""
    told = facts.run.told
    cut = float(told.loc[told["name"] == _CUT, "value"].mean())
    if not 0 <= cut <= 1:
        return _LONGEST
    share = format_share(cut) if cut else "none"
    return _LONGEST._replace(to=f"shorter, if they need not be so long: {share} end at the limit")
