"""When the stages of a pipeline are done that run one forward, then one backward (1F1B).

The order is that of DeepSpeed's `TrainSchedule`, and of Megatron's schedule without interleaving: a
stage runs forward ahead only until its first gradient can come, that is by as many micro-batches as
there are stages behind it and itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dsprof.run.table import Numbers

#: Micro-batches that are gone through; all others take the slowest stage's turns.
_MOST: Final = 1_000


def last_backwards(
    micro_batches: int, starts: Numbers, forwards: Numbers, backwards: Numbers
) -> Numbers:
    """Seconds after which each stage has run its last backward; transfers take no time.

    In each slot of the schedule every other stage runs forward, the others backward. What a stage
    needs for that, the stage before or behind it has done in the slot before.

    Args:
        micro_batches: m.
        starts: seconds after which each stage begins [stages x replicas].
        forwards: seconds that a forward of a micro-batch takes there, with its input.
        backwards: the same of a backward.
    """
    stages, many = len(starts), min(micro_batches, _MOST)
    at = starts.astype(float)
    stage = np.arange(stages)
    for slot in range(2 * (many + stages - 1)):
        forward = (slot - stage) % 2 == 0
        micro = np.where(forward, slot - stage, slot + stage + 1 - 2 * stages) // 2
        needs = np.where(forward, stage - 1, stage + 1).clip(0, stages - 1)
        took = np.where(forward[:, None], forwards, backwards)
        runs = (micro >= 0) & (micro < many)
        at = np.where(runs[:, None], np.maximum(at, at[needs]) + took, at)
    return np.asarray(at + (micro_batches - many) * (forwards + backwards).max(axis=0))


def seconds_of_turns(micro_batches: int, forwards: Numbers, backwards: Numbers) -> float:
    """Seconds of all micro-batches, if all stages begin together.

    Args:
        micro_batches: m.
        forwards: seconds of all forwards of each stage in a step.
        backwards: the same of all its backwards.
    """
    one = np.stack([forwards, backwards])[:, :, None] / micro_batches
    return float(last_backwards(micro_batches, np.zeros_like(one[0]), *one).max())
