"""What ranks that are stopped have in common: those that wait for a CPU, or collect garbage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dsprof.analysis.ranks import Straggler
from dsprof.findings.facts import Facts
from dsprof.findings.thresholds import CPU_SAMPLES, WAITING_EXPLAINS


class Stopped(Protocol):
    """A rank, and for what share of the time it was stopped, by so many samples."""

    @property
    def rank(self) -> int: ...
    @property
    def share(self) -> float: ...
    @property
    def samples(self) -> int: ...


class Longer(NamedTuple):
    """Seconds per step for which late ranks are stopped at least, and the others at most."""

    own: float
    others: float


def judged_launches(facts: Facts) -> list[int]:
    """Those that a recording was made of, and that findings are about."""
    known = facts.run.is_recording and len(facts.steps)
    return facts.steps["segment"].unique().tolist() if known else []


def is_sampled(one: Stopped) -> bool:
    return one.samples >= CPU_SAMPLES


def longer_than_others(facts: Facts, late: Straggler, stopped: Sequence[Stopped]) -> Longer | None:
    """How much longer late ranks are stopped than the others, if that is most of the delay."""
    mine = [one.share for one in stopped if one.rank in late.group]
    others = [one.share for one in stopped if one.rank not in late.group]
    if len(mine) < len(late.group) or not others or not facts.average:
        return None
    found = Longer(min(mine) * facts.average, max(others) * facts.average)
    return found if found.own - found.others >= WAITING_EXPLAINS * late.delay else None


def how_many(who: Sequence[int], of: int) -> str:
    """The beginning of a title about several ranks."""
    return f"{len(who):,} of {of:,}" if len(who) < of else "Both" if of == 2 else "All"
