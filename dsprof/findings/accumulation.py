"""How often DDP reduces the gradients that a step accumulates."""

from __future__ import annotations

from dsprof.analysis.collectives import SMALL, during_steps
from dsprof.findings.facts import Facts
from dsprof.run.table import where


def reductions_of_a_step(facts: Facts) -> int:
    """All-reduces of all gradients in the usual step of a recording that makes one in each of
    several backwards; 0 elsewhere.

    DDP records one for each backward, with the bytes of all gradients. If they differ in size, they
    are of other things, too.
    """
    if not facts.run.is_recording or not facts.is_torch_alone or facts.breakdown is None:
        return 0
    calls = during_steps(facts.run.comm, facts.steps)
    calls = where(calls, calls["op"].eq("all_reduce").to_numpy(bool) & (calls["bytes"] >= SMALL))
    if calls.empty or calls["bytes"].nunique() > 1:
        return 0
    visits = ["segment", "engine", "step", "rank"]
    often = calls.groupby(visits, dropna=False).size().rename("often")
    phases = facts.run.phases
    updates = phases["count"][phases["name"].eq("step").fillna(value=False)]
    if (updates > 1).any():  # an update that calls for gradients itself needs each of them
        return 0
    backward = where(phases, phases["name"].eq("backward").to_numpy(bool, na_value=False))
    both = backward.merge(often.reset_index(), on=visits)
    each = both["often"].gt(1) & both["count"].eq(both["often"])
    return int(both["often"].median()) if len(both) and each.all() else 0
