"""GPUs that slow themselves down."""

from __future__ import annotations

from typing import Final

from dsprof.analysis.gpus import Throttling, throttled
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.thresholds import THROTTLED_CRITICAL, THROTTLED_WARNING, grade
from dsprof.units import format_share


def gpu_throttled(facts: Facts) -> list[Finding] | str:
    """A GPU lowers its clock. Only samples of the GPU itself show this.

    No gain: samples do not tell how much slower it computes.
    """
    samples = facts.run.gpu
    if samples.empty:
        return "no samples of the GPUs: a log holds none, a recording does"
    found = throttled(samples)
    if found is None:
        return "the GPU samples of this source hold no throttle reasons"
    severity = grade(found.share, THROTTLED_WARNING, THROTTLED_CRITICAL)
    if severity is None:
        return []
    who = f"The GPU of rank {found.rank}" if found.rank is not None else f"GPU {found.device}"
    return [
        Finding(
            rule="gpu-throttled",
            severity=severity,
            title=f"{who} runs below its clock in {format_share(found.share)} of its samples: "
            f"{found.why}",
            summary=f"{found.count:,} of {found.of:,} samples of it say so{_hottest(found)}."
            + _beside(found),
            ranks=() if found.rank is None else (found.rank,),
            evidence=(row_evidence(found.row, f"{found.row['name']}: {found.why}"),),
            advice=(
                Advice(
                    f"the node of that GPU{f' ({found.host})' if found.host else ''}",
                    "",
                    "check cooling, power supply and power limit",
                    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER shows the same on the node",
                ),
            ),
        )
    ]


_OF_SEVERAL: Final = (
    " Of {:,} sampled GPUs it is held back most; the others wait for it at each collective."
)


def _beside(found: Throttling) -> str:
    """How it compares with the other GPUs."""
    if found.devices == 1:
        return ""
    if found.alike == 1:
        return _OF_SEVERAL.format(found.devices)
    all_of = "All" if found.alike == found.devices else f"{found.alike:,} of"
    return f" {all_of} {found.devices:,} sampled GPUs are held back in as large a share of theirs."


def _hottest(found: Throttling) -> str:
    return f", at up to {found.celsius:.0f} °C" if found.celsius is not None else ""
