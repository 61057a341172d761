"""What of a step DeepSpeed's rates count: from the start of forward to the end of its step."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from dsprof.analysis.rates import batch_of
from dsprof.analysis.trends import Floats
from dsprof.events import Kind
from dsprof.findings.advice import set_to
from dsprof.findings.facts import Facts
from dsprof.run.seldom import SELDOM
from dsprof.run.table import STEP, among, keys, of_kind, positions

_OF_DEEPSPEED: Final = (
    "deepspeed.throughput",
    "deepspeed.throughput_07",
    "deepspeed.throughput_cut",
)
_SYNCHRONIZED: Final = "timers.throughput.synchronized"
#: First steps of a launch that its mean rate leaves out.
_UNCOUNTED: Final = 2


def are_deepspeeds(facts: Facts) -> bool:
    """Whether all rates are of its ThroughputTimer."""
    rates = of_kind(facts.run.told, Kind.METRIC, "samples_per_second")
    return len(rates) > 0 and bool(among(rates["pattern"], _OF_DEEPSPEED).all())


def rated_seconds(facts: Facts, steps: pd.DataFrame) -> Floats | None:
    """Seconds of each of `steps`, or windows, that rates count, where the clock tells all of each;
    None unless all are known, are of DeepSpeed's timer and waited for the device. [steps]"""
    if not steps["seconds_from"].eq("clock").all():
        return None
    batch = batch_of(facts.run, steps)
    if batch is None or SELDOM in facts.doubts or not are_deepspeeds(facts):
        return None
    if set_to(facts, _SYNCHRONIZED) is False:
        return None
    own = batch / steps["samples_per_second"].to_numpy(dtype=float)
    of_all = _of_windows(facts, steps, batch)
    rated = np.where(np.isfinite(of_all), of_all, own)
    return rated if np.isfinite(rated).all() else None


def _of_windows(facts: Facts, steps: pd.DataFrame, batch: float) -> Floats:
    """The same by the mean rates so far at both ends of each window, NaN where these are not told:
    steps that print no rate of their own may be slower. [steps]

    Source: ThroughputTimer of DeepSpeed 0.7 to 0.19, whose mean counts from the third step on.
    """
    means = of_kind(facts.run.told, Kind.METRIC, "samples_per_second_mean")
    means = means[means["value"].gt(0) & means["step"].notna()].drop_duplicates([*STEP])
    means = means.sort_values([*STEP])
    step = means["step"].astype("float64")
    apart = pd.DataFrame({"step": step, "passed": (step - _UNCOUNTED) * batch / means["value"]})
    apart = apart.groupby([means["segment"], means["engine"]]).diff()
    each = (apart["passed"] / apart["step"]).to_numpy()
    found = np.full(len(steps), np.nan)
    if np.nanmin(each, initial=1.0) > 0:  # else it counts from elsewhere, as after a resume
        place = positions(steps, means, *STEP)
        found[place[place >= 0]] = each[place >= 0]
    if steps["smoothed"].all():  # steps between the ends of windows have rows of their own
        part = pd.Series(found).groupby(keys(steps, "segment", "engine"))
        found = np.asarray(part.bfill().fillna(part.ffill()), np.float64)
    return found
