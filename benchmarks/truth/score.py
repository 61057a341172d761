"""Compare what was said about a case with what was planted in it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Final, Literal

from benchmarks.truth.cases import ADVISED, UNKNOWN, Case
from benchmarks.truth.launch import RANKS
from dsprof.errors import DsprofError
from dsprof.events import Severity
from dsprof.findings import Finding
from dsprof.run import load

Source = Literal["recording", "log"]
#: What a size may be off: a part of the truth, or seconds, whichever is more.
PART, SECONDS = 0.15, 0.002
#: A twin's difference must be known better than that, in standard errors.
ERRORS: Final = 2.0
STAGES: Final = 2


@dataclass(frozen=True)
class Truth:
    """The size of a loss, seconds per step."""

    seconds: float
    error: float = 0.0  # standard error, where it is a difference of two measurements

    @property
    def tolerance(self) -> float:
        return max(PART * self.seconds, SECONDS)

    @property
    def resolved(self) -> bool:
        return ERRORS * self.error <= self.tolerance


@dataclass(frozen=True)
class Score:
    """One answer to one case.

    Attributes:
        said: the rule of the first finding, "" where there is no warning.
        right: whether rule, rank and phase are as they must be.
        tells: whether the source can tell the fault; else "unknown" is right.
        seconds, truth: what it said the loss is, and what it is; None where it has no size.
    """

    case: Case
    source: Source
    said: str
    rank: int | None
    phase: str | None
    right: bool
    tells: bool
    seconds: float | None
    truth: Truth | None
    others: tuple[str, ...]  # further warnings

    @property
    def sized(self) -> bool | None:
        """Whether the size is right; None where there is none, or the truth is not resolved."""
        if not self.right or self.truth is None or not self.truth.resolved:
            return None
        return self.seconds is not None and (
            abs(self.seconds - self.truth.seconds) <= self.truth.tolerance
        )


def score(case: Case, folder: Path, source: Source) -> Score:
    found = findings_of(folder / ("recording" if source == "recording" else "log.txt"), case.link)
    loud = [one for one in found if one.severity != Severity.INFO]
    first = loud[0] if loud else None
    said = first.rule if first else (found[0].rule if _silent(found) else "")
    rank = first.ranks[0] if first and len(first.ranks) == 1 else None
    phase = first.phase if first else None
    rules = case.right.rules if source == "recording" or case.right.log is None else case.right.log
    exact = source == "recording"
    named = _names(rank, case.right.rank, exact=exact) and _in(phase, case.right.phase, exact=exact)
    return Score(
        case, source, said, rank, phase,
        right=said in rules and (said in UNKNOWN or named),
        tells=not set(rules) & set(UNKNOWN),
        seconds=first.seconds_per_step if first else None,
        truth=true_loss(case, folder) if exact else None,
        others=tuple(one.rule for one in loud[1:]),
    )  # fmt: skip


def findings_of(path: Path, link: str | None) -> list[Finding]:
    try:
        return load(path, link=link).findings
    except DsprofError:
        return []


def _silent(found: Sequence[Finding]) -> bool:
    return bool(found) and found[0].rule in UNKNOWN


def _names(rank: int | None, wanted: int | None, *, exact: bool) -> bool:
    """A log that names no rank is not wrong."""
    return wanted is None or rank == wanted or (rank is None and not exact)


def _in(phase: str | None, wanted: tuple[str, ...], *, exact: bool) -> bool:
    return not wanted or phase in wanted or not exact


def books_of(folder: Path) -> list[dict[str, Any]]:
    """What each rank wrote of itself; empty where its process was ended."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]


def true_loss(case: Case, folder: Path) -> Truth | None:
    """Seconds per step that the fault costs, without the first step; None where it has none."""
    books = books_of(folder)
    if case.measure == "none" or len(books) < RANKS:
        return None
    if case.measure == "twin":
        return _against_twin(books)
    of_ranks = [_OF_RANK[case.measure](book, case) for book in books]
    return Truth(fmean(of_ranks) if case.plant.rank is None else of_ranks[case.plant.rank])


def _planted(book: dict[str, Any], case: Case) -> float:
    """What was planted, measured around the delays alone."""
    del case
    return fmean(book["planted"][1:])


def _bubble(book: dict[str, Any], case: Case) -> float:
    """A stage idles while the first micro-batch comes to it and the last one leaves: (p-1)/m."""
    return (STAGES - 1) / case.job.micro * fmean(book["device"][1:])


def _skipped(book: dict[str, Any], case: Case) -> float:
    """The time of the steps that taught nothing."""
    del case
    return float(book["skipped"]) / len(book["steps"]) * fmean(book["steps"][1:])


def _update(book: dict[str, Any], case: Case) -> float:
    """The whole update where it is offloaded: all of it is on the host."""
    del case
    return fmean(book["update"][1:])


_OF_RANK: Final = {
    "planted": _planted, "bubble": _bubble, "skipped": _skipped, "update": _update,
}  # fmt: skip


def _against_twin(books: list[dict[str, Any]]) -> Truth:
    """What a step takes longer than that of the twin, mean of the ranks."""
    return _longer_than([book["twins"] for book in books], books, 1.0)


def _longer_than(
    others: list[list[list[float]]], books: list[dict[str, Any]], scale: float
) -> Truth:
    """By how much steps are longer than those of other blocks, times `scale`; mean of ranks."""
    more, errors = [], []
    for book, blocks in zip(books, others, strict=True):
        steps = book["steps"][1:]
        other = [scale * seconds for block in blocks for seconds in block]
        more.append(fmean(steps) - fmean(other))
        errors.append(math.sqrt(pvariance(steps) / len(steps) + pvariance(other) / len(other)))
    return Truth(max(fmean(more), 0.0), fmean(errors))


@dataclass(frozen=True)
class Advised:
    """Advice that was followed: what it should have gained, and what it did, seconds per step."""

    case: Case
    setting: str
    predicted: tuple[float, float] | None
    gained: Truth

    @property
    def inside(self) -> bool:
        """Within the printed interval, as far as the gain is known."""
        if self.predicted is None:
            return False
        low, high = self.predicted
        error = ERRORS * self.gained.error
        return low - error <= self.gained.seconds <= high + error

    @property
    def off(self) -> float | None:
        """By how much the middle of the interval is off, as a part of the gain."""
        if self.predicted is None or not self.gained.seconds:
            return None
        return abs(sum(self.predicted) / 2 - self.gained.seconds) / self.gained.seconds


def advised(case: Case, folder: Path) -> Advised | None:
    """The advice of the right finding against the job that followed it; per the same samples."""
    changes, books = ADVISED.get(case.name), books_of(folder)
    if changes is None or len(books) < RANKS or not books[0].get("mended"):
        return None
    scale = case.job.micro / changes.get("micro", case.job.micro)
    gained = _longer_than([book["mended"] for book in books], books, scale)
    found = findings_of(folder / "recording", case.link)
    one = next((one for one in found if one.rule in case.right.rules), None)
    if one is None:
        return Advised(case, "", None, gained)
    return Advised(case, one.advice[0].setting if one.advice else "", one.gain, gained)
