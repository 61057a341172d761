"""The step in which a recorded launch hung or died, as it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from dsprof.analysis.lanes import Left, Stretch, unfinished
from dsprof.events import Class
from dsprof.findings.failures.ends import ended_launch, first_failure
from dsprof.findings.failures.stood import Stood, late_of, stood
from dsprof.run.recorded.moments import STEP

if TYPE_CHECKING:
    from dsprof.findings.facts import Facts

_NS: Final = 1e-9
_APART: Final = 100  #: steps; ranks that are further apart were in no step together


class Unfinished(NamedTuple):
    """What each rank did since it ended the last step of a launch that all of them ended."""

    segment: int
    engine: int
    step: int
    lanes: dict[int, list[Stretch]]


def unfinished_step(facts: Facts, ranks: Sequence[int]) -> Unfinished | None:
    """Since the last step that all of `ranks` ended, as far as their recordings tell; None if
    nothing ended the launch, or nobody saw how long its last phases were.
    """
    if first_failure(facts.run) is None:
        return None
    segment = ended_launch(facts.run)
    launch = [
        one
        for one in facts.run.meta.get("recordings") or ()
        if one.get("segment") == segment and one.get("rank") in ranks
    ]
    last = _last_steps(facts, launch)
    if (last["last"] - last["first"]).max() > _APART:
        return None
    moments = facts.run.moments(_since(last, segment), ranks=[one["rank"] for one in launch])
    ends = _ends(moments, last)
    stands = {one.source: one for one in stood(facts, segment)}
    left = {}
    for one in launch:
        late = late_of(facts.run.meta, one)
        begin = int(ends["end"].get(one["rank"], 0))
        known = _left(one, stands.get(str(one["source"])), begin, late)
        if known is not None:
            left[int(one["rank"])] = known
    if any(one.begin >= one.end for known in left.values() for one in known.open):
        return None  # all were ended by an unseen hand
    lanes = unfinished(moments, left)
    if not any(one.path for lane in lanes.values() for one in lane):
        return None
    return Unfinished(segment, int(ends["engine"].iloc[0]), int(ends["step"].iloc[0]), lanes)


def _last_steps(facts: Facts, launch: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Of each engine the `first` and `last` of the last steps that these processes ended."""
    told = facts.run.told
    rows = told[told["source"].isin([one["source"] for one in launch]).to_numpy(dtype=bool)]
    rows = rows[(rows["name"] == "step_seconds").to_numpy(dtype=bool)]
    last = rows.groupby(["source", "engine"], observed=True)["step"].max().astype(int)
    by = last.groupby("engine")
    return pd.DataFrame({"first": by.min(), "last": by.max()})


def _since(last: pd.DataFrame, segment: int) -> pd.DataFrame:
    """Those steps, and all behind them."""
    return pd.DataFrame(
        [
            (segment, engine, step)
            for engine, first, end in last.itertuples()
            for step in range(first, end + 2)
        ],
        columns=["segment", "engine", "step"],
    )


def _ends(moments: pd.DataFrame, last: pd.DataFrame) -> pd.DataFrame:
    """By rank the last step that all ended, and when it did; of several engines, that of the one
    that was the last to end one.
    """
    rows = moments[moments["what"] == STEP]
    rows = rows[rows["step"].eq(rows["engine"].map(last["first"]))]
    rows = rows.assign(end=rows["begin"] + (rows["seconds"] / _NS).round().astype("int64"))
    latest = rows.loc[rows["end"] == rows["end"].max(), "engine"]
    mine: pd.DataFrame = rows[rows["engine"].isin(latest.head(1))].set_index("rank")
    return mine


def _left(process: Mapping[str, Any], stands: Stood | None, begin: int, late: int) -> Left | None:
    """What is known of a rank; `begin` is 0 if it is not known when its step before ended."""
    if not begin:
        return None
    if process.get("ended"):
        return Left(begin, int(process["ended_at"]) - late)
    if stands is None or not (stands.phase and stands.phase_at and stands.since):
        return None
    until, at = stands.until, stands.phase_at
    found = [] if stands.over else [Stretch(at, until, stands.phase, stands.class_)]
    if stands.call:
        path = f"{stands.phase}/{stands.call}" if found else stands.call
        found.append(Stretch(stands.call_at, until, path, str(Class.COMMUNICATION)))
    return Left(begin, until, tuple(found), at)
