"""A loss that rises and stays there: what is trained from then on is worth less than before."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsprof.events import Severity
from dsprof.findings.advice import clipping
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.proofs import mark_proof
from dsprof.findings.thresholds import DIVERGED_RECORDS, DIVERGED_TIMES, LOST_RECORDS
from dsprof.run.table import within

_GO_BACK: Final = (
    Advice(
        "checkpoint to go on from",
        "",
        "one from before it rose",
        "what was trained since is lost",
    ),
)

_AGAINST: Final = (
    "Several models train here. If one trains against the other, as in a GAN, its loss may rise "
    "without harm: low confidence."
)


def loss_diverged(facts: Facts) -> list[Finding] | str:
    """From some step on every loss stands far above what had been reached."""
    rows = _losses(facts)
    loss = rows["loss"].to_numpy(dtype=float)
    if (facts.run.told["name"] == "reward").any():
        return "a policy is trained for its reward: its loss does not show what it has learnt"
    if len(rows) < 4:
        return "fewer than four losses of one launch"
    if (loss <= 0).any():
        return "losses that are not all above 0 have no scale"
    start, begun = _rise(loss), _above_its_start(loss)
    if start is not None:
        last = DIVERGED_RECORDS if start >= DIVERGED_RECORDS else _NEAREST
        level = float(np.median(loss[max(0, start - last) : start]))
        title = (
            f"The loss rose from {level:.3g} to {loss[start]:.4g} at step {{:,}} and stays there"
        )
        shown = (start - 1, start)
    elif begun is not None:
        start, shown = begun, (0, -1)
        title = f"The loss ends at {loss[-1]:.4g}, above the {loss[0]:.4g} that it began with"
    else:
        return []
    if _was_as_high(facts, rows, start):
        return []
    first, since = int(rows["step"].iloc[start]), loss[start:]
    sure, learnt = len(since) >= LOST_RECORDS, _STEADY * loss[:start].min() < loss[0]
    alone = facts.run.steps["engine"].nunique() < 2
    lost = "lost what it had learnt." if learnt else "had learnt next to nothing before."
    return [
        Finding(
            rule="loss-diverged",
            severity=Severity.CRITICAL if sure and alone else Severity.WARNING,
            title=title.format(first),
            summary=f"The lowest of the {len(since):,} losses printed from step {first:,} on, to "
            f"the end, is {since.min():.4g}"
            + (f": training {lost}" if alone else f". {_AGAINST}")
            + ("" if sure else " Medium confidence: they are few, and it may recover."),
            steps=(first, int(rows["step"].iloc[-1])),
            evidence=tuple(mark_proof(facts, rows.iloc[at]) for at in shown),
            advice=(
                *(_GO_BACK if learnt and alone else ()),
                Advice("learning rate, warm-up", "", "lower, longer", "the usual cause"),
                *clipping(facts, "keeps a single batch from causing it"),
            ),
            confidence="low" if not alone else "high" if sure else "medium",
        )
    ]


def _was_as_high(facts: Facts, rows: pd.DataFrame, start: int) -> bool:
    """Whether a mean over the epoch, printed before, is above what the loss rose to, and above any
    that was printed by then: others were as high, as where a loss is a sum over samples that come
    in order of their length. A mean of the first ones alone is high in any training."""
    means = within(rows.iloc[:start], facts.run.told, "segment", "engine", "step")
    means = means[means["name"] == "epoch_loss"]
    least = max(rows["loss"].iloc[start:].min(), rows["loss"].iloc[:start].max())
    return bool((means["value"] > least).any())


def _losses(facts: Facts) -> pd.DataFrame:
    """The steps of the last launch that have a finite loss; where several engines have one and none
    is timed, of the first of them."""
    rows = facts.own_steps
    rows = rows[np.isfinite(rows["loss"].to_numpy(dtype=float, na_value=np.nan))]
    last = rows[rows["segment"] == rows["segment"].max()]
    first: pd.DataFrame = last[last["engine"] == last["engine"].min()]
    return first


def _rise(loss: NDArray[np.float64]) -> int | None:
    """The row from which on no loss is near what was usual before.

    At once: each is above all of the last ones, and far above their median; of few that came
    before, far above all of them. Slowly: as many as are looked back upon are far above the
    lowest median of as many. Two to compare at each end, at least. In a short training losses were
    as high at its beginning: several are far above all of the last ones, which are fewer then.
    """
    past = pd.Series(loss).rolling(DIVERGED_RECORDS, min_periods=1)
    usual, most = past.median().shift().to_numpy(), past.max().shift().to_numpy()
    before = np.arange(len(loss))
    left = len(loss) - before
    least = np.minimum.accumulate(loss[::-1])[::-1]
    far = np.where(
        before < LOST_RECORDS, DIVERGED_TIMES * most, np.fmax(DIVERGED_TIMES * usual, most)
    )
    lowest = past.median().where(before + 1 >= DIVERGED_RECORDS).cummin().shift().to_numpy()
    slow = (least >= DIVERGED_TIMES * lowest) & (left >= DIVERGED_RECORDS)
    nearest = pd.Series(loss).rolling(_NEAREST).max().shift().to_numpy()  # NaN: too few before
    short = (before < DIVERGED_RECORDS) & (left >= LOST_RECORDS)
    again = short & (least >= DIVERGED_TIMES * nearest)
    rows = np.flatnonzero(((least >= far) | slow | again) & (before >= 2) & (left >= 2))
    return int(rows[0]) if len(rows) else None


def _above_its_start(loss: NDArray[np.float64]) -> int | None:
    """The row from which on each loss is far above the two that the source begins with, which
    differ by far less than that: noise tells no level. Where neighbours mostly differ by as much,
    as where a batch is one sample, the two may be alike by chance."""
    begun = loss[:2]
    apart = np.abs(np.diff(np.log(loss)))
    if np.median(apart) >= np.log(DIVERGED_TIMES):
        return None
    near = np.flatnonzero(loss < DIVERGED_TIMES * begun.max())
    enough = len(loss) - 1 - near[-1] >= LOST_RECORDS
    return int(near[-1]) + 1 if enough and begun.max() <= _STEADY * begun.min() else None


#: Records that those of a short training are compared with.
_NEAREST: Final = 10

#: By which the first two losses may differ; what falls by no more has learnt next to nothing.
_STEADY: Final = 1.1
