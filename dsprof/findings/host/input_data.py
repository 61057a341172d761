"""Steps that wait for their input, or for the input of another rank or stage."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dsprof.analysis.looks import Code
from dsprof.analysis.whatif import data_ready
from dsprof.findings.communication.uneven import input_seconds
from dsprof.findings.evidence import largest, row_evidence, whole
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.host.shares import WORTH, Limit, too_large
from dsprof.findings.over_time.spikes import without_spikes
from dsprof.findings.ranks.late_replica import late_replica
from dsprof.findings.ranks.stages import cost_of_inputs, hidden_input, late_input
from dsprof.findings.seen import code_seen
from dsprof.findings.seen.anew import loading, making_batches
from dsprof.findings.thresholds import (
    DATA_CRITICAL,
    DATA_WARNING,
    EVIDENCE_STEPS,
    WAITING_EXPLAINS,
)
from dsprof.run.steps.durations import called
from dsprof.run.table import STEP, positions
from dsprof.units import format_seconds, format_share

_PINNED: Final = Advice("DataLoader(pin_memory=...)", "", "True", "the copy to the GPU can overlap")


def data_bound(facts: Facts) -> list[Finding] | str:
    """The step waits for its input, or for a rank that waits for its own, in turns. Gain: at best
    all of it, if loading overlaps with compute.
    """
    stage = late_input(facts)
    beside = _beside_input(facts, stage)
    found = too_large(
        facts,
        Limit("data-bound", ("data",), DATA_WARNING, DATA_CRITICAL),
        "waiting for input data" + ("" if stage is None else f" of stage {stage[0]}"),
        f"The {'ranks' if facts.on_cpu else 'GPUs'} idle until the data loader hands over a batch.",
        (
            loading(facts),
            *(() if facts.on_cpu or facts.is_megatron_alone else (_PINNED,)),  # Megatron's are
            Advice(
                "storage of the data set",
                "",
                "local disk or packed files",
                "small remote reads are slow",
            ),
        ),
        beside=beside,
        later=_later(facts, beside, stage),
    )
    if isinstance(found, str) or not found:
        return found
    if stage is None and not beside and _of_the_first_alone(facts):
        return "only the first step waits for its input that long: it starts the loader"
    when = _until(facts) or _when_data_is_late(facts)
    title, proof = found[0].title + when, _late_batch(facts)
    evidence = (*found[0].evidence[:1], *proof, *found[0].evidence[1:])
    found = [replace(one, title=title, evidence=evidence) for one in found]
    if code := making_batches(facts):
        found = [_of_code(one, code) for one in found]
    if facts.replay is None:
        return found
    gain = data_ready(facts.replay[0])
    return [replace(one, gain=(gain.low, gain.high), what_if=_READY) for one in found]


def _of_code(found: Finding, code: Code) -> Finding:
    return replace(
        found,
        title=found.title + code_seen.mostly(code),
        summary=f"{found.summary} {code_seen.said(code)}",
        evidence=found.evidence + code_seen.proof(code),
        advice=found.advice + code_seen.change(code, "quicker"),
    )


def _of_the_first_alone(facts: Facts) -> bool:
    """Whether the few steps that are timed begin with the first of a launch, and those behind it
    hardly wait."""
    later = facts.steps.iloc[1:]
    if later.empty or not facts.steps["warm_up"].iloc[0]:
        return False
    return bool(later["data"].sum() < DATA_WARNING * later["seconds"].sum())


def _late_batch(facts: Facts) -> tuple[Evidence, ...]:
    """The longest wait, where the last line of such waits has hardly any of their mean."""
    mean = facts.phases_of("data").iloc[0]
    name = str(mean.name)
    if mean["shown"] > _SHOWS * mean["seconds"]:
        return ()
    rows = facts.run.phases
    rows = rows[rows["name"].eq(name).to_numpy(dtype=bool)]
    rows = rows[positions(facts.steps, rows, *STEP) >= 0]
    if rows.empty:
        return ()
    row = largest(rows, "self_seconds")
    said = f"step {whole(row['step']):,}, {name}: {format_seconds(row['self_seconds'])}"
    return (row_evidence(row, f"{said}, the longest"),)


_LATER: Final = " For {} more a step, ranks wait in collectives for the one whose batch comes last."
_STAGES: Final = " For {{}} more a step, the other stages wait for the input of stage {}."
_STAGES_ALIKE: Final = " For {} more a step, stages wait for the input of others."
_HIDDEN: Final = " {} of it cost nothing: a slower stage works longer anyway."
_READY: Final = "batches were always ready"


def _later(facts: Facts, beside: float, stage: tuple[int, float] | None) -> str:
    """What is to say of such seconds, which are told with it."""
    if beside < 0:
        return _HIDDEN
    if stage is not None:
        return _STAGES.format(stage[0])
    return _STAGES_ALIKE if facts.is_pipeline else _LATER


def _beside_input(facts: Facts, stage: tuple[int, float] | None) -> float:
    """What ranks wait for the input of others, beyond the mean rank's wait for its own; less than 0
    where that costs a pipeline nothing.
    """
    own = facts.seconds_of("data") or 0.0
    if stage is not None:
        return max(0.0, stage[1] - own)
    # what is late on a single rank of a stage is that rank's
    of_stages = None if late_replica(facts) else cost_of_inputs(facts)
    if of_stages is not None:
        return of_stages - own
    return input_seconds(facts) - hidden_input(facts)


#: Part of the mean wait from which on a line is a proof of it.
_SHOWS: Final = 0.5

#: Part of what a step waits up to some step, below which it hardly does any later.
_HARDLY: Final = 0.05


def _until(facts: Facts) -> str:
    """Up to which step recorded ones wait, if a run of them does and those behind it do not: its
    first epoch may fill a cache."""
    steps = facts.steps
    data = steps["data"].fillna(0.0).to_numpy(dtype=float)
    total = float(data.sum())
    late = data > data.mean()
    if not facts.run.is_recording or not late.any() or _beside_worth(facts, total):
        return ""
    last = int(late.nonzero()[0][-1])
    before, later = data[: last + 1], data[last + 1 :]
    inside = float(before.sum())
    if len(later) < EVIDENCE_STEPS or 2 * late.sum() < len(before):
        return ""
    if later.mean() > _HARDLY * before.mean() or 2 * inside < total:
        return ""
    share, step = format_share(inside / total), int(steps["step"].iloc[last])
    return f", {share} of that up to step {step:,} and hardly any later"


def _beside_worth(facts: Facts, own: float) -> bool:
    """Whether waiting for the input of others, of which steps is not known, is worth a word."""
    return input_seconds(facts) * len(facts.steps) > WORTH * own


def _when_data_is_late(facts: Facts) -> str:
    """In how many steps most of the waiting lies, if these stick out: the others have their input
    in time.
    """
    others = without_spikes(facts)
    few, many = len(others.stuck_out), len(facts.steps)
    all_of_it = (facts.seconds_of("data") or 0.0) * many
    inside = all_of_it - (others.seconds_of("data") or 0.0) * (many - few)
    if not few or _beside_worth(facts, all_of_it) or inside < WAITING_EXPLAINS * all_of_it:
        return ""
    return (
        f", {format_share(inside / all_of_it)} of that in {few:,} of {many:,} {called(facts.steps)}"
    )
