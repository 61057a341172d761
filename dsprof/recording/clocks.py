"""How far the clocks of a run's hosts are apart, derived from when steps end.

Ranks end a step at nearly the same time, because its collectives hold back whoever is early. So the
median difference between the ends of the same steps, by two hosts' clocks, is about the difference
between the clocks. A host that always ends its steps a little later than the others cannot be told
from one whose clock is ahead by as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dsprof.recording.told import Columns

if TYPE_CHECKING:
    from dsprof.recording.read import Recording
    from dsprof.recording.table import Array

LEAST: Final = 10  #: steps that hosts must share; a median of fewer means little
MOST: Final = 2_000  #: steps, evenly spaced over the run; more would add nothing
_SPREAD: Final = (5, 95)  #: percentiles of single steps, for the error of their median

Recorded = tuple["Recording", Columns]


def skews(recorded: Sequence[Recorded]) -> dict[str, dict[str, float]]:
    """For each host by name: `ahead`, the seconds by which its clock is ahead of the first host's,
    and `error`, how much single steps scatter around that, in seconds. Of a host whose clock was
    set during the run only `set`, by how many seconds (negative: back).

    Args:
        recorded: each process with its steps (`engine`, `step`, `begin`, `duration`), by launch and
            rank. The first host is that of the first process. The last launch that has several
            hosts counts.
    """
    launches: dict[int, dict[str, list[Recorded]]] = {}
    for one in recorded:
        recording = one[0]
        if recording.host is not None:
            hosts = launches.setdefault(recording.segment, {})
            hosts.setdefault(recording.host, []).append(one)
    latest = (launches[number] for number in sorted(launches, reverse=True))
    found = (_of_launch(list(hosts.values()), list(hosts)) for hosts in latest)
    return next(filter(None, found), {})


def _of_launch(ranks: list[list[Recorded]], names: list[str]) -> dict[str, dict[str, float]]:
    found = {
        name: {"set": one.clock.was_set * 1e-9}
        for name, of_host in zip(names, ranks, strict=True)
        for one, _ in of_host
        if one.clock.was_set
    }
    if len(names) < 2 or names[0] in found:
        return found
    first = {names[0]: {"ahead": 0.0, "error": 0.0}}
    steps = np.unique(_numbers(ranks[0][0][1]))
    steps = steps[:: max(1, -(-len(steps) // MOST))]
    ends = [np.median([_ends(*one, steps) for one in of_host], axis=0) for of_host in ranks]
    for name, end in zip(names[1:], ends[1:], strict=True):
        ahead = end - ends[0]
        ahead = ahead[~np.isnan(ahead)]
        if name not in found and len(ahead) >= LEAST:
            low, high = np.percentile(ahead, _SPREAD)
            found[name] = {"ahead": float(np.median(ahead)), "error": float(high - low) / 2}
    return first | found if found else {}


def _numbers(steps: Columns) -> Array:
    return np.asarray(steps["step"].astype(np.int64) << 8 | steps["engine"])


def _ends(recording: Recording, steps: Columns, wanted: Array) -> Array:
    """When each wanted step ended, in seconds of the host's own clock; NaN if the rank lacks it."""
    numbers = _numbers(steps)
    order = np.argsort(numbers, kind="stable")
    place = np.searchsorted(numbers[order], wanted).clip(0, max(0, len(order) - 1))
    found = np.full(len(wanted), np.nan)
    if len(order):
        at = order[place]
        told = numbers[at] == wanted
        ends = recording.clock.utc((steps["begin"] + steps["duration"])[at[told]])
        found[told] = ends * 1e-9
    return found
