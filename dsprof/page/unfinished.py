"""The step in which a recorded launch hung or died, as it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from dsprof.analysis.lanes import Left, Stretch, unfinished
from dsprof.events import Class
from dsprof.findings.ends import ended_launch, first_failure
from dsprof.findings.stood import Stood, stood
from dsprof.run.moments import STEP

if TYPE_CHECKING:
    from dsprof.findings.facts import Facts

_NS: Final = 1e-9


class Unfinished(NamedTuple):
    """What each rank did from the beginning of this step of a launch on."""

    segment: int
    step: int
    lanes: dict[int, list[Stretch]]


def unfinished_step(facts: Facts, ranks: Sequence[int]) -> Unfinished | None:
    """The step after the last one that all of `ranks` ended, as far as their recordings tell; None
    if nothing ended the launch.
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
    if not last:
        return None
    step = min(last) + 1
    some = pd.DataFrame({"segment": segment, "engine": 0, "step": range(step - 1, max(last) + 2)})
    moments = facts.run.moments(some, ranks=[one["rank"] for one in launch])
    ends, stands = _ends(moments, step - 1), {one.source: one for one in stood(facts, segment)}
    left = {}
    for one in launch:
        late = _late(facts.run.meta, str(one.get("host")))
        known = _left(one, stands.get(str(one["source"])), ends.get(one["rank"], 0), late)
        if known is not None and known.until > known.begin:
            left[int(one["rank"])] = known
    if any(one.begin >= one.end for known in left.values() for one in known.open):
        return None  # nobody saw how long that was: all were ended by an unseen hand
    lanes = unfinished(moments[moments["step"] >= step], left)
    is_seen = any(one.path for lane in lanes.values() for one in lane)
    return Unfinished(segment, step, lanes) if is_seen else None


def _last_steps(facts: Facts, launch: Sequence[Mapping[str, Any]]) -> list[int]:
    """The last step that each of these processes ended."""
    told = facts.run.told
    rows = told[told["source"].isin([one["source"] for one in launch]).to_numpy(dtype=bool)]
    rows = rows[(rows["name"] == "step_seconds").to_numpy(dtype=bool)]
    return rows.groupby("source", observed=True)["step"].max().astype(int).tolist()


def _ends(moments: pd.DataFrame, step: int) -> dict[int, int]:
    """When each rank ended a step."""
    rows = moments[(moments["what"] == STEP) & (moments["step"] == step)]
    ends = rows["begin"] + (rows["seconds"] / _NS).round().astype("int64")
    return dict(zip(rows["rank"].astype(int), ends.astype(int), strict=True))


def _left(process: Mapping[str, Any], stands: Stood | None, begin: int, late: int) -> Left | None:
    """What is known of a rank; `begin` is 0 if it is not known when its step before ended."""
    if process.get("ended"):
        return Left(begin, int(process["ended_at"]) - late) if begin else None
    if stands is None or not (begin and stands.phase_at):
        return None
    until, at = stands.until - late, max(stands.phase_at - late, begin)
    found = [] if stands.over else [Stretch(at, until, stands.phase, stands.class_)]
    if stands.call:
        path = f"{stands.phase}/{stands.call}" if found else stands.call
        called = max(stands.call_at - late, begin)
        found.append(Stretch(called, until, path, str(Class.COMMUNICATION)))
    return Left(begin, until, tuple(found), at)


def _late(meta: Mapping[str, Any], host: str) -> int:
    """Nanoseconds by which the clock of a host is ahead of the first one's."""
    clocks = meta.get("clocks") or {}
    return round(float(clocks.get(host, {}).get("ahead", 0.0)) / _NS)
