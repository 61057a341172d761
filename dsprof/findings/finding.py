"""What a rule hands back: a finding, or the reason why it cannot judge."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from dsprof.events import Severity

Confidence = Literal["high", "medium", "low"]

#: What a share in a title is of, where steps are the sums of their timers.
OF_TIMED: Final = "of what is timed of a step"


#: How a summary says how sure it is: as a sentence with the reason, or behind the reason.
_SENTENCE: Final = re.compile(r"\b(?:High|Medium|Low) confidence: (\w)")
_ASIDE: Final = re.compile(
    r"(?:, hence|:) (?:high|medium|low) confidence(?: (?:about|in) the \w{1,20})?(?=[.:)])"
)


class Evidence(NamedTuple):
    """A place that proves a finding."""

    source: str  # file, or "" for a number that is derived from many lines
    line: int | None
    text: str


class Advice(NamedTuple):
    """One thing to change."""

    setting: str  # DeepSpeed config key (dotted), launch option or environment variable
    now: str  # its value in this run, "" if unknown
    to: str
    why: str

    @property
    def verb(self) -> str:
        """Whether it is something to do, as to run a command or to look at a log, or to change."""
        is_command = self.setting.partition(" ")[0].rstrip(",") in _COMMANDS
        return "Do" if is_command or self.to.partition(" ")[0] in _DONE else "Change"

    @property
    def is_in_words(self) -> bool:
        """Whether `setting` describes what to change or do, instead of naming a key or option."""
        return " " in self.setting


#: Commands, and how what is to be done begins, in the advice of rules.
_COMMANDS: Final = (
    "dmesg", "dsprof", "hccn_tool", "ibstat", "npu-smi", "nvidia-smi", "py-spy", "ray",
    "rocm-smi", "sacct", "ssh", "tmux", "torchfrtrace",
)  # fmt: skip
_DONE: Final = ("check", "compare", "look", "nvidia-smi", "see", "top")


@dataclass(frozen=True, slots=True)
class Finding:
    """One true sentence about a run, its price, its proof and what to do about it.

    Seconds are of one optimizer step; `share` is their part of the step, 0 to 1.
    None means unknown.
    """

    rule: str
    severity: Severity
    title: str
    summary: str
    share: float | None = None
    seconds_per_step: float | None = None
    ranks: tuple[int, ...] = ()
    phase: str | None = None
    steps: tuple[int, int] | None = None  # first and last optimizer step it speaks of
    engine: int | None = None  # the one whose step it is of; None: the job has only one, or all
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    gain: tuple[float, float] | None = None  # low and high, seconds per step
    what_if: str = ""  # what `gain` was replayed for, "rank 5 were not late"; "" if it is reckoned
    gain_why: str = ""  # why `gain` is more than `seconds_per_step`; "" where it is not
    confidence: Confidence = "high"


def says_confidence(found: Finding) -> bool:
    """Whether its summary says how sure it is, and why: nothing near it need say so again."""
    return f"{found.confidence} confidence" in found.summary.lower()


def less_sure(found: Finding, confidence: Confidence, why: str) -> Finding:
    """The same with that confidence, for that reason. Reasons to be unsure that the summary had
    stay; how sure it was then does not."""
    said = _SENTENCE.sub(lambda reason: reason[1].upper(), _ASIDE.sub("", found.summary))
    summary = f"{said} {confidence.title()} confidence: {why}.".lstrip()
    return replace(found, summary=summary, confidence=confidence)


class Abstention(NamedTuple):
    """A rule that could not judge, and what it would need."""

    rule: str
    why: str
