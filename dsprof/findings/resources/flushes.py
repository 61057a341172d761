"""Steps in which PyTorch's allocator flushed its cache: how much longer they take, and the cure."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.findings.advice import FRAGMENTS, smaller_micro_batch
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice
from dsprof.findings.thresholds import SLOWDOWN_WARNING, SPIKES_ABOVE_CHANCE, WAITING_EXPLAINS
from dsprof.run.table import STEP, positions

Rows = npt.NDArray[np.bool_]


class Price(NamedTuple):
    """What steps take that report a flush and those that report none, in seconds."""

    flushing: float
    usual: float
    share: float  # of the timed steps that report one

    @property
    def is_none(self) -> bool:
        return self.flushing < (1 + SLOWDOWN_WARNING) * self.usual

    @property
    def per_step(self) -> float:
        return (self.flushing - self.usual) * self.share


def flush_lines(facts: Facts) -> pd.DataFrame:
    """Lines that report one flush or more."""
    rows = facts.run.memory
    return rows[(rows["name"] == "cache_flushes") & rows["count"].gt(0)]


def price_of_flushes(facts: Facts) -> Price | None:
    """None where steps with and without a flush are not both timed, or are few and differ.

    They differ if more of the former exceed the median of the latter than chance lets them. That
    flushes cost nothing only single steps show: in the mean of several one hardly counts.
    """
    steps = facts.series
    out, seconds = flushing_rows(facts, steps), steps["seconds"].to_numpy(dtype=float)
    many = int(out.sum())
    if not many or out.all():
        return None
    usual, flushing = float(np.median(seconds[~out])), float(np.median(seconds[out]))
    price = Price(flushing, usual, many / len(steps))
    if price.is_none:
        return price if _each_is_timed(facts, steps, many) else None
    longer = int((seconds[out] > usual).sum())
    above = longer - many / 2 >= SPIKES_ABOVE_CHANCE * math.sqrt(many) / 2
    return price if above else None


def _each_is_timed(facts: Facts, steps: pd.DataFrame, many: int) -> bool:
    """Whether rows are single steps and `many` of them most of those that report a flush."""
    single = steps["step"].diff().median() == 1
    return bool(single) and many > flush_lines(facts)["step"].nunique() / 2


def flushing_rows(facts: Facts, steps: pd.DataFrame) -> Rows:
    """Which of `steps` report a flush."""
    place = positions(steps, flush_lines(facts), *STEP)
    return np.isin(np.arange(len(steps)), place)


def flushed_in(facts: Facts, steps: pd.DataFrame, longer: Rows) -> str:
    """That the allocator flushed its cache in the `longer` ones of `steps` and hardly elsewhere;
    "" if it did not."""
    out = flushing_rows(facts, steps)
    inside, beside = out[longer], out[~longer]
    if not len(inside) or inside.mean() < WAITING_EXPLAINS:
        return ""
    if len(beside) and beside.mean() >= WAITING_EXPLAINS * inside.mean():
        return ""
    return (
        f" In {inside.sum():,} of these {len(inside):,} the allocator flushed its cache, in "
        f"{beside.sum():,} of the other {len(beside):,}: GPU memory is full."
    )


def less_memory(facts: Facts) -> tuple[Advice, ...]:
    """What leaves the allocator room."""
    return (
        *smaller_micro_batch(facts),
        FRAGMENTS,
        Advice(
            f"{'get_accelerator()' if facts.shows_deepspeed else 'torch.cuda'}.empty_cache()",
            "",
            "on all ranks at the same step",
            "flushes then happen together instead of one rank after the other",
        ),
    )
