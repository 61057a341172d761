"""Who the others wait for: ranks compared step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsprof.events import Class

#: Where ranks meet. A table of phases keeps no order in time, so a rank's own work
#: is put first and what waits for others last.
_MEETING = (Class.COMMUNICATION, Class.WAIT)

_MOST_STEPS = 2_000  # evenly spread over the run; more tells nothing new


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that is behind most often.

    Attributes:
        rank: the global rank.
        delay: seconds per step the median rank waits for it, mean over all steps.
        held: part of the steps in which it is the last one.
        phase: where it loses most against the median rank.
        phase_delay: seconds per step it loses there.
        steps, ranks: how much was compared.
        first, last: optimizer steps compared.
    """

    rank: int
    delay: float
    held: float
    phase: str
    phase_delay: float
    steps: int
    ranks: int
    first: int
    last: int


def frontier(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who stands at the front of each phase boundary, and by how much.

    At a boundary the frontier is the largest cumulative time of any rank; its
    increments add up to the step exactly, however ranks wait for each other
    (StageFrontier, arXiv 2606.06751).

    Args:
        seconds: steps x ranks x phases, phases in the order they run.

    Returns:
        Index of the leading rank and its lead over the median rank (of an even
        number the earlier one: it waits) in seconds, both steps x phases.
    """
    reached = seconds.cumsum(axis=2)
    leader = reached.argmax(axis=1)
    return leader, reached.max(axis=1) - _median(reached)


def _median(of_ranks: np.ndarray) -> np.ndarray:
    middle = np.sort(of_ranks, axis=1)[:, (of_ranks.shape[1] - 1) // 2]
    return np.asarray(middle)


def straggler(phases: pd.DataFrame) -> Straggler | None:
    """The slowest rank of a table of phases; None if fewer than two ranks can be compared."""
    cube = _cube(phases)
    if cube is None:
        return None
    seconds, steps, ranks, names = cube
    leader, lead = frontier(seconds)
    boundary = lead.argmax(axis=1)  # just before the others wait
    rows = np.arange(len(steps))
    last = leader[rows, boundary]
    slow = int(np.bincount(last, minlength=len(ranks)).argmax())
    behind = last == slow
    own = seconds[:, slow, :] - _median(seconds)
    before = np.arange(len(names)) <= boundary[:, None]
    loss = (own * before)[behind].sum(axis=0) / len(steps)
    worst = int(loss.argmax())
    return Straggler(
        rank=int(ranks[slow]),
        delay=float(lead[rows, boundary][behind].sum() / len(steps)),
        held=float(behind.mean()),
        phase=str(names[worst]),
        phase_delay=float(loss[worst]),
        steps=len(steps),
        ranks=len(ranks),
        first=int(steps[0]),
        last=int(steps[-1]),
    )


def _cube(
    phases: pd.DataFrame,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]] | None:
    """Self seconds as steps x ranks x phases, of the steps that every rank reports."""
    rows = phases[phases["rank"].notna() & phases["step"].notna() & phases["self_seconds"].notna()]
    if rows["rank"].nunique() < 2:
        return None
    steps = np.sort(rows["step"].unique())
    steps = steps[:: max(1, -(-len(steps) // _MOST_STEPS))]
    rows = rows[rows["step"].isin(steps)]
    kinds = rows[["name", "class"]].astype(str).drop_duplicates("name")
    meets = kinds["class"].isin(_MEETING)
    names = [*kinds["name"][~meets], *kinds["name"][meets]]
    wide = rows.pivot_table(
        index=["step", "rank"], columns="name", values="self_seconds", aggfunc="sum", observed=True
    )[names].fillna(0.0)
    ranks = np.sort(rows["rank"].unique())
    full = wide.groupby(level="step").size()  # a timer is called step, too
    full_steps = full.index[full == len(ranks)]
    if full_steps.empty:
        return None
    wide = wide[wide.index.get_level_values("step").isin(full_steps)].sort_index()
    cube = wide.to_numpy(dtype=float).reshape(len(full_steps), len(ranks), len(names))
    return cube, np.asarray(full_steps), np.asarray(ranks), names
