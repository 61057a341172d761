"""What the screens show, as plain values: no widget computes anything."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dsprof.findings import Finding

if TYPE_CHECKING:
    from dsprof.text.parts import Part

Lines = tuple[tuple[int, bytes], ...]  # number and bytes of each

State = Literal["waiting", "running", "silent", "ended", "died"]


@dataclass(frozen=True, slots=True)
class Bar:
    """One step: seconds per class, in the order of `events.Class`; None if nobody told."""

    step: int
    seconds: float
    classes: tuple[float | None, ...]
    bound: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The last steps in numbers: `seconds` of the mean step, `eta` seconds to go; `seconds_apart`
    from step to step, where a recording's engines take turns."""

    total_steps: int | None = None
    eta: float | None = None
    seconds: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    tflops: float | None = None
    loss: float | None = None
    seconds_apart: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence about some steps; `seconds`, `classes` and `parts` are of their mean step, the
    parts as a report shows them. `whose`: of which ranks that is the mean, "" of one."""

    title: str
    severity: str
    steps: int
    seconds: float | None
    classes: dict[str, float]
    parts: tuple[Part, ...] = ()
    whose: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A finding, and how long it has been there. Times are seconds since 1970."""

    key: Hashable  # stays when its numbers change
    finding: Finding
    since: float
    gone: float | None  # when it was seen no more
    now: bool  # of the last steps; False: of the whole run alone


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank's mean step of the last steps, in seconds."""

    rank: int
    host: str
    state: str
    step: int | None
    seconds: float | None
    phases: tuple[float | None, ...]  # self time, in the order of `RankTable.phases`
    #: What the median rank waits more than this one, wherever it loses its time. Where no rank
    #: tells of waiting: own work beyond the median rank's.
    late_by: float | None
    waits: float | None  # in collectives and for peers
    operation: str | None  # collective or phase that it is in, where it is silent or died
    code: str = ""  # the line of the job that it stands in there, where its stack was seen


@dataclass(frozen=True, slots=True)
class RankTable:
    """All ranks: hosts and their ranks with the latest first."""

    phases: tuple[str, ...] = ()
    medians: tuple[float, ...] = ()
    rows: tuple[RankRow, ...] = ()
    late: int | None = None  # whom the others wait for
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class CommRow:
    """Calls of one operation and size, of one rank."""

    op: str
    bytes: float | None
    count: float
    seconds: float | None
    exposed: float | None
    busbw: float | None  # bytes per second
    link: float | None  # part of the link's speed


@dataclass(frozen=True, slots=True)
class CommTable:
    """Means of one step, over `steps`; where none is known, sums since the start."""

    rows: tuple[CommRow, ...] = ()
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Memory of a rank in bytes; `full` is seconds until the limit at its present pace."""

    rank: int | None
    host: str
    allocated: float | None
    reserved: float | None
    peak: float | None
    process: float | None
    host_used: float | None  # of its host, by all processes
    device: float | None  # of its GPU, by all processes
    limit: float | None
    per_step: float | None
    full: float | None
    trail: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GpuRow:
    """The last sample of a GPU: measure (of `events.GPU`) to value, and what holds it down."""

    rank: int | None
    host: str
    values: dict[str, float]
    reasons: str


@dataclass(frozen=True, slots=True)
class ProblemRow:
    kind: str
    severity: str
    rank: int | None
    host: str
    step: int | None
    text: str
    first: bool  # what came first
    source: str
    line: int | None


@dataclass(frozen=True, slots=True)
class Tail:
    """The last lines of a log, and the numbers of those that were read as metrics or events.

    `counted`: False while it is not known how many lines stand before what was read: these numbers
    are then none of the file's.
    """

    lines: Lines
    metrics: frozenset[int]
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Picture:
    """The run as of `at` (seconds since 1970). None where the source does not say.

    `state`: "waiting" for a first step; "silent": nothing was written for `idle` seconds.
    `logs`: names of those whose lines can be looked at. `records`: how many were printed, where no
    line tells of which step they are. `judged`: False until the steps read first have been judged;
    what is empty may then not be for long.
    """

    at: float
    state: State
    note: str
    idle: float | None
    sources: tuple[str, ...]
    logs: tuple[str, ...]
    world: int | None
    launches: int
    step: int | None
    records: int | None
    behind: int
    figures: Figures
    bars: tuple[Bar, ...]
    now: Verdict | None
    since: Verdict | None
    findings: tuple[Sighting, ...]
    ranks: RankTable
    comm: CommTable
    memory: tuple[MemoryRow, ...]
    gpus: tuple[GpuRow, ...]
    problems: tuple[ProblemRow, ...]
    judged: bool = True

    @property
    def noun(self) -> str:
        """What is counted: steps, or records where no line tells of which step they are."""
        return "record" if self.records else "step"
