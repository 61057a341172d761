"""What every rule works on: a run and tables derived from it, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pandas as pd

from dsprof.analysis.breakdown import (
    Breakdown,
    breakdown_of,
    engines,
    left_aside,
    main_phases,
    main_steps,
    mean_of,
    pipeline_phases,
    regular_steps,
)
from dsprof.analysis.checkpoints import apart_from_saves
from dsprof.analysis.collectives import during_steps, held_up, per_step
from dsprof.analysis.compared import compared_steps, meetings
from dsprof.analysis.layout import Layout, layout_of
from dsprof.analysis.micro_batches import counted_micro_batches
from dsprof.analysis.ranks import Straggler, straggler
from dsprof.analysis.rates import configured_batch, counted_batch
from dsprof.analysis.rest import untimed_by_step
from dsprof.analysis.whatif import Ranks, Seconds, parts
from dsprof.events import CLASSES, Class
from dsprof.findings.job import Job
from dsprof.findings.thresholds import COMMUNICATION_SEEN, FEW_STEPS, GAIN_LOW, UNACCOUNTED_WARNING
from dsprof.run.recorded.moments import STEP as WHOLE
from dsprof.run.steps.durations import called, window
from dsprof.run.steps.zero import UNSEEN
from dsprof.run.table import STEP, among, plain, positions, visits, where, within
from dsprof.units import windows

if TYPE_CHECKING:
    from dsprof.run import Run

#: Up to this part of the longest, the mean steps of ranks that meet in them differ.
_ALIKE: Final = 0.15
_SOME: Final = 40  # steps, of which single ranks' lengths are read: enough for a mean
NO_TIMERS = "no timer tells where the time of a step goes"
NO_COMMUNICATION = UNSEEN
RANKS_UNTOLD = "no timer shows communication, and the number of ranks is unknown"
#: The doubt that memory_breakdown's lines raise.
COLLECTING = "memory-breakdown-inflates-backward"
NO_COMM = "no line shows single communication calls (comms_logger, or a recording)"


@dataclass(frozen=True)
class Facts(Job):
    """A job with its layout and average step.

    `engine` is the one that is judged if several share the run. `stuck_out` are the labels of the
    steps that `step-spikes` names; the other rules judge without them. `answers` holds the results
    of rules marked `once`.
    """

    engine: int | None = None
    stuck_out: tuple[int, ...] = ()
    answers: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Rows of `run.steps` that are used for statistics."""
        steps = main_steps(self.own_steps)
        return steps.drop(list(self.stuck_out)) if self.stuck_out else steps

    @cached_property
    def too_few(self) -> str | None:
        """Why these steps are too few to show that all is well; None if they are enough."""
        beyond = int((~self.steps["warm_up"].astype(bool)).sum())
        if beyond >= FEW_STEPS:
            return None
        many = f"{beyond} {called(self.steps, beyond)} beyond the warm-up"
        return f"too few steps to judge: {many}, {FEW_STEPS} needed"

    @cached_property
    def no_basis(self) -> str | None:
        """Why there is no usable average step: the only step is the first one, which also warms up.
        None if there is one.
        """
        if len(self.steps) != 1 or not self.steps["warm_up"].iloc[0]:
            return None
        lines = within(self.steps, self.run.told, *STEP)
        if (lines["steps"] > 1).any():  # a mean over a window of steps
            return None
        if self.run.counted and not self._begins:  # an excerpt from anywhere
            return None
        was = "may be" if self.run.counted else "is"  # unnumbered: perhaps an excerpt
        return (
            f"the only step with a time {was} the first of its launch, which also builds kernels, "
            "buckets and traces"
        )

    @cached_property
    def _begins(self) -> bool:
        """Whether settings, which a launch prints first, stand before its steps."""
        told = self.run.told
        settings = told.loc[told["kind"] == "config", "line"].dropna()
        return bool(len(settings) and settings.min() < self.steps["line"].min())

    @cached_property
    def series(self) -> pd.DataFrame:
        """Rows of `run.steps` whose seconds can be compared over time."""
        return regular_steps(self.own_steps)

    @cached_property
    def own_steps(self) -> pd.DataFrame:
        """Rows of `run.steps` of the judged engine."""
        steps = self.run.steps
        return steps if self.engine is None else steps[steps["engine"] == self.engine]

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Rows of `run.phases` of `steps`."""
        return main_phases(self.steps, self.run.phases)

    @cached_property
    def series_phases(self) -> pd.DataFrame:
        """Rows of `run.phases` of `series`."""
        return main_phases(self.series, self.run.phases)

    @cached_property
    def mean(self) -> Breakdown | None:
        """The average step; None if no step has a duration."""
        return breakdown_of(self.steps, self.run.phases)

    @cached_property
    def breakdown(self) -> Breakdown | None:
        """The average step; None unless the time of some class is known."""
        found = self.mean
        return found if found and found.classes and found.seconds > 0 else None

    @cached_property
    def hidden_communication(self) -> str | None:
        """Why communication may hide inside compute timers; None if it is known not to."""
        ranks = self.layout.world_size
        if self.breakdown is None or ranks == 1:
            return None
        several = ranks or (self.layout.data_parallel or 1) > 1
        unseen = NO_COMMUNICATION if several else RANKS_UNTOLD
        if self.run.mixed and self.seconds_of("communication") is None:
            return unseen if self.run.mixed == UNSEEN else self.run.mixed
        if len(counted := self.collectives_counted):
            missed = (counted["issued"] - counted["seen"]).to_numpy()
            if missed.max() > counted["seen"].to_numpy()[missed.argmax()]:
                return unseen  # as with tensor parallelism, whose collectives C++ issues
            if missed.max() < len(self.run.steps):  # outside of steps, see `findings.seen.unseen`
                return None
        moving = self.seconds_of("communication", "wait")
        if moving is None or moving < COMMUNICATION_SEEN * self.breakdown.seconds:
            return unseen
        return None if self.calls_are_logged else self.run.reduces_inside_backward

    @cached_property
    def least_communication(self) -> float | None:
        """Seconds per step of communication that has timers of its own although some also hides in
        others; None if there is no such case.

        Also None with an offloaded optimizer, because the reduction timer then includes copies of
        gradients to the host.
        """
        if self.breakdown is None or not self.run.mixed or self.is_offloaded:
            return None
        if self.seconds_of("communication") is not None:
            return None
        timed = float(self.phases_of("communication")["seconds"].sum())
        return timed if timed >= COMMUNICATION_SEEN * self.breakdown.seconds else None

    @cached_property
    def held_up(self) -> pd.DataFrame:
        """Trustworthy calls in these steps; `seconds` is the time for which each held
        up its step.
        """
        return during_steps(held_up(self.run.comm), self.steps)

    @cached_property
    def per_step(self) -> float | None:
        """The factor from a sum over `held_up` to one optimizer step of one rank; None if unknown.

        Of a recording every step counts, once for each rank that ended it: a step may have no call,
        and a rank may end fewer steps. Steps of which only sums are kept have no calls left.
        """
        if not self.exposure_is_known:
            return per_step(self.held_up, self.run.steps)
        phases = self.run.phases
        kept = where(phases, phases["count"].notna() | ~among(phases["name"], CLASSES))
        place = positions(self.steps, kept, *STEP)
        inside = place >= 0
        ended = len(visits(place[inside], plain(kept["rank"])[inside]))
        return 1.0 / ended if ended else None

    @cached_property
    def collecting(self) -> float:
        """Seconds per step that `memory_breakdown` itself may take.

        It collects Python's garbage between the timers, and inside backward's timer around what is
        timed there. If the latter is too little for a finding, this is 0: the timers are then
        trusted.
        """
        if self.breakdown is None or COLLECTING not in self.doubts:
            return 0.0
        rows = self.breakdown.phases
        rows = rows[(rows.index == "backward") & (rows["class"] == Class.OTHER) & ~rows["mixed"]]
        inside = float(rows["seconds"].sum())
        worth = inside >= UNACCOUNTED_WARNING * self.breakdown.seconds
        return inside + self.outside_timers if worth else 0.0

    @cached_property
    def outside_timers(self) -> float:
        """Seconds of an average step that no timer covers."""
        assert self.breakdown is not None
        timed = float(self.breakdown.phases["seconds"].sum())
        return max(0.0, self.breakdown.seconds - timed)

    @cached_property
    def layout(self) -> Layout:
        """As configured, but for micro-batches that recorded steps count otherwise, or that are
        known by what the engine prints of each alone.
        """
        found = layout_of(self.run.config, self.run.meta, pipeline=self.is_pipeline)
        if found.micro_batches is None and not self.run.is_recording:
            return replace(found, micro_batches=counted_micro_batches(self.run))
        counted = counted_batch(self.run, self.steps)
        configured = configured_batch(self.run, self.steps)
        if not (counted and configured and found.micro_batches):
            return found
        many = found.micro_batches * counted / configured
        return replace(found, micro_batches=int(many)) if many.is_integer() else found

    @cached_property
    def is_pipeline(self) -> bool:
        return self.breakdown is not None and len(pipeline_phases(self.breakdown.phases)) > 0

    @property
    def is_by_pipeline_engine(self) -> bool:
        """Whether DeepSpeed's own engine runs a pipeline, and no other trainer's."""
        if self.is_megatron_alone or self.is_torch_alone:
            return False
        return self.is_pipeline or (self.layout.stages or 1) > 1

    @cached_property
    def step_seconds(self) -> float | None:
        """Mean seconds of an optimizer step; None if no step has a duration."""
        return mean_of(self.steps, "seconds") if len(self.steps) else None

    def seconds_of(self, *classes: str) -> float | None:
        """Seconds per average step in these classes; None if the source has none of them."""
        return self.breakdown.of(*classes) if self.breakdown else None

    def share(self, seconds: float | None) -> float | None:
        """`seconds` as a share of the average step, including the steps that stick out: what those
        cost is given as a share of the same.
        """
        if seconds is None or not self.step_seconds:
            return None
        return seconds / (self.average or self.step_seconds)

    def share_of_waiting(self, seconds: float, late: Collection[int]) -> float | None:
        """`seconds` that ranks wait for the `late` ones as a share of their own step."""
        if self.unlike is None:
            return self.share(seconds)
        theirs = self.unlike.drop(list(late), errors="ignore")
        return seconds / float(theirs.mean()) if len(theirs) else None

    @cached_property
    def average(self) -> float | None:
        """Mean seconds over all steps; None unless the time of some class is known."""
        all_steps = replace(self, stuck_out=(), answers={}) if self.stuck_out else self
        return all_steps.breakdown.seconds if all_steps.breakdown else None

    def phases_of(self, *classes: str) -> pd.DataFrame:
        """Phases of an average step in these classes, largest first."""
        assert self.breakdown is not None
        table = self.breakdown.phases
        return where(table, [class_ in classes for class_ in table["class"]])

    @cached_property
    def windows(self) -> str:
        """What an average is based on, in words: `mean of 3 printed steps, 20 to 40`, or `mean of 3
        windows of 10 steps, printed at 20 to 40`.
        """
        assert self.breakdown is not None
        many, how = self.breakdown, self.run.steps_were
        count = "one" if many.windows == 1 else f"mean of {many.windows:,}"
        numbers = f"{many.first:,} to {many.last:,}" if many.windows > 1 else f"{many.last:,}"
        of = windows(window(self.steps), many.windows)
        what = f"{of}, {how} at" if of else f"{how} step{'s' * (many.windows > 1)},"
        return f"{count} {what} {numbers}{self._apart}"

    @cached_property
    def _apart(self) -> str:
        """What was left out, in words: other engines, a first step that warms up, spikes."""
        of = "" if self.engine is None else f", of engine {self.engine} alone"
        aside = left_aside(self.own_steps)
        many = len(self.stuck_out)
        spikes = f", without the {many:,} that stick{'s' * (many == 1)} out" if many else ""
        return of + aside + spikes

    @cached_property
    def straggler(self) -> Straggler | None:
        """The slowest rank; None if ranks cannot be compared, as stages of a pipeline cannot."""
        if self.is_pipeline:
            return None
        return straggler(apart_from_saves(self.compared), self.rest)

    @cached_property
    def rest(self) -> pd.DataFrame | None:
        """What no phase of a rank holds, by step; None in a log, whose timers may leave out more
        than a rank's own work; nor where ranks' steps are `unlike`, whose mean tells it of none.
        """
        if self.unlike is not None or not self.run.is_recording:
            return None
        return untimed_by_step(self.compared, self.series)

    @cached_property
    def unlike(self) -> pd.Series[float] | None:
        """Mean seconds of a step, by rank, where engines take turns and ranks meet in the steps of
        another one: what a rank loses in this engine's step others wait for there. Their own step
        of this engine is then shorter. None where all ranks' steps are about as long.
        """
        if self.engine is None or not self.run.is_recording:
            return None
        some = self.steps.sample(min(len(self.steps), _SOME), random_state=0)
        rows = self.run.moments(some, outer=True)
        whole = rows[(rows["what"] == WHOLE) & (rows["engine"] == self.engine)]
        each = whole.groupby("rank")["seconds"].mean()
        return each if len(each) and each.min() < (1 - _ALIKE) * each.max() else None

    @cached_property
    def replay(self) -> tuple[Seconds, Ranks] | None:
        """Seconds by step, rank and class, and the ranks; None if ranks cannot be compared, or do
        not meet in these steps alone (`unlike`).
        """
        if self.is_pipeline or self.straggler is None or self.unlike is not None:
            return None
        return parts(self.compared, self.rest)

    @cached_property
    def meetings(self) -> Seconds | None:
        """Seconds by step, rank and phase in which ranks meet; None if they cannot be compared."""
        return meetings(self.compared)

    @cached_property
    def compared(self) -> pd.DataFrame:
        """Phases with a rank, in steps that can be compared over time, or in all steps if none is
        timed.
        """
        phases = self.series_phases if len(self.series) else self.run.phases
        return compared_steps(where(phases, phases["rank"].notna()))


def facts_of(run: Run) -> list[Facts]:
    """One for each engine of the longest launch, the judged one first."""
    return [Facts(run, one) for one in engines(run.steps)] or [Facts(run)]


Answer = TypeVar("Answer")


def once(rule: Callable[[Facts], Answer]) -> Callable[[Facts], Answer]:
    """Decorator for rules that other rules call, too: computes the answer once per `Facts`."""

    @wraps(rule)
    def asked(facts: Facts) -> Answer:
        if rule.__name__ not in facts.answers:
            facts.answers[rule.__name__] = rule(facts)
        answer: Answer = facts.answers[rule.__name__]
        return answer

    return asked


def promise(best: float) -> tuple[float, float]:
    """The gain in seconds per step, from the likely one to `best`.

    Each rule's docstring says what `best` is, and why.
    """
    return GAIN_LOW * best, best


def first_of(table: pd.DataFrame) -> str | None:
    """The name of a table's largest phase."""
    return str(table.index[0]) if len(table) else None
