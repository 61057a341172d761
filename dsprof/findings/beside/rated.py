"""What of a step DeepSpeed's rates and times count: not what a script does between its steps."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.rates import batch_of
from dsprof.analysis.trends import Floats
from dsprof.events import Kind
from dsprof.findings.advice import set_to
from dsprof.findings.facts import Facts
from dsprof.run.steps.seldom import SELDOM
from dsprof.run.table import STEP, among, keys, of_kind, positions

_OF_DEEPSPEED: Final = (
    "deepspeed.throughput",
    "deepspeed.throughput_07",
    "deepspeed.throughput_cut",
)
_OF_PIPELINES: Final = ("deepspeed_pipeline.steps", "deepspeed_pipeline.steps_losses")
_SYNCHRONIZED: Final = "timers.throughput.synchronized"
#: First steps of a launch that its mean rate leaves out.
_UNCOUNTED: Final = 2


def are_deepspeeds(facts: Facts) -> bool:
    """Whether all rates are of its ThroughputTimer."""
    rates = of_kind(facts.run.told, Kind.METRIC, "samples_per_second")
    return len(rates) > 0 and bool(among(rates["pattern"], _OF_DEEPSPEED).all())


class Counted(NamedTuple):
    """What DeepSpeed's own figures count of each step, and the words for it.

    Attributes:
        seconds: of each row. [rows]
        figures: what they are: rates, or times.
        said: what they count.
        inside, apart: where that lies, and where the rest passes.
        such_as: what a script does there.
        loads: whether it may load there what it trains with.
    """

    seconds: Floats
    figures: str
    said: str
    inside: str
    apart: str
    such_as: str
    loads: bool


def counted(facts: Facts, steps: pd.DataFrame) -> Counted | None:
    """Of `steps`, or windows, of which the clock tells all; None unless known of each."""
    if not steps["seconds_from"].eq("clock").all() or SELDOM in facts.doubts:
        return None
    seconds = _in_train_batch(facts, steps)
    if seconds is not None:
        return Counted(
            seconds,
            figures="times",
            said="DeepSpeed's times of a step are those of train_batch()",
            inside="inside train_batch()",
            apart="between one train_batch() and the next",
            such_as="evaluating, saving or logging",
            loads=False,
        )
    seconds = _by_rates(facts, steps)
    if seconds is None:
        return None
    return Counted(
        seconds,
        figures="rates",
        said="DeepSpeed's samples/s count from forward() to the end of step()",
        inside="between forward() and the end of step()",
        apart="between step() and the next forward()",
        such_as="loading data, evaluating, saving or logging",
        loads=True,
    )


def _in_train_batch(facts: Facts, steps: pd.DataFrame) -> Floats | None:
    """Seconds as the pipeline engine logs them. [steps]

    Source: PipelineEngine.train_batch of DeepSpeed 0.3 to 0.19, whose timer also covers loading.
    """
    logged = of_kind(facts.run.told, Kind.METRIC, "step_seconds")
    if logged.empty or not among(logged["pattern"], _OF_PIPELINES).all():
        return None
    own = facts.own_steps.loc[steps.index]
    return own["seconds"].to_numpy(dtype=float) if own["seconds_from"].eq("logged").all() else None


def _by_rates(facts: Facts, steps: pd.DataFrame) -> Floats | None:
    """Seconds by the rates of DeepSpeed's timer, if it waited for the device. [steps]"""
    batch = batch_of(facts.run, steps)
    if batch is None or not are_deepspeeds(facts) or set_to(facts, _SYNCHRONIZED) is False:
        return None
    own = batch / steps["samples_per_second"].to_numpy(dtype=float)
    of_all = _of_windows(facts, steps, batch)
    rated = np.where(np.isfinite(of_all), of_all, own)
    return rated if np.isfinite(rated).all() else None


def _counted(facts: Facts, means: pd.DataFrame) -> pd.Series[float]:
    """How many steps of its launch the timer had seen when it stated each of these mean rates; NaN
    where it does not say, and the launch may go on from a checkpoint."""
    told = (
        of_kind(facts.run.told, Kind.METRIC, name).drop_duplicates("record").set_index("record")
        for name in ("global_step", "micro_step")
    )
    steps, micro = (means["record"].map(rows["value"]).astype("float64") for rows in told)
    own = means["step"].astype("float64")
    return steps.fillna(own.where(own <= micro))


def _of_windows(facts: Facts, steps: pd.DataFrame, batch: float) -> Floats:
    """The same by the mean rates so far at both ends of each window, NaN where these are not told:
    steps that print no rate of their own may be slower. [steps]

    Source: ThroughputTimer of DeepSpeed 0.7 to 0.19, whose mean counts from the third step on.
    """
    means = of_kind(facts.run.told, Kind.METRIC, "samples_per_second_mean")
    means = means[means["value"].gt(0) & means["step"].notna()].drop_duplicates([*STEP])
    means = means.sort_values([*STEP])
    step = means["step"].astype("float64")
    counted = _counted(facts, means) - _UNCOUNTED
    apart = pd.DataFrame({"step": step, "passed": counted * batch / means["value"]})
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
