"""How often a step reduces the gradients that it accumulates."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.analysis.collectives import during_steps
from dsprof.findings.facts import Facts, once
from dsprof.findings.finding import Advice
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


def too_often(facts: Facts) -> str:
    """That gradients are reduced more often than an update needs, for a title; else ""."""
    times = reductions_of_a_step(facts)
    return f"gradients are reduced {times:,} times for one update" if times else ""


def said_of_each_time(facts: Facts) -> str:
    """The same in sentences."""
    times = reductions_of_a_step(facts)
    if not times:
        return ""
    return (
        f"Gradients are reduced in each of {times:,} backwards of a step. Once is enough, unless "
        "the script uses them before the update."
    )


def once_an_update(facts: Facts) -> tuple[Advice, ...]:
    """To reduce them once an update, where they are reduced more often."""
    times = reductions_of_a_step(facts)
    if not times:
        return ()
    if facts.is_torch_alone:
        why = "what they accumulate is then reduced once, with the last one"
        return (Advice("DistributedDataParallel.no_sync()", "", "all but the last backward", why),)
    why = "or no_sync() around all but the last: each call reduces all gradients"
    return (Advice("engine.backward() of a step", str(times), "1, of the sum of losses", why),)


def _of_ddp(facts: Facts) -> int:
    """Of DDP each reduction is recorded as a call for each bucket, of the same sizes in each
    backward. If there are more calls, they are of other things, too.
    """
    buckets = facts.run.config.get("gradient_buckets")
    calls = during_steps(facts.run.comm, facts.steps)
    inside = calls["phase"].astype("str").str.startswith("backward").to_numpy(bool, na_value=False)
    calls = where(calls, inside & calls["op"].eq("all_reduce").to_numpy(bool))
    phases = facts.run.phases
    updates = phases["count"][phases["name"].eq("step").fillna(value=False)]
    # An update that calls for gradients itself needs each of them.
    if not buckets or calls.empty or (updates > 1).any():
        return 0
    of_size = _beside_backwards(facts, calls, [*_VISIT, "bytes"])
    alike = of_size["backwards"].gt(1) & (of_size["often"] % of_size["backwards"] == 0)
    both = _beside_backwards(facts, calls, _VISIT)
    each = both["often"].eq(both["backwards"] * int(buckets))
    return int(both["backwards"].median()) if len(both) and alike.all() and each.all() else 0


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
