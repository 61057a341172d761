"""Rates that the Trainer states of a training that it resumed."""

from __future__ import annotations

import math
from typing import Any, Final

import pandas as pd

from dsprof.events import Kind
from dsprof.run.repairs import Outcome, Source, met
from dsprof.run.table import of_kind

_RATE: Final = "train_steps_per_second"
_RATES: Final = ("samples_per_second_mean", _RATE, "tokens_per_second_mean")
_BAR: Final = ["bar_position", "bar_total", "bar_elapsed"]
_CUT: Final = 1.0  #: seconds by which a bar may show less than has passed
_QUICKER: Final = 3  #: times the later steps: no training is that before its first record
_MANY: Final = 0.1  #: of all steps: fewer hardly change a rate


def rates_of_all_steps(events: pd.DataFrame, _: Source) -> Outcome:
    """The Trainer divides all steps, those of earlier launches too, by the seconds of the one that
    resumed (transformers, `speed_metrics` with `num_steps=self.state.max_steps`; 5 counts those of
    this launch alone).

    Said by the Trainer where it resumes, and seen where its bar begins with steps for which there
    was no time.
    """
    ends = of_kind(events, Kind.METRIC, "train_runtime")
    if not len(ends):
        return events, None
    grouped = _bars(events).groupby(["segment", "source"])
    begun = {key: own.iloc[0]["bar_position"] for key, own in grouped if _begins_later(own)}
    resumed = begun | _told(events)
    keys = zip(ends["segment"], ends["source"].astype("str"), strict=True)
    wrong = [
        key in resumed and _of_all(events, end, resumed[key])
        for key, (_, end) in zip(keys, ends.iterrows(), strict=True)
    ]
    said = events["record"].isin(ends.loc[wrong, "record"])
    said &= events["name"].isin(_RATES) & events["value"].notna()
    text = (
        "the Trainer divides all steps, including those before it resumed, by the time since: "
        "its mean rates were dropped"
    )
    found = met("rates-of-all-steps", "repair", text, events[said])
    return (events.assign(value=events["value"].mask(said)), found) if found else (events, None)


def _of_all(events: pd.DataFrame, end: pd.Series[Any], done: float) -> bool:
    """Whether a summary's rate is of more steps than were made behind those `done` before; true
    where it does not tell."""
    rates = of_kind(events[events["record"] == end["record"]], Kind.METRIC, _RATE)["value"].dropna()
    meant = _meant(events).max()
    steps = float(rates.iloc[0]) * float(end["seconds"]) if len(rates) else math.inf
    return not steps < meant - done / 2  # also where nothing says how many are meant


def _told(events: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """Steps that were done before, by the segment and source that says so; few are left out."""
    meant = _meant(events).max()
    rows = of_kind(events, Kind.METRIC, "resumed_at")
    many = rows[rows["value"] > _MANY * (0 if pd.isna(meant) else meant)]
    keys = zip(many["segment"], many["source"].astype("str"), strict=True)
    return dict(zip(keys, many["value"], strict=True))


def _meant(events: pd.DataFrame) -> pd.Series[float]:
    """How many steps the job means to make: as it says, else as long as most bars are; bars of
    evaluations may be longer. Empty if nothing tells."""
    said = of_kind(events, Kind.METRIC, "total_steps")["value"].dropna()
    bars = of_kind(events, Kind.METRIC, "bar_total")["value"]
    return said if len(said) else bars.mode().head(1)


def _bars(events: pd.DataFrame) -> pd.DataFrame:
    """A row per bar of the training, in order."""
    rows = of_kind(events, Kind.METRIC, *_BAR)
    rows = rows.assign(
        name=rows["name"].astype("str"),
        source=rows["source"].astype("str"),
        said=rows["value"].fillna(rows["seconds"]),
    )
    one = ["segment", "source", "record"]
    told = rows.pivot_table("said", one, "name", aggfunc="last").reindex(columns=_BAR)
    return told[told["bar_total"].isin(_meant(events))].dropna().reset_index()


def _begins_later(bars: pd.DataFrame) -> bool:
    """Whether the first bar counts steps that were of another launch.

    Bars cut their time to whole seconds: of a quick training the first may stand at 0:00.
    """
    first, last = bars.iloc[0], bars.iloc[-1]
    steps, passed = (last[name] - first[name] for name in ("bar_position", "bar_elapsed"))
    if not (steps > 0 and passed > _CUT):
        return False
    own = steps / (passed - _CUT) * (first["bar_elapsed"] + _CUT)
    before = first["bar_position"] - own
    return bool(first["bar_position"] > _QUICKER * own and before > _MANY * last["bar_total"])
