"""The table of jobs and faults: what is planted where, and what should be found.

The blocks of a job compute for a set time, by sleeping. They stand for a device, so that ranks do
not compete for the cores of one machine and a delay is exactly as long as planned. Everything else
is real: engines, collectives over gloo, optimizers, loaders, checkpoints and logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

#: How the size of a loss is known without dsprof; `score.true_loss` says how each is computed.
Measure = Literal["planted", "twin", "bubble", "skipped", "update", "none"]
#: One process group trains many cases; what ends a process or needs another network is alone.
Launch = Literal["shared", "alone", "restarted", "throttled"]

#: What a log may say that tells neither phase nor cause: no cause is claimed.
UNKNOWN: Final = ("unaccounted-time", "untrustworthy-timers")


@dataclass(frozen=True)
class Job:
    """What is trained.

    Attributes:
        kind: "zero0" to "zero3" and "pipe" are DeepSpeed's engines; "ddp", "fsdp2".
        compute: seconds of each block's forward; its backward takes twice that.
        width, depth: of the blocks, each a linear layer.
        micro: micro-batches a step.
        settings: more of DeepSpeed's JSON.
        bucket_mb: DDP's bucket.
        silent: collectives whose name has this in it move nothing, "" none of them, "." all
            (an oracle, for twins only).
    """

    kind: str
    compute: float = 0.004
    width: int = 64
    depth: int = 4
    micro: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    bucket_mb: float = 25.0
    silent: str = ""

    @property
    def logs(self) -> bool:
        """Whether something prints a DeepSpeed log."""
        return self.kind not in {"ddp", "fsdp2"}


@dataclass(frozen=True)
class Fault:
    """A delay, or whatever else `place` stands for; `seconds` is each time it happens.

    Attributes:
        place: "forward", "backward", "optimizer", "data" and "loop" (between two steps) are
            delays there; "save" is a slow checkpoint, "leak" keeps `amount` bytes a step, "inf"
            and "nan" are factors of the loss, "kill" and "stop" are what a process does.
        rank: None means all of them.
        every, start: steps at which it happens.
        growth: seconds more with each step.
    """

    place: str = ""
    seconds: float = 0.0
    rank: int | None = None
    every: int = 1
    start: int = 1
    growth: float = 0.0
    amount: float = 0.0

    def at(self, step: int) -> bool:
        return step >= self.start and (step - self.start) % self.every == 0

    def delay(self, step: int) -> float:
        return self.seconds + self.growth * (step - self.start)


@dataclass(frozen=True)
class Right:
    """The right verdict.

    Attributes:
        rules: the first finding is one of these; "" stands for no warning and no more.
        rank, phase: what it must name, where it names one at all.
        log: the same for the log, where a log cannot tell as much; None as `rules`.
    """

    rules: tuple[str, ...]
    rank: int | None = None
    phase: tuple[str, ...] = ()
    log: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Case:
    """One run of the bench."""

    name: str
    fault: str  # in words
    job: Job
    right: Right
    plant: Fault = Fault()
    measure: Measure = "planted"
    twin: Mapping[str, Any] | None = None  # what of the job the twin has otherwise
    launch: Launch = "shared"
    steps: int = 40
    link: str | None = None  # what the network is said to be able to do

    @property
    def healthy(self) -> bool:
        return self.right.rules == HEALTHY


HEALTHY: Final = ("",)
WELL: Final = Right(HEALTHY, log=("", *UNKNOWN))
#: Rank 0's timers show that it waits in the reduction, and not for what.
WAITS: Final = ("communication-bound", "straggler-rank", *UNKNOWN)
#: The rank that prints is the late one: it waits for nobody, and looks well by itself.
UNSEEN: Final = ("", *UNKNOWN)
SILENT: Final = {"silent": "."}
UNGATHERED: Final = {"silent": "gather"}


def zero(stage: int, **more: Any) -> Job:
    return Job(f"zero{stage}", **more)


def buckets(elements: int) -> dict[str, Any]:
    return {"zero_optimization": {
        "reduce_bucket_size": elements, "allgather_bucket_size": elements,
    }}  # fmt: skip


def offloaded() -> dict[str, Any]:
    return {"zero_optimization": {"offload_optimizer": {"device": "cpu"}},
            "zero_force_ds_cpu_optimizer": False}  # fmt: skip


FETCHING: Final[dict[str, Any]] = {"stage3_param_persistence_threshold": 0}
NO_PREFETCH: Final = {"zero_optimization": {
    **FETCHING, "stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
}}  # fmt: skip
PREFETCH: Final = {"zero_optimization": FETCHING}
#: The scale doubles after each good step, else it would end at its least, and DeepSpeed with it.
FP16: Final = {"fp16": {
    "enabled": True, "initial_scale_power": 8, "hysteresis": 1, "loss_scale_window": 1,
}}  # fmt: skip


def healthy() -> list[Case]:
    jobs = {
        "zero0": zero(0), "zero1": zero(1), "zero2": zero(2),
        "zero3": zero(3, compute=0.008),
        "zero1-micro4": zero(1, micro=4, compute=0.002),
        "zero2-micro2": zero(2, micro=2, compute=0.003),
        "zero1-long": zero(1, compute=0.012),
        "pipe": Job("pipe", micro=8, compute=0.001),
        "ddp": Job("ddp"), "ddp-long": Job("ddp", compute=0.012),
        "fsdp2": Job("fsdp2", compute=0.006), "zero3-micro2": zero(3, micro=2, compute=0.006),
    }  # fmt: skip
    return [
        Case(f"healthy-{name}", "none", job, WELL, measure="none") for name, job in jobs.items()
    ]


def slow_ranks() -> list[Case]:
    """A rank that computes, updates or loads longer than the other."""
    found = []
    for kind, place, rank, delays, phase in (
        ("zero1", "forward", 1, (0.012, 0.03), ("forward",)),
        ("zero2", "backward", 0, (0.015,), ("backward",)),
        ("zero3", "forward", 1, (0.03,), ("forward",)),
        ("ddp", "backward", 0, (0.012, 0.03), ("backward",)),
        ("fsdp2", "forward", 1, (0.03,), ("forward",)),
        ("zero1", "optimizer", 1, (0.012, 0.03), ("optimizer_step", "step")),
        ("ddp", "optimizer", 1, (0.015, 0.03), ("optimizer_step", "step")),
        ("zero1", "data", 1, (0.015, 0.03), ("data",)),
        ("ddp", "data", 0, (0.02,), ("data",)),
    ):
        for delay in delays:
            name = f"slow-{place}-{kind}-{delay * 1e3:.0f}ms"
            job = Job(kind, compute=0.008) if kind in {"zero3", "fsdp2"} else Job(kind)
            words = f"rank {rank} is {delay * 1e3:.0f} ms late in {place}"
            right = Right(("straggler-rank",), rank, phase, log=WAITS if rank else UNSEEN)
            found.append(Case(name, words, job, right, Fault(place, delay, rank)))
    return found


def slow_loaders() -> list[Case]:
    right = Right(("data-bound",), phase=("data",), log=UNKNOWN)
    return [
        Case(f"slow-loader-{kind}-{delay * 1e3:.0f}ms", f"each batch takes {delay * 1e3:.0f} ms",
             Job(kind), right, Fault("data", delay))
        for kind, delay in (("zero1", 0.01), ("zero1", 0.04), ("ddp", 0.02))
    ]  # fmt: skip


def communication() -> list[Case]:
    """The network is all that is slow; a twin that exchanges nothing says how slow."""
    bound = Right(("communication-bound",))
    ddp = Right(("communication-bound", "no-overlap"))
    slow = Right(("communication-bound", "slow-link"))
    small = Right(("small-messages",), log=("small-messages", "communication-bound", *UNKNOWN))
    little: dict[str, Any] = {"width": 1024, "compute": 0.001}
    return [
        Case("large-gradients-ddp-16MB", "16 MB of gradients, 12 ms of compute",
             Job("ddp", **little), ddp, measure="twin", twin=SILENT),
        Case("large-gradients-ddp-32MB", "32 MB of gradients, 24 ms of compute",
             Job("ddp", width=1024, compute=0.001, depth=8), ddp, measure="twin", twin=SILENT),
        Case("large-gradients-zero1", "16 MB of gradients, 12 ms of compute",
             zero(1, **little), bound, measure="twin", twin=SILENT),
        Case("large-gradients-zero2", "16 MB of gradients, 12 ms of compute",
             zero(2, **little), bound, measure="twin", twin=SILENT),
        Case("no-overlap-ddp", "one bucket for 16 MB of gradients: reduced after backward",
             Job("ddp", width=1024, compute=0.004, bucket_mb=1000.0), ddp,
             measure="twin", twin=SILENT),
        Case("no-overlap-zero0", "ZeRO-0 reduces 16 MB of gradients after backward",
             zero(0, width=1024, compute=0.004), ddp, measure="twin", twin=SILENT),
        Case("throttled-link-ddp-2gbit", "4 MB of gradients over 2 Gbit/s",
             Job("ddp", width=512, compute=0.002), slow, measure="twin", twin=SILENT,
             launch="throttled"),
        Case("throttled-link-zero1-1gbit", "4 MB of gradients over 1 Gbit/s",
             zero(1, width=512, compute=0.002), slow, measure="twin", twin=SILENT,
             launch="throttled"),
        Case("small-messages-zero2", "buckets of 2,000 elements",
             zero(2, depth=24, width=48, compute=0.0005, settings=buckets(2000)), small,
             measure="twin", twin=SILENT),
        Case("small-messages-zero1", "buckets of 500 elements",
             zero(1, depth=24, width=48, compute=0.0005, settings=buckets(500)), small,
             measure="twin", twin=SILENT),
        Case("no-prefetch-zero3-8MB", "ZeRO-3 gathers 8 MB when it needs them",
             zero(3, width=700, compute=0.004, settings=NO_PREFETCH),
             Right(("zero3-gather-stall",), log=("communication-bound", *UNKNOWN)),
             measure="twin", twin=UNGATHERED),
        Case("no-prefetch-zero3-2MB", "ZeRO-3 gathers 2 MB when it needs them",
             zero(3, width=350, compute=0.003, settings=NO_PREFETCH),
             Right(("zero3-gather-stall",), log=("communication-bound", *UNKNOWN)),
             measure="twin", twin=UNGATHERED),
    ]  # fmt: skip


def pipelines() -> list[Case]:
    def pipe(micro: int) -> Job:
        return Job("pipe", micro=micro, compute=0.003)

    uneven = Right(("pipeline-imbalance",), log=UNKNOWN)
    bubble = Right(("pipeline-bubble",), log=("pipeline-bubble",))
    return [
        Case("uneven-pipeline-3ms", "the last stage is 3 ms a micro-batch slower", pipe(8),
             uneven, Fault("forward", 0.003, 1)),
        Case("uneven-pipeline-9ms", "the last stage is 9 ms a micro-batch slower", pipe(8),
             uneven, Fault("forward", 0.009, 1)),
        Case("few-micro-batches-1", "one micro-batch for two stages", pipe(1), bubble,
             measure="bubble"),
        Case("few-micro-batches-2", "two micro-batches for two stages", pipe(2), bubble,
             measure="bubble"),
    ]  # fmt: skip


def host() -> list[Case]:
    """What the host does beside training."""
    offload = Right(("offload-bound",), log=("offload-bound",))
    saves = Right(("checkpoint-stall",), log=("checkpoint-stall", "step-spikes", *UNKNOWN))
    spikes = Right(("step-spikes",), log=("step-spikes", *UNKNOWN))
    drift = Right(("slowdown",), log=("slowdown", *UNKNOWN))
    leak = Right(("memory-growth",), log=("memory-growth", ""))
    return [
        Case("offloaded-optimizer-zero1", "the update on the host takes 15 ms",
             zero(1, settings=offloaded()), offload, Fault("optimizer", 0.015), "update"),
        Case("offloaded-optimizer-zero2", "the update on the host takes 40 ms",
             zero(2, settings=offloaded()), offload, Fault("optimizer", 0.04), "update"),
        Case("checkpoints-zero1", "a save of 150 ms every 10 steps", zero(1), saves,
             Fault("save", 0.05, every=10, start=5)),
        Case("checkpoints-zero2", "a save of 400 ms every 10 steps", zero(2), saves,
             Fault("save", 0.2, every=10, start=5)),
        Case("leak-zero1-25MB", "25 MB a step are never freed",
             zero(1, compute=0.04), leak, Fault("leak", amount=25e6), measure="none", steps=60),
        Case("leak-ddp-50MB", "50 MB a step are never freed", Job("ddp", compute=0.04), leak,
             Fault("leak", amount=50e6), measure="none", steps=60),
        Case("stalls-zero1-150ms", "150 ms between two steps, every 10th", zero(1), spikes,
             Fault("loop", 0.15, every=10, start=5)),
        Case("stalls-ddp-400ms", "400 ms between two steps, every 15th", Job("ddp"), spikes,
             Fault("loop", 0.4, every=15, start=5), steps=60),
        Case("drift-zero1", "from step 20 on each step is 0.5 ms slower than the one before",
             zero(1), drift, Fault("forward", start=20, growth=0.0005), steps=60),
        Case("drift-ddp", "from step 20 on each step is 1 ms slower than the one before",
             Job("ddp"), drift, Fault("forward", start=20, growth=0.001), steps=60),
    ]  # fmt: skip


def numbers() -> list[Case]:
    half = zero(1, settings=FP16)
    skips = Right(("overflow-streak",))
    # DeepSpeed skips such steps and prints no loss: its log knows of the skipping only.
    nan = Right(("nan-loss",), log=("nan-loss", "overflow-streak"))
    return [
        Case("overflow-every-3", "every third step overflows", half, skips,
             Fault("inf", every=3, start=4), measure="skipped"),
        Case("overflow-every-6", "every sixth step overflows, and where the scale grew too far",
             half, skips,
             Fault("inf", every=6, start=4), measure="skipped"),
        Case("nan-zero1", "the loss is NaN from step 20 on", zero(1), nan, Fault("nan", start=20),
             measure="none"),
        Case("nan-ddp", "the loss is NaN from step 30 on", Job("ddp"), nan, Fault("nan", start=30),
             measure="none"),
    ]  # fmt: skip


def ends() -> list[Case]:
    died = Right(("rank-died",), 1)
    hang = Right(("hang",), 1, log=("hang", "rank-died"))
    again = Right(("earlier-failure",))
    printless = Right(("earlier-failure",), log=("earlier-failure", "rank-died"))
    return [
        Case("killed-zero1", "rank 1 is killed at step 20", zero(1), died,
             Fault("kill", rank=1, start=20), "none", launch="alone"),
        Case("killed-ddp", "rank 1 is killed at step 30", Job("ddp"), died,
             Fault("kill", rank=1, start=30), "none", launch="alone"),
        Case("stopped-zero1", "rank 1 enters no collective from step 20 on", zero(1), hang,
             Fault("stop", rank=1, start=20), "none", launch="alone"),
        Case("stopped-ddp", "rank 1 enters no collective from step 20 on", Job("ddp"), hang,
             Fault("stop", rank=1, start=20), "none", launch="alone"),
        Case("restarted-zero1", "rank 1 is killed at step 15 and all start again", zero(1), again,
             Fault("kill", rank=1, start=15), "none", launch="restarted"),
        Case("restarted-ddp", "rank 1 is killed at step 25 and all start again", Job("ddp"),
             printless,
             Fault("kill", rank=1, start=25), "none", launch="restarted"),
    ]  # fmt: skip


TABLE: Final = (
    *healthy(), *slow_ranks(), *slow_loaders(), *communication(), *pipelines(), *host(),
    *numbers(), *ends(),
)  # fmt: skip
CASES: Final = {case.name: case for case in TABLE}

#: Cases whose advice is followed, and what of the job that changes; {} where a delay is all.
ADVISED: Final[Mapping[str, Mapping[str, Any]]] = {
    "slow-forward-zero1-30ms": {},
    "slow-backward-ddp-30ms": {},
    "slow-optimizer-zero1-30ms": {},
    "slow-loader-zero1-40ms": {},
    "slow-loader-ddp-20ms": {},
    "checkpoints-zero2": {},
    "offloaded-optimizer-zero2": {"settings": {}},
    "small-messages-zero1": {"settings": {}},
    "no-prefetch-zero3-8MB": {"settings": PREFETCH},
    "few-micro-batches-2": {"micro": 8},
}
