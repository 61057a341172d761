"""Steps that are longer by their forwards alone: an evaluation may look so, and other work does.

`rows` are those of `Facts.series` that stick out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice
from dsprof.findings.thresholds import WAITING_EXPLAINS
from dsprof.run.table import numbers

_NO_GRAD: Final = Advice(
    "evaluation at these steps",
    "",
    "if there is one: under torch.no_grad(), less often",
    "a forward with gradients keeps activations that no backward uses; without, it is told apart",
)
#: Part of forward's growth from which on backward has grown with it.
_AS_MUCH: Final = 0.5


def less_evaluation(facts: Facts, rows: npt.NDArray[np.intp]) -> tuple[Advice, ...]:
    """Of a log, whose timers know no evaluation, or of a recording that shows what may be one."""
    if facts.run.is_recording:
        return (_NO_GRAD,) if without_backward(facts, rows) else ()
    if not is_only_forward(facts, rows):
        return ()
    why = (
        "forward alone is longer, not backward: the timer of an engine's forward, as DeepSpeed's, "
        "also counts forwards of an evaluation, to the step after it"
    )
    return (Advice("evaluation before these steps", "", "if there is one: less often", why),)


def without_backward(facts: Facts, rows: npt.NDArray[np.intp]) -> str:
    """Whether recorded steps stick out by forwards, of which no backward follows as many: with
    gradients an evaluation looks so, and so do a loss of several batches and a search for one."""
    if not facts.run.is_recording or not is_only_forward(facts, rows):
        return ""
    phases = facts.series_phases
    forwards, backwards = (
        phases[phases["name"] == name].groupby("step")["count"].mean().astype("float64")
        for name in ("forward", "backward")
    )
    told = facts.series["step"].map(forwards.sub(backwards, fill_value=0.0).to_dict())
    more = numbers(told.astype("float64").fillna(0.0))
    out = np.isin(np.arange(len(more)), rows)
    here, usual = float(np.median(more[out])), float(np.median(more[~out]))
    if here < usual + 1:
        return ""
    than = f", in the others {usual:,.0f}" if usual > 0 else ""
    return (
        f" In them {here:,.0f} forwards more than backwards were made{than}: whether that is an "
        "evaluation with gradients, the recording cannot tell."
    )


def is_only_forward(facts: Facts, rows: npt.NDArray[np.intp]) -> bool:
    """Whether forward is most of what is longer in these steps, and grew far more than backward
    did: of a longer batch both take longer."""
    steps = facts.series
    phases = facts.series_phases
    forward, inner, backward = (
        _grown_by(phases[phases["name"] == name], steps, rows)
        for name in ("forward", "backward_inner", "backward")
    )
    behind = inner or backward
    if forward is None or behind is None:
        return False
    out = np.isin(np.arange(len(steps)), rows)
    added = steps["seconds"][out].mean() - steps["seconds"][~out].mean()
    alone = behind.ratio - 1 < _AS_MUCH * (forward.ratio - 1)
    return bool(alone and forward.seconds >= WAITING_EXPLAINS * added)


class _Growth(NamedTuple):
    """By how much a phase is longer in the steps that stick out than in the others."""

    seconds: float
    ratio: float


def _grown_by(
    phase: pd.DataFrame, steps: pd.DataFrame, rows: npt.NDArray[np.intp]
) -> _Growth | None:
    """None where it is not timed in both kinds of steps."""
    mean = phase.groupby("step")["seconds"].mean().astype("float64")
    took = steps["step"].map(mean.to_dict()).astype("Float64").astype("float64")
    out = np.isin(np.arange(len(steps)), rows)
    longer, usual = float(took[out].mean()), float(took[~out].median())
    return _Growth(longer - usual, longer / usual) if usual > 0 and longer > 0 else None
