"""What every rule looks at: a run and its derived tables, each computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

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
from dsprof.analysis.layout import Layout, ds_config, layout_of, offloads_optimizer, setting
from dsprof.analysis.ranks import Straggler, compared_steps, straggler
from dsprof.analysis.whatif import Ranks, Seconds, parts
from dsprof.events import Class, Kind
from dsprof.findings.thresholds import COMMUNICATION_SEEN, FEW_STEPS, GAIN_LOW, UNACCOUNTED_WARNING
from dsprof.run.table import among, where, within
from dsprof.run.zero import UNSEEN

if TYPE_CHECKING:
    from dsprof.run import Run

NO_TIMERS = "no timer tells where the time of a step goes"
NO_COMMUNICATION = UNSEEN
RANKS_UNTOLD = "no timer shows communication, and the number of ranks is unknown"
#: The doubt that memory_breakdown's lines raise.
COLLECTING = "memory-breakdown-inflates-backward"
#: Frameworks that train with PyTorch's own means, or Megatron's.
_WITHOUT_DEEPSPEED = frozenset(
    {"verl", "torchtitan", "torchtune", "internlm", "slime", "fairseq", "nanogpt", "sagemaker"}
)
NO_COMM = "no line shows single communication calls (comms_logger, or a recording)"


@dataclass(frozen=True)
class Facts:
    """A run with its average step, its layout and its configuration at hand.

    `engine` is the one that is judged, where several share the run; `stuck_out` are labels of
    steps that `step-spikes` names and the others are judged without. `answers` holds what the
    rules marked `once` have said.
    """

    run: Run
    engine: int | None = None
    stuck_out: tuple[int, ...] = ()
    answers: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Rows of `run.steps` that statistics use."""
        return main_steps(self.own_steps).drop(list(self.stuck_out))

    @cached_property
    def too_few(self) -> str | None:
        """Why these steps cannot show that all is well; None if they are enough."""
        beyond = int((~self.steps["warm_up"].astype(bool)).sum())
        if beyond >= FEW_STEPS:
            return None
        many = f"{beyond} step{'s' * (beyond != 1)} beyond the warm-up"
        return f"too few steps to judge: {many}, {FEW_STEPS} needed"

    @cached_property
    def no_basis(self) -> str | None:
        """Why the average step is none: a first step, that also warms up, is the only one."""
        if len(self.steps) != 1 or not self.steps["warm_up"].iloc[0]:
            return None
        lines = within(self.steps, self.run.told, "segment", "engine", "step")
        if (lines["steps"] > 1).any():  # a mean over a window of steps
            return None
        was = "may be" if self.run.counted else "is"  # steps that nobody numbers are an excerpt's
        return (
            f"the only step with a time {was} the first of its launch, which also builds kernels, "
            "buckets and traces"
        )

    @cached_property
    def series(self) -> pd.DataFrame:
        """Rows of `run.steps` whose seconds can be followed over time."""
        return regular_steps(self.own_steps)

    @cached_property
    def own_steps(self) -> pd.DataFrame:
        """Rows of `run.steps` of the judged engine."""
        steps = self.run.steps
        return steps if self.engine is None else steps[steps["engine"] == self.engine]

    @cached_property
    def doubts(self) -> dict[str, str]:
        """Known defects of the source that could not be repaired: name and explanation."""
        repairs = self.run.repairs
        rows = repairs[repairs["kind"] == "doubt"]
        return dict(zip(rows["name"].astype(str), rows["text"].astype(str), strict=True))

    @cached_property
    def mean(self) -> Breakdown | None:
        """The average step; None if no step has a time."""
        return breakdown_of(self.steps, self.run.phases)

    @cached_property
    def breakdown(self) -> Breakdown | None:
        """The average step; None unless some class of time is known."""
        found = self.mean
        return found if found and found.classes and found.seconds > 0 else None

    @cached_property
    def hidden_communication(self) -> str | None:
        """Why communication may hide inside the compute timers; None if it is known not to."""
        ranks = self.layout.world_size
        if self.breakdown is None or ranks == 1:
            return None
        several = ranks or (self.layout.data_parallel or 1) > 1
        unseen = NO_COMMUNICATION if several else RANKS_UNTOLD
        if self.run.mixed and self.seconds_of("communication") is None:
            return unseen if self.run.mixed == UNSEEN else self.run.mixed
        if len(counted := self._counted):
            missed = (counted["issued"] - counted["seen"]).to_numpy()
            if missed.max() > counted["seen"].to_numpy()[missed.argmax()]:
                return unseen  # as those of tensor parallelism, which PyTorch's C++ issues
            if missed.max() < len(self.run.steps):  # outside of steps, see `findings.unseen`
                return None
        moving = self.seconds_of("communication", "wait")
        if moving is None or moving < COMMUNICATION_SEEN * self.breakdown.seconds:
            return unseen
        return None if self.calls_are_logged else self.run.reduces_inside_backward

    @cached_property
    def calls_unseen(self) -> int:
        """Collectives that a rank issued and its recording did not see, of the rank that has
        most of them, by PyTorch's own count; 0 where nothing counted them."""
        unseen = self._counted["issued"] - self._counted["seen"]
        return int(unseen.max()) if len(unseen) else 0

    @cached_property
    def _counted(self) -> pd.DataFrame:
        """Collectives of each rank, by PyTorch's own count and by ours, where both are told."""
        told = self.run.told
        counts = {
            name: where(told, among(told["name"], [f"collectives_{name}"]))
            .groupby("rank")["value"]
            .sum()
            for name in ("issued", "seen")
        }
        return pd.DataFrame(counts).dropna()

    @cached_property
    def least_communication(self) -> float | None:
        """Seconds that timers show of a communication which also hides in others; else None.

        None with an offloaded optimizer, too: the timer of reduction then also holds copies of
        gradients to the host.
        """
        if self.breakdown is None or not self.run.mixed or self.is_offloaded:
            return None
        if self.seconds_of("communication") is not None:
            return None
        timed = float(self.phases_of("communication")["seconds"].sum())
        return timed if timed >= COMMUNICATION_SEEN * self.breakdown.seconds else None

    @property
    def is_offloaded(self) -> bool:
        """The optimizer's states lie outside of the GPU."""
        return offloads_optimizer(self.run.config)

    @property
    def on_cpu(self) -> bool:
        """The source says that there is no accelerator; DeepSpeed builds that op for CPUs alone."""
        config = self.run.config
        return config.get("accelerator") == "cpu" or "shm_comm" in str(config.get("op_built"))

    @cached_property
    def calls_are_logged(self) -> bool:
        """DeepSpeed's communication logger is on: it waits for each call, nothing overlaps."""
        comm = self.run.told
        printed = (comm["kind"] == Kind.COMM) & comm["pattern"].notna()
        return self.setting("comms_logger.enabled") is True or bool(printed.any())

    @cached_property
    def held_up(self) -> pd.DataFrame:
        """Trustworthy calls of these steps, with what held their step up as `seconds`."""
        return during_steps(held_up(self.run.comm), self.steps)

    @cached_property
    def per_step(self) -> float | None:
        """What turns a sum over `held_up` into one rank's optimizer step; None if unknown.

        Of a recording the steps count in which calls held nothing up, too.
        """
        calls = self.held_up
        if self.exposure_is_known:
            calls = during_steps(self.run.comm, self.steps)
        return per_step(calls, self.run.steps)

    @cached_property
    def exposure_is_known(self) -> bool:
        """A recording says of each call how long it held its step up."""
        return bool(self.run.comm["exposed_seconds"].notna().any())

    @cached_property
    def collecting(self) -> float:
        """Seconds of a step that `memory_breakdown` may spend on its own account.

        It collects Python's garbage between the timers, and inside that of backward around
        what that times itself. Where the latter would not be worth a finding it is 0: the
        timers are then believed.
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
        """Seconds of an average step that lie in no timer."""
        assert self.breakdown is not None
        timed = float(self.breakdown.phases["seconds"].sum())
        return max(0.0, self.breakdown.seconds - timed)

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.run.config, self.run.meta, pipeline=self.is_pipeline)

    @cached_property
    def is_pipeline(self) -> bool:
        return self.breakdown is not None and len(pipeline_phases(self.breakdown.phases)) > 0

    @cached_property
    def step_seconds(self) -> float | None:
        """Mean seconds of an optimizer step; None if no step has a time."""
        return mean_of(self.steps, "seconds") if len(self.steps) else None

    def setting(self, path: str) -> Any:
        """The value of a dotted key of the job's DeepSpeed JSON, None if unknown."""
        return setting(self.run.config, path)

    def seconds_of(self, *classes: str) -> float | None:
        """Seconds of an average step in these classes; None if the source tells of none."""
        return self.breakdown.of(*classes) if self.breakdown else None

    def share(self, seconds: float | None) -> float | None:
        """Of the average step: of all steps, those that stick out among them, for what they cost
        is told as a share of all, too."""
        if seconds is None or not self.step_seconds:
            return None
        return seconds / (self.average or self.step_seconds)

    @cached_property
    def average(self) -> float | None:
        """Seconds of a step, the mean of all; None unless some class of time is known."""
        all_steps = replace(self, stuck_out=(), answers={}) if self.stuck_out else self
        return all_steps.breakdown.seconds if all_steps.breakdown else None

    def phases_of(self, *classes: str) -> pd.DataFrame:
        """Phases of an average step that belong to these classes, largest first."""
        assert self.breakdown is not None
        table = self.breakdown.phases
        return table[table["class"].isin(classes)]

    @property
    def windows(self) -> str:
        """How much an average rests on: `mean of 3 printed steps, 20 to 40`."""
        assert self.breakdown is not None
        many, how = self.breakdown, "recorded" if self.run.is_recording else "printed"
        if many.windows == 1:
            return f"one {how} step, {many.last:,}{self._apart}"
        return f"mean of {many.windows:,} {how} steps, {many.first:,} to {many.last:,}{self._apart}"

    @property
    def _apart(self) -> str:
        """What of the run is left aside: other engines, a first step that warms up."""
        of = "" if self.engine is None else f", of engine {self.engine} alone"
        aside = left_aside(self.own_steps)
        many = len(self.stuck_out)
        spikes = f", without the {many:,} that stick{'s' * (many == 1)} out" if many else ""
        return of + aside + spikes

    @cached_property
    def micro_only(self) -> bool:
        """Timers are of micro-batches alone: how many a step has was counted between its lines."""
        flavours = self.run.grammar.timers.items()
        sums = {one.sums for name, one in flavours if name in self.flavours}
        return sums - {"once"} == {"micro"}

    @cached_property
    def flavours(self) -> frozenset[str]:
        """The flavours of timers that the source prints."""
        return frozenset(str(name) for name in self.run.told["timers"].dropna().unique())

    @cached_property
    def straggler(self) -> Straggler | None:
        """The slowest rank; None if ranks cannot be compared (stages of a pipeline cannot)."""
        if self.is_pipeline:
            return None
        return straggler(apart_from_saves(self.compared))

    @cached_property
    def replay(self) -> tuple[Seconds, Ranks] | None:
        """Seconds of steps x ranks x classes and the ranks; None where several cannot be told."""
        if self.is_pipeline or self.straggler is None:
            return None
        return parts(self.compared)

    @cached_property
    def compared(self) -> pd.DataFrame:
        """Phases of ranks, in steps that can be followed over time: in all, where none is timed."""
        phases = self.run.phases
        if len(self.series):
            phases = main_phases(self.series, phases)
        return compared_steps(where(phases, phases["rank"].notna()))

    @cached_property
    def engine_lines(self) -> frozenset[str]:
        """The patterns of DeepSpeed's dialects that were met."""
        patterns = map(str, self.run.told["pattern"].dropna().unique())
        return frozenset(one for one in patterns if one.startswith("deepspeed"))

    @cached_property
    def is_megatron_alone(self) -> bool:
        """Megatron without a line of DeepSpeed's engine, whose settings would do nothing then.

        DeepSpeed's reports of memory are called by Megatron's own code, too, and the timers that
        Megatron prints look like DeepSpeed's.
        """
        engine = self.engine_lines - {"deepspeed.timers"}
        return (
            self.run.meta.get("framework") == "megatron"
            and all(one.startswith("deepspeed_memory.") for one in engine)
            and all(name.startswith("megatron") for name in self.flavours)
        )

    @cached_property
    def is_torch_alone(self) -> bool:
        """Without DeepSpeed's engine, whose settings would do nothing: a recording of such a
        model, or the log of a trainer that knows no DeepSpeed."""
        if self.layout.zero_stage is not None or self.has_config:
            return False
        if self.run.is_recording:
            return not self.run.config.get("framework")
        return self.run.meta.get("framework") in _WITHOUT_DEEPSPEED and not self.engine_lines

    @cached_property
    def has_config(self) -> bool:
        """Whether the job's whole DeepSpeed JSON is known, so that an absent key is unset."""
        return bool(ds_config(self.run.config))


def facts_of(run: Run) -> list[Facts]:
    """One for each engine of the launch that took most time, the judged one first."""
    return [Facts(run, one) for one in engines(run.steps)] or [Facts(run)]


Answer = TypeVar("Answer")


def once(rule: Callable[[Facts], Answer]) -> Callable[[Facts], Answer]:
    """A rule that others ask as well answers the same facts once."""

    @wraps(rule)
    def asked(facts: Facts) -> Answer:
        if rule.__name__ not in facts.answers:
            facts.answers[rule.__name__] = rule(facts)
        answer: Answer = facts.answers[rule.__name__]
        return answer

    return asked


def promise(best: float) -> tuple[float, float]:
    """From what is likely to what the change gives at best, seconds per step.

    Each rule says in its docstring what `best` is, and why.
    """
    return GAIN_LOW * best, best


def first_of(table: pd.DataFrame) -> str | None:
    """The name of a table's largest phase."""
    return str(table.index[0]) if len(table) else None
