"""How far the clocks of a run's hosts are apart, as the ends of its steps tell.

Ranks end a step together, for its collectives hold back whoever is early; what the ends of the
same steps are apart by different hosts' clocks is, in the middle, what the clocks are apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dsprof.recording.told import Columns

if TYPE_CHECKING:
    from dsprof.recording.read import Recording
    from dsprof.recording.table import Array

LEAST: Final = 10  #: steps that hosts must share: of fewer a middle says little
MOST: Final = 2_000  #: steps, evenly spread over the run: more tells nothing new
_SPREAD: Final = (5, 95)  #: percentiles of the single steps: what their middle may be off by

Recorded = tuple["Recording", Columns]


def apart(recorded: Sequence[Recorded]) -> dict[str, dict[str, float]]:
    """Of each host, by name: `ahead`, seconds its clock is ahead of the first host's, and
    `error`, by how much single steps scatter around that.

    Args:
        recorded: each process and its steps (`engine`, `step`, `begin`, `duration`), by launch
            and rank. The first host is that of the first process. The last launch counts that
            has several hosts.
    """
    found: dict[str, dict[str, float]] = {}
    for segment in sorted({one.segment for one, _ in recorded}):
        hosts: dict[str, list[Recorded]] = {}
        for one in recorded:
            host = one[0].header.get("host")
            if one[0].segment == segment and isinstance(host, str):
                hosts.setdefault(host, []).append(one)
        found = _of_launch(list(hosts.values()), list(hosts)) or found
    return found


def _of_launch(ranks: list[list[Recorded]], names: list[str]) -> dict[str, dict[str, float]]:
    if len(names) < 2:
        return {}
    steps = np.unique(_numbers(ranks[0][0][1]))
    steps = steps[:: max(1, -(-len(steps) // MOST))]
    ends = [np.median([_ends(*one, steps) for one in of_host], axis=0) for of_host in ranks]
    found = {}
    for name, end in zip(names[1:], ends[1:], strict=True):
        ahead = end - ends[0]
        ahead = ahead[~np.isnan(ahead)]
        if len(ahead) >= LEAST:
            low, high = np.percentile(ahead, _SPREAD)
            found[name] = {"ahead": float(np.median(ahead)), "error": float(high - low) / 2}
    return {names[0]: {"ahead": 0.0, "error": 0.0}, **found} if found else {}


def _numbers(steps: Columns) -> Array:
    return np.asarray(steps["step"].astype(np.int64) << 8 | steps["engine"])


def _ends(recording: Recording, steps: Columns, wanted: Array) -> Array:
    """When each wanted step ended, seconds of the host's own clock; NaN where it did not."""
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
