"""How many backwards ranks make for one update, as recordings show: more of them are more work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.ranks import Straggler
from dsprof.events import Class
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence
from dsprof.findings.thresholds import WAITING_EXPLAINS
from dsprof.units import format_count

_NONE: Final = pd.MultiIndex.from_arrays([[], []], names=["step", "rank"])


@dataclass(frozen=True, slots=True)
class Cause:
    """Why ranks are late."""

    said: str
    advice: tuple[Advice, ...]
    title: str = ""  # what the title adds to who is late
    proof: tuple[Evidence, ...] = ()


def more_backwards(facts: Facts, late: Straggler) -> Cause | None:
    """Late ranks that make more backwards for one update, if these take most of the delay."""
    mean = _backwards(facts).groupby("rank").mean()
    own = mean.index.isin(late.group)
    if own.sum() < len(late.group) or own.all():
        return None
    mine, others = float(mean[own].median()), float(mean[~own].median())
    if (1 - others / mine) * _computed(facts, late) < WAITING_EXPLAINS * late.delay:
        return None
    makes = "makes" if len(late.group) == 1 else "make"
    beside = ", the others"
    if len(mean) == 2:
        beside = f", rank {int(mean.index[~own][0])}"
    return Cause(
        f"For one update {late.who} {makes} {format_count(mine)} backwards{beside} "
        f"{format_count(others)}.",
        (
            Advice(
                f"micro-batches of {late.who}",
                format_count(mine),
                f"as many as the others, {format_count(others)}",
                "each rank waits for the one that has most of them",
            ),
        ),
    )


def more_in_them(facts: Facts, rows: npt.NDArray[np.intp]) -> str:
    """Whether most of the steps at `rows` have more backwards than the others, and how many."""
    steps = facts.series["step"]
    told = steps.map(_backwards(facts).groupby("step").mean().to_dict()).astype(float).to_numpy()
    out = np.isin(np.arange(len(told)), rows)
    if np.isnan(told[out]).all() or np.isnan(told[~out]).all():
        return ""
    here, usual = float(np.nanmedian(told[out])), float(np.nanmedian(told[~out]))
    if here < usual + 1:
        return ""
    return (
        f" In them {here:,.0f} backwards come before the update, in the others {usual:,.0f}: more "
        "micro-batches, or an update that was skipped."
    )


def _backwards(facts: Facts) -> pd.Series[float]:
    """By step and rank; none of a log."""
    if not facts.run.is_recording:
        return pd.Series(0.0, _NONE)
    phases = facts.series_phases
    phases = phases[phases["name"] == "backward"]
    counts: pd.Series[float] = phases.groupby(["step", "rank"])["count"].sum().astype(float)
    return counts[counts > 0]


def _computed(facts: Facts, late: Straggler) -> float:
    """Seconds that a late rank computes in a step."""
    phases = facts.series_phases
    own = phases[phases["rank"].isin(late.group) & (phases["class"] == Class.COMPUTE)]
    return float(own.groupby(["step", "rank"])["self_seconds"].sum().mean())
