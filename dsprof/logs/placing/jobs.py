"""Which of several files are of one job, where something shows that they are not all of one.

Files are of different jobs if a setting that a job has once is told differently, or if the same
rank tells the same steps in both at the same time. Nothing of one job may then be a number of
another's: one of them is read, and the others are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.several import Extent, rivals

#: What every process of a job is told alike.
SETTINGS: Final = (
    "world_size", "zero_stage", "train_batch_size", "gradient_accumulation_steps", "seq_length",
    "data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size", "parameters",
)  # fmt: skip
#: What a restart on fewer or more ranks changes.
_ELASTIC: Final = frozenset(
    {"world_size", "data_parallel_size", "train_batch_size", "gradient_accumulation_steps"}
)
_ALIKE: Final = 3  # settings told alike, that two jobs seldom share

Settings = Mapping[str, frozenset[float]]


class Told(NamedTuple):
    """What one file tells of its job.

    Attributes:
        family: its name without the rank or host in it: such files belong together.
        settings: the values of those among `SETTINGS` that it tells.
        records: how many it holds.
    """

    family: str
    settings: Settings
    extent: Extent
    records: int


class Jobs(NamedTuple):
    """Files by job.

    Attributes:
        files: the places of each job's files, in order; first the job that tells most steps.
        why: what shows that there are several; "" of one.
    """

    files: list[list[int]]
    why: str


@dataclass(slots=True)
class _Job:
    """Files that are of one job, as far as is known."""

    files: list[int] = field(default_factory=list)
    settings: dict[str, frozenset[float]] = field(default_factory=dict)
    begin: int = UNKNOWN
    end: int = UNKNOWN
    reached: int = 0  # the highest step
    steps: int = 0  # most of one file
    records: int = 0

    def add(self, file: int, told: Told) -> None:
        one = told.extent
        self.files.append(file)
        for name, values in told.settings.items():
            self.settings[name] = self.settings.get(name, frozenset()) | values
        if one.begin != UNKNOWN:
            self.begin = one.begin if self.begin == UNKNOWN else min(self.begin, one.begin)
            self.end = max(self.end, one.end)
        self.reached = max(self.reached, one.last)
        self.steps = max(self.steps, len(one.steps))
        self.records += told.records

    def join(self, other: _Job, files: Sequence[Told]) -> None:
        for file in other.files:
            self.add(file, files[file])

    def differs(self, settings: Settings) -> str:
        """A setting that is told otherwise here; "" if none is."""
        return next(self.all_that_differ(settings), "")

    def all_that_differ(self, settings: Settings) -> Iterator[str]:
        shared = (name for name in SETTINGS if name in self.settings and name in settings)
        return (n for n in shared if self.settings[n].isdisjoint(settings[n]))

    def ran_beside(self, other: _Job) -> bool:
        known = UNKNOWN not in (self.begin, other.begin)
        return known and self.begin <= other.end and other.begin <= self.end


def jobs_of(files: Sequence[Told]) -> Jobs:
    """The jobs that files are of; all of one where nothing shows that there are several."""
    whole = list(range(len(files)))
    families = _with_restarts(_families(files), files)
    of = {file: number for number, one in enumerate(families) for file in one.files}
    against: defaultdict[int, set[int]] = defaultdict(set)
    same = ""
    for one, other in rivals([told.extent for told in files]):
        if of[one] != of[other]:
            against[of[one]].add(other)
            against[of[other]].add(one)
            same = "the same rank tells the same steps in two of them (two jobs, or copies)"
    why = _told_differently(families) or same
    if not why:
        return Jobs([whole], "")
    jobs: list[_Job] = []
    for number in sorted(range(len(families)), key=lambda n: -len(families[n].settings)):
        family = families[number]
        found = _job_among(jobs, family, against[number])
        if found is None:
            jobs.append(family)
        else:
            found.join(family, files)
    jobs.sort(key=lambda job: (-job.steps, -job.records, min(job.files)))
    return Jobs([sorted(job.files) for job in jobs], why)


def _families(files: Sequence[Told]) -> list[_Job]:
    """Files whose names say that they belong together, and whose settings do not say no."""
    found: defaultdict[str, list[_Job]] = defaultdict(list)
    for number, told in enumerate(files):
        family = next((f for f in found[told.family] if not f.differs(told.settings)), None)
        if family is None:
            family = _Job()
            found[told.family].append(family)
        family.add(number, told)
    return [job for jobs in found.values() for job in jobs]


def _with_restarts(families: Sequence[_Job], files: Sequence[Told]) -> list[_Job]:
    """A job that went on elsewhere, on fewer or more ranks, is one."""
    jobs: list[_Job] = []
    for family in sorted(families, key=lambda job: job.begin):
        marks = [files[file].extent for file in family.files if len(files[file].extent.steps) > 1]
        every = min((int(np.median(np.diff(one.steps))) for one in marks), default=0)
        first = min((one.first for one in marks), default=0)
        earlier = reversed(jobs) if every < first else ()
        job = next((job for job in earlier if _goes_on(family, first - every, job)), None)
        if job is None:
            jobs.append(family)
        else:
            job.join(family, files)
    return jobs


def _goes_on(later: _Job, step: int, earlier: _Job) -> bool:
    """Whether it begins behind the other's end, and behind a `step` that the other had reached."""
    if step > earlier.reached or UNKNOWN in (later.begin, earlier.begin):
        return False
    differ = set(later.all_that_differ(earlier.settings)) if later.begin >= earlier.end else set()
    return bool(differ) and differ <= _ELASTIC


def _told_differently(families: Sequence[_Job]) -> str:
    """A setting that two of them tell differently, and both values; "" if there is none."""
    distinct = {frozenset(one.settings.items()): one for one in families}
    for one, other in combinations(distinct.values(), 2):
        name = one.differs(other.settings)
        if name:
            least, most = sorted(max(job.settings[name]) for job in (one, other))
            return f"{name} is {least:,.0f} in one and {most:,.0f} in another"
    return ""


def _job_among(jobs: Sequence[_Job], family: _Job, against: set[int]) -> _Job | None:
    """The job that files are of: the one of the same settings, else the only one beside which
    they were written; None if they are of none of these, or nothing says of which."""
    if not family.settings and family.begin == UNKNOWN:
        return None
    may = [
        job for job in jobs if against.isdisjoint(job.files) and not job.differs(family.settings)
    ]
    for job in may:
        if len(job.settings.keys() & family.settings.keys()) >= _ALIKE:
            return job
    beside = [job for job in may if job.ran_beside(family)]
    return beside[0] if len(beside) == 1 else None
