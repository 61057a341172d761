"""The last launch of a job against the one before it, where both are laid out alike."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from dsprof.analysis.breakdown import main_steps
from dsprof.events import CLASSES, Class, Kind, Severity
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.over_time.growth import grown
from dsprof.findings.proofs import step_proof
from dsprof.findings.thresholds import EVIDENCE_STEPS, SLOWDOWN_WARNING
from dsprof.units import format_seconds, format_share

#: Settings that change how long a step takes, by their canonical names.
_LAYOUT = (
    "world_size", "nodes", "zero_stage", "micro_batch_size", "gradient_accumulation_steps",
    "train_batch_size", "data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size",
    "virtual_pipeline_parallel_size", "parameters", "parameters_per_gpu", "seq_length", "dtype",
    "offload_optimizer", "offload_param",
)  # fmt: skip


def slower_launch(facts: Facts) -> list[Finding]:
    """The last launch takes longer a step than the one before it, by no setting that is told.

    A warning without a price: what else differs is not in the source.
    """
    rows = facts.own_steps
    launches = rows["segment"].unique()
    if len(launches) < 2:
        return []
    before, last = (main_steps(rows[rows["segment"] == one]) for one in launches[-2:])
    if min(len(before), len(last)) < EVIDENCE_STEPS or not _alike(facts, before, last):
        return []
    was, now = float(before["seconds"].median()), float(last["seconds"].median())
    apart = before["seconds"].quantile(0.75) < last["seconds"].quantile(0.25)
    if not apart or now < (1 + SLOWDOWN_WARNING) * was:
        return []
    number, of = _number(facts, last), _number(facts, before)
    return [
        Finding(
            rule="slowdown",
            severity=Severity.WARNING,
            title=f"A step of launch {number} takes {format_share(now / was - 1)} longer than one "
            f"of launch {of}, which had the same layout",
            summary=f"{format_seconds(was)} per step became {format_seconds(now)} (medians of "
            f"{len(before):,} and {len(last):,} steps).{_grown(facts, before, last)} Medium "
            "confidence: batch and layout are the same, but what else differs is not in this "
            "source.",
            steps=(int(last["step"].iloc[0]), int(last["step"].iloc[-1])),
            evidence=(step_proof(facts, _median(before)), step_proof(facts, _median(last))),
            advice=(
                Advice(
                    f"hosts, data and code of launch {number}",
                    "",
                    f"compare with those of launch {of}",
                    "a slower node, network or storage, or longer texts, take longer at the same "
                    "settings",
                ),
            ),
            confidence="medium",
        )
    ]


def _alike(facts: Facts, before: pd.DataFrame, last: pd.DataFrame) -> bool:
    """Both launches time their steps in one way, are told the same settings and the same batch.

    Something must be told of both: launches of which nothing is known may be different jobs.
    """
    if before["seconds_from"].iloc[0] != last["seconds_from"].iloc[0]:
        return False
    batches = [_samples(steps) for steps in (before, last)]
    told = [_told(facts, int(steps["segment"].iloc[0])) for steps in (before, last)]
    known = all(batches) or (told[0] and told[1])
    same = math.isclose(batches[0], batches[1], rel_tol=0.01) if all(batches) else not any(batches)
    return bool(known) and same and told[0] == told[1]


def _told(facts: Facts, segment: int) -> dict[str, object]:
    """Settings of the layout that one launch is told."""
    events = facts.run.told
    rows = events[(events["kind"] == Kind.CONFIG) & (events["segment"] == segment)]
    rows = rows[rows["name"].isin(_LAYOUT)].drop_duplicates("name", keep="last")
    values = rows["value"].astype("object").where(rows["value"].notna(), rows["text"])
    return dict(zip(rows["name"].astype("str"), values, strict=True))


def _samples(steps: pd.DataFrame) -> float:
    """Samples of a step: rate times duration; 0 if unknown."""
    batch = (steps["samples_per_second"] * steps["seconds"]).median()
    return float(batch) if np.isfinite(batch) else 0.0


def _grown(facts: Facts, before: pd.DataFrame, last: pd.DataFrame) -> str:
    """What of a step grew, where both launches are told of the same classes: one that only one of
    them times has not grown. Without saves there is no time of them.
    """
    told = [{name for name in CLASSES if steps[name].notna().any()} for steps in (before, last)]
    return grown(facts, before, last).said if told[0] ^ told[1] <= {Class.CHECKPOINT} else ""


def _median(steps: pd.DataFrame) -> pd.Series:
    """The step that takes the median time, or next to it."""
    return steps.sort_values("seconds").iloc[len(steps) // 2]


def _number(facts: Facts, steps: pd.DataFrame) -> int:
    """Which launch of the source these steps are of, counted from 1."""
    launches = sorted(facts.run.told["segment"].unique())
    return launches.index(steps["segment"].iloc[0]) + 1
