"""How often a step reduces the gradients that it accumulates."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.analysis.collectives import SMALL, during_steps
from dsprof.findings.facts import Facts, once
from dsprof.run.table import numbers, where

_VISIT: Final = ["segment", "engine", "step", "rank"]


@once
def reductions_of_a_step(facts: Facts) -> int:
    """Reductions of all gradients in the usual step of a recording that makes one in each of
    several backwards; 0 elsewhere.
    """
    if not facts.run.is_recording or facts.breakdown is None:
        return 0
    return _of_ddp(facts) if facts.is_torch_alone else _of_an_engine(facts)


def _of_ddp(facts: Facts) -> int:
    """Of DDP each reduction is recorded as calls of equal size, as many as it has buckets. If calls
    differ in size, they are of other things, too.
    """
    buckets = facts.run.config.get("gradient_buckets")
    calls = during_steps(facts.run.comm, facts.steps)
    calls = where(calls, calls["op"].eq("all_reduce").to_numpy(bool) & (calls["bytes"] >= SMALL))
    if not buckets or calls.empty or calls["bytes"].min() < calls["bytes"].max():
        return 0
    phases = facts.run.phases
    updates = phases["count"][phases["name"].eq("step").fillna(value=False)]
    if (updates > 1).any():  # an update that calls for gradients itself needs each of them
        return 0
    both = _beside_backwards(facts, calls, _VISIT)
    each = both["backwards"].gt(1) & both["often"].eq(both["backwards"] * int(buckets))
    return int(both["backwards"].median()) if len(both) and each.all() else 0


def _of_an_engine(facts: Facts) -> int:
    """A DeepSpeed engine of ZeRO 0 or 1 that accumulates nothing reduces in each backward that the
    script calls before its update, of a second loss, say: each bucket as often as there are
    backwards. Under `no_sync` the last backward alone does.
    """
    accumulates = facts.run.config.get("gradient_accumulation_steps") != 1
    if accumulates or facts.layout.zero_stage not in (0, 1):
        return 0
    calls = during_steps(facts.run.comm, facts.steps)
    reduced = calls["phase"].astype("str").eq("backward/reduce").to_numpy(bool, na_value=False)
    both = _beside_backwards(facts, where(calls, reduced), [*_VISIT, "op", "bytes"])
    each = both["backwards"].gt(1) & (numbers(both["often"]) % numbers(both["backwards"]) == 0)
    return int(both["backwards"].median()) if len(both) and each.all() else 0


def _beside_backwards(facts: Facts, calls: pd.DataFrame, of: list[str]) -> pd.DataFrame:
    """How many calls (`often`) and `backwards` each rank made in each step, by the columns `of`."""
    often = calls.groupby(of, dropna=False, observed=True)["count"].sum().rename("often")
    phases = facts.run.phases
    backward = where(phases, phases["name"].eq("backward").to_numpy(bool, na_value=False))
    backward = backward[[*_VISIT, "count"]].rename(columns={"count": "backwards"})
    return backward.merge(often.reset_index(), on=_VISIT)
