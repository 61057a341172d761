"""What the events say of the last steps and of the whole run, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsprof.events import CLASSES
from dsprof.findings import Finding
from dsprof.live.picture import (
    Bar,
    CommTable,
    Figures,
    GpuRow,
    MemoryRow,
    ProblemRow,
    RankTable,
    Verdict,
)

Numbers = np.ndarray[Any, Any]
Place = tuple[int, int, int]  # segment, step, engine


@dataclass(frozen=True, slots=True)
class RankBars:
    """Every rank's own last steps: `seconds` has a row for each rank and step, a column a class.

    Attributes:
        lasted: seconds of each of these steps, NaN where only its phases are known.
    """

    ranks: Numbers = field(default_factory=lambda: np.empty(0))
    steps: Numbers = field(default_factory=lambda: np.empty(0))
    seconds: Numbers = field(default_factory=lambda: np.empty((0, len(CLASSES))))
    lasted: Numbers = field(default_factory=lambda: np.empty(0))

    def of(self, rank: int) -> list[Bar]:
        """The bars of one rank; what holds it back is not judged."""
        own = self.ranks == rank
        seconds = self.seconds[own]
        whole = np.fmax(seconds.sum(axis=1), self.lasted[own]).tolist()
        return [
            Bar(int(step), lasted, tuple(row), "")
            for step, lasted, row in zip(self.steps[own], whole, seconds.tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Recent:
    """What follows from the last steps.

    Attributes:
        step: -1 before the first, and where no line tells a step number: then `records` counts
            what was printed.
        exited: processes of the last launch that a log says have ended well.
    """

    world: int | None = None
    step: int = -1
    records: int | None = None
    exited: int = 0
    failure: str = ""
    figures: Figures = field(default_factory=Figures)
    verdict: Verdict | None = None
    findings: tuple[Finding, ...] = ()
    bars: tuple[tuple[Place, Bar], ...] = ()
    own: RankBars = field(default_factory=RankBars)
    ranks: RankTable = field(default_factory=RankTable)
    comm: CommTable = field(default_factory=CommTable)
    memory: tuple[MemoryRow, ...] = ()
    gpus: tuple[GpuRow, ...] = ()

    @property
    def hangs(self) -> bool:
        """Whether `failure` is a hang."""
        return any(one.rule == "hang" and one.title == self.failure for one in self.findings)


@dataclass(frozen=True, slots=True)
class Whole:
    """What follows from all that is kept of the run."""

    segments: frozenset[int] = frozenset()
    verdict: Verdict | None = None
    findings: tuple[Finding, ...] = ()
    problems: tuple[ProblemRow, ...] = ()
