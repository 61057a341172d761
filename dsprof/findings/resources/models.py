"""Ranks whose GPUs are of another model than those of the others."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dsprof.events import Kind
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice
from dsprof.run.table import of_kind


class OtherModel(NamedTuple):
    """The models of some ranks' GPUs, of which no other rank has one."""

    own: str
    others: str

    def said(self, many: int) -> str:
        """Of so many ranks."""
        them = "They run" if many > 1 else "It runs"
        return f" {them} on {self.own}, the others on {self.others}."

    def advice(self, who: str) -> Advice:
        why = "each step takes as long as on the slowest GPU"
        return Advice(f"the GPU of {who}", self.own, f"{self.others}, or none", why)


def other_model(facts: Facts, ranks: Collection[int]) -> OtherModel | None:
    """None where the ranks share a model with another one, or a recording does not tell it."""
    rows = of_kind(facts.run.told, Kind.CONFIG, "gpu_model")
    last = rows[rows["rank"].notna()].drop_duplicates("rank", keep="last")
    told = {int(rank): str(text) for rank, text in zip(last["rank"], last["text"], strict=True)}
    own = {told.get(rank) for rank in ranks}
    others = {model for rank, model in told.items() if rank not in ranks}
    if None in own or not own or not others or own & others:
        return None
    return OtherModel(*(" or ".join(sorted(map(str, some))) for some in (own, others)))
