"""What recorded steps do anew: make iterators of data loaders, compile graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.looks import Code, code_at
from dsprof.analysis.trends import Floats
from dsprof.events import Kind
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice
from dsprof.findings.seen.code_seen import beginning, others_look_alike
from dsprof.run.table import STEP, numbers, of_kind, positions

_COMPILED: Final = "compilations"
_ITERATORS: Final = "data_iterators"


#: Of mmengine, whose `_InfiniteDataloaderIterator` sleeps before it starts a loader anew.
INFINITE: Final = Advice(
    "sampler of the data loader",
    "",
    "mmengine's InfiniteSampler",
    "mmengine sleeps for two seconds whenever the loader ends, in what it counts as data_time",
)


def loading(facts: Facts) -> Advice:
    """How batches would come earlier. A recording knows how many workers make them, and where
    iterators, which start these workers, are made."""
    if facts.run.config.get("loader_sleeps"):
        return INFINITE
    made = int((counts(facts, facts.steps, _ITERATORS) > 0).sum())
    if made > 1 and 2 * made >= len(facts.steps):
        return Advice(
            "iterators of the data loader",
            f"made in {made:,} of {len(facts.steps):,} steps",
            "one for many steps",
            "each draws its order and starts its workers anew, and what they had ahead is lost",
        )
    setting, now = "DataLoader(num_workers=...)", facts.run.config.get("data_workers")
    if not now:
        few = "2 to 4 a rank"
        if now is None:
            few = "more than its 2 a rank" if facts.is_megatron_alone else f"{few}, if it has fewer"
        return Advice(setting, "" if now is None else "0", few, "batches are made ahead")
    why = "batches are made ahead; they come this late with as many as now"
    return Advice(setting, str(now), "more, if the host has idle cores", why)


def making_batches(facts: Facts, ranks: Sequence[int] = ()) -> Code | None:
    """What was seen to run while the loader makes batches in the process that trains, of all ranks
    or some."""
    run = facts.run
    if not run.is_recording or run.config.get("data_workers") or facts.engine is not None:
        return None
    if ranks and others_look_alike(facts, "data", ranks, inside=True):
        return None
    return code_at(run.told, inside=True, ranks=ranks, since=beginning(facts.steps))


def iterating(facts: Facts, steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> bool:
    """Whether iterators of data loaders are made in most of these `rows` of `steps`."""
    made = counts(facts, steps, _ITERATORS) > 0
    return 2 * int(made[rows].sum()) >= len(rows)


def compiling(facts: Facts, steps: pd.DataFrame, rows: npt.NDArray[np.intp]) -> int:
    """In how many of the steps that stick out (`rows` of `steps`) graphs are compiled; 0 unless in
    most of them and in few others."""
    compiled = compiles(facts, steps)
    among = int(compiled[rows].sum())
    return among if 2 * among >= len(rows) and int(compiled.sum()) <= 2 * among else 0


def compiles(facts: Facts, steps: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether graphs are compiled in each of these steps."""
    return counts(facts, steps, _COMPILED) > 0


def is_compiling(among: int, rows: npt.NDArray[np.intp]) -> str:
    """The end of a title, if there are such steps."""
    which = (
        "it" if len(rows) == 1 else "each of them" if among == len(rows) else f"{among:,} of them"
    )
    return f": torch.compile compiles in {which}" if among else ""


COMPILED_ANEW: Final = Advice(
    "what torch.compile is given",
    "",
    "the same shapes and values in each step, or dynamic=True",
    "it compiles anew when what it assumed of them changes: TORCH_LOGS=recompiles says what",
)


def counts(facts: Facts, steps: pd.DataFrame, name: str) -> Floats:
    """Of each of these steps."""
    rows = of_kind(facts.run.told, Kind.METRIC, name)
    place, value = positions(steps, rows, *STEP), numbers(rows["value"])
    inside = place >= 0
    return np.asarray(np.bincount(place[inside], value[inside], len(steps)), np.float64)
