"""The last progress bar of a source, where nothing says more of how long a step takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd

from dsprof.analysis.micro_batches import timed_micro_batches, turns_timed
from dsprof.events import Kind
from dsprof.findings.evidence import whole
from dsprof.run.steps.bars import steps_meant
from dsprof.run.steps.evaluations import evaluations_told
from dsprof.run.table import of_kind

if TYPE_CHECKING:
    from dsprof.run import Run

_BAR: Final = ("bar_position", "bar_total", "bar_elapsed")
_BESIDE: Final = {"bar_loss": "loss", "bar_reward": "reward"}  # what its loop writes beside it
_RATE: Final = ("step_seconds", "steps_per_second")  # as a bar states it: slow, or fast
_SLOWEST: Final = 0.1  # of rates with two decimals: of a slower one (Lightning's) they tell little
_QUICKEST: Final = 0.001  # seconds of a turn: what is quicker tokenizes, filters or downloads
_ROUNDED: Final = 0.02  # of a rate with two decimals, at most
_FORGOTTEN: Final = 20  # turns, after which the first weighs a thousandth of tqdm's mean
_LITTLE: Final = 0.5  # of the time of a training: its own bar counts nearly all of that


@dataclass(frozen=True, slots=True)
class Bar:
    """The last progress bar: a turn of its loop may be an optimizer step or anything else, unless
    it is as long as the job says it means to train, or the engine timed as many micro-batches."""

    position: int
    total: int | None  # None of a bar whose end its loop does not know
    seconds: float  # elapsed, what came before the first turn included
    lately: float | None = None  # seconds of a turn, as it states of the last ones
    counts_steps: bool = False
    counts_micro_batches: bool = False
    loss: float | None = None  # as its loop writes beside it, of the last turn or the next
    reward: float | None = None

    @property
    def remembers_first(self) -> bool:
        """Whether its rate still holds much of the first turns, which set up what others find.

        tqdm's is a mean in which each turn weighs 0.7 of the next (its `smoothing`).
        """
        return self.position < _FORGOTTEN

    @property
    def is_closed(self) -> bool:
        """Whether its rate is the overall one, as tqdm writes it where it closes a full bar."""
        if self.position != self.total or self.lately is None:
            return False
        return math.isclose(self.lately * self.position, self.seconds, rel_tol=_ROUNDED, abs_tol=1)


def bar(run: Run) -> Bar | None:
    """The last bar of a source that tells of no step how long all of it took: timers leave out
    what nobody timed. The longest one, where several have one. Beside evaluations that the Trainer
    tells of, one of another length than its training is an evaluation's, and so is one that counts
    little of the time that it says its training took."""
    if run.steps["whole_seconds"].notna().any():
        return None
    meant = steps_meant(run.told)
    moved = _bars(run).query("bar_position > 0 and bar_elapsed > @_QUICKEST * bar_position")
    if len(evaluations_told(run.told)):
        took = of_kind(run.told, Kind.METRIC, "train_runtime")["seconds"].max()
        moved = moved[moved["bar_total"].isin(meant)] if meant else moved
        moved = moved[~(moved["bar_elapsed"] < _LITTLE * took)]
    if moved.empty:
        return None
    longest = moved[moved["bar_elapsed"] == moved["bar_elapsed"].max()]
    rated = longest[longest[list(_RATE)].notna().any(axis=1)]
    last = (rated if len(rated) else longest).iloc[0]  # one bar may be read twice, once without it
    position, total, seconds, slow, fast = last[[*_BAR, *_RATE]]
    lately, counts = _number(slow) or _inverse(fast), total in meant
    beside = {field: _number(last[name]) for name, field in _BESIDE.items()}
    return Bar(
        position=int(position),
        total=whole(total),
        seconds=float(seconds),
        lately=lately,
        counts_steps=counts,
        counts_micro_batches=not counts and _counts_micro_batches(run, int(position)),
        **beside,
    )


def _counts_micro_batches(run: Run, position: int) -> bool:
    """Whether a bar stands where the engine has timed as many micro-batches, or the one more that
    it does not count yet, and a step has several of them."""
    return (timed_micro_batches(run) or 1) > 1 and turns_timed(run) - position in (0, 1)


def unmoved(run: Run) -> int | None:
    """How many turns the last bar is to make, if none of the source's bars has made any."""
    bars = _bars(run)
    known = bars["bar_total"].dropna()
    return int(known.iloc[-1]) if len(known) and not bars["bar_position"].gt(0).any() else None


def _bars(run: Run) -> pd.DataFrame:
    """One row per bar that was read, with what it says in columns."""
    rows = run.told[run.told["name"].isin([*_BAR, *_RATE, *_BESIDE])]
    rows = rows.drop_duplicates(["source", "record", "name"])
    said = rows.assign(said=rows["value"].fillna(rows["seconds"]))
    table = said.pivot_table("said", ["source", "record"], "name", observed=True)
    return table.reindex(columns=[*_BAR, *_RATE, *_BESIDE]).dropna(
        subset=["bar_position", "bar_elapsed"]
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _inverse(rate: float) -> float | None:
    return 1 / rate if rate >= _SLOWEST else None
