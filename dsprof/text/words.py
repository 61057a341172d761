"""Numbers and facts as short phrases, and what a log says made safe to print."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dsprof.events import COUNTED
from dsprof.recording.launches import is_every_rank_recorded, ranks_recorded
from dsprof.units import format_ranks, format_seconds, format_share, ranges, windows

if TYPE_CHECKING:
    import pandas as pd

    from dsprof.findings import Finding
    from dsprof.run import Run

#: Strings (title, link, device), then CSI, then the short ones; each part excludes what ends it.
_ESCAPE: Final = re.compile(
    "\x1b[]PX^_][^\x07\x1b\x9c]{0,200}(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]{0,40}[ -/]{0,4}[@-~]?"
    "|\x1b[ -/]{0,4}[0-~]?"
)
_LONGEST: Final = 2000


def plain(text: object) -> str:
    """One line of printable characters: what a log says must not steer a terminal."""
    return " ".join(printable(text).split())


def printable(text: object) -> str:
    """The same with its blanks: what is set in columns stays so."""
    bare = _ESCAPE.sub("", str(text)[:_LONGEST])
    return "".join(c if c.isprintable() else " " for c in bare)


def known(value: Any) -> bool:
    """Whether a cell of a frame or a dict says something."""
    if value is None:
        return False
    try:
        return bool(value == value)  # noqa: PLR0124  NaN differs from itself
    except TypeError:  # pandas.NA is neither equal nor unequal
        return False


def deepspeed(meta: Mapping[str, Any]) -> str:
    """Its version as stated, else the range of those that write such lines; "" if unknown."""
    spans = str(meta.get("version_range") or "").partition(" (")[0]
    stated = (meta.get("versions") or {}).get("deepspeed")
    return str(stated or (spans if spans[:1].isdigit() else ""))


def number(value: Any) -> float | None:
    """The finite number of a cell, else None."""
    if not known(value) or isinstance(value, bool | str):
        return None
    found = float(value)
    return found if math.isfinite(found) else None


def whole_number(value: Any) -> int | None:
    """The same of a cell that counts something."""
    found = number(value)
    return None if found is None else int(found)


def one_of_jobs(meta: Mapping[str, Any]) -> str:
    """`one of 2 jobs: zero_stage is 1 in one and 3 in another`; "" where all files are of one."""
    jobs = meta.get("jobs")
    return f"one of {len(jobs)} jobs: {meta['jobs_differ']}" if jobs else ""


def count_of(count: int, one: str, many: str = "") -> str:
    """`1 step`, `12,000 steps`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


#: Frameworks as people write them; others may print lines like the Trainer's.
FRAMEWORK: Final = {
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron",
    "gpt-neox": "GPT-NeoX",
    "huggingface": "Hugging Face Trainer (by its log lines)",
    "deepspeed-chat": "DeepSpeed-Chat",
    "nemo": "NeMo",
    "domino": "Domino",
    "automodel": "NeMo AutoModel",
    "fms": "foundation-model-stack",
    "olmo": "OLMo",
    "megatron-swift": "Megatron-SWIFT",
    "arctic-training": "ArcticTraining",
    "instructlab": "InstructLab",
    "weathergenerator": "WeatherGenerator",
    "composer": "Composer",
    "lerobot": "LeRobot",
    "skyrl": "SkyRL",
    "prismatic": "Prismatic",
    "lightning": "Lightning",
    "sagemaker": "FSDP, SageMaker's (by its log lines)",
}

#: Kinds of problems, as one says them.
PROBLEM: Final = {
    "oom": "out of GPU memory",
    "host-oom": "out of host memory",
    "shm-full": "data loader's worker lost: /dev/shm full",
    "exception": "exception",
    "exit": "process ended with an error code",
    "signal": "process killed by a signal",
    "gone": "process ended, nobody saw how",
    "left": "process ended while others still needed it",
    "command": "command ended with an error, nobody saw which process did",
    "command-alone": "command ended with an error, no recorded process did",
    "killed-by-launcher": "ended by the launcher",
    "root-cause": "failure that the launcher names as the first",
    "watchdog": "collective timed out",
    "stuck": "NCCL's watchdog was stuck",
    "desync": "ranks at different collectives",
    "overdue": "time limit of the script's own ran out",
    "absent": "did not come to a collective",
    "connection": "connection to a peer broke",
    "store-lost": "store of all ranks no longer answered",
    "rendezvous": "workers did not find each other",
    "port-in-use": "port to listen on is taken",
    "ssh-refused": "host not reached over ssh",
    "cancelled": "ended by the scheduler",
    "not-scheduled": "no node for a pod",
    "not-admitted": "pod not admitted by its node",
    "restart": "workers started again",
    "overflow-limit": "gradients kept overflowing",
    "nan": "loss or gradient is not a number",
    "network-fallback": "NCCL fell back to sockets",
    "network-error": "network link broken",
    "iommu": "IOMMU in the way of GPUs",
    "prefetch-broken": "ZeRO-3 fetches parameters late",
    "checkpoint-failed": "checkpoint not written",
    "gpu-lost": "GPU does not answer any more",
    "gpu-error": "driver's message about a GPU",
    "gpu-fault": "GPU stopped what a process ran on it",
    "recording-stopped": "recording ended, not training",
    "build-failed": "extension not built",
    "wrong-arguments": "command line rejected",
    "optimizer-fallback": "fused optimizer not built, PyTorch's used",
}

#: What was done about a defect of the source, by the words of `Run.repairs.kind`.
REPAIR: Final = {"repair": "repaired", "doubt": "doubted"}

#: How seconds of a step may be known, by the words of `Run.steps.seconds_from`.
MEASURES: Final = {
    "logged": "logged times",
    "throughput": "throughput lines",
    "rated": "timers and throughput lines",
    "bar": "progress bar, within a tenth",
    "timers": "sums of timers",
    "clock": "time stamps",
}


def measured_by(way: str | None, *, recorded: bool) -> str:
    """How seconds of a step are known, in words; "" if they are not, or not all in one way."""
    return "recorded times" if recorded and way == "logged" else MEASURES.get(way or "", "")


def steps_by(count: int, measured: str, window: int | None) -> str:
    """`4 steps (throughput lines)`: how many, and what says how long they took, if that is known.

    Args:
        window: of how many steps each is the mean, None if they differ.
    """
    many = windows(window, count)
    steps = f"{count:,} {many}" if many else count_of(count, "step")
    return f"{steps} ({measured})" if measured else steps


def of_ranks(run: Run, main: pd.DataFrame) -> str:
    """Whose numbers the parts of the mean step are, where several ranks tell of theirs; "" of one.

    A verdict may be about some of them alone, and its share is that of those that wait.

    Args:
        main: the steps that are averaged, of one launch and engine.
    """
    if main.empty:
        return ""
    segment, engine = main[["segment", "engine"]].iloc[0]
    own = run.phases["segment"].eq(segment) & run.phases["engine"].eq(engine)
    ranks = run.phases.loc[own, "rank"].nunique()
    if ranks < 2:
        return ""
    said = f"Mean of {ranks:,} ranks"
    found = run.findings[0] if run.findings else None
    if found is None or found.share is None or found.rule not in _OF_SOME or not found.ranks:
        return f"{said}."
    late = format_ranks(found.ranks)
    return f"{said}; the verdict's {format_share(found.share)} is of those that wait for {late}."


#: Rules whose share is what the other ranks lose by some of them.
_OF_SOME: Final = ("straggler-rank", "pipeline-imbalance")


def launch_of(run: Run, main: pd.DataFrame) -> str:
    """`launch 1 of 4`: which one the steps are of that means are of; "" where one alone has steps.

    One that ended before its first step counts, too, as it does where its failure is told.
    """
    if main.empty or run.steps["segment"].nunique() < 2:
        return ""
    launches = sorted(run.told["segment"].unique())
    return f"launch {launches.index(main['segment'].iloc[0]) + 1:,} of {len(launches):,}"


def span(first: object, last: object, one: str) -> str:
    """`step 20`, `steps 20 to 40`."""
    return f"{one} {first:,}" if first == last else f"{one}s {first:,} to {last:,}"


def of_records(steps: pd.DataFrame) -> str:
    """`4 records, which steps they belong to is unknown`; of some of those printed which ones, as
    charts and proofs number them: `1 record, number 2 as printed`.

    Args:
        steps: of a run whose steps are counted.
    """
    numbers = sorted(int(one) for one in steps["step"])
    said = count_of(len(numbers), "record")
    alone = len(steps[["segment", "engine"]].drop_duplicates()) == 1
    if alone and numbers != list(range(1, len(numbers) + 1)):
        said += f", number{'s' * (len(numbers) > 1)} {ranges(numbers)} as printed"
    which = "step it belongs" if len(numbers) == 1 else "steps they belong"
    return f"{said}, which {which} to is unknown"


def on_hosts(known: Mapping[str, Any]) -> str:
    """`on 2 hosts`; `on at least 2 hosts` where others may have printed or recorded nothing; else
    "".

    Args:
        known: configuration and meta data of a run.
    """
    seen = len(known.get("hosts") or [])
    if known.get("nodes") or is_every_rank_recorded(known):
        hosts = int(known.get("nodes") or seen)
        return f"on {count_of(hosts, 'host')}" if hosts else ""
    return f"on at least {seen:,} hosts" if seen > 1 else ""


def partly_recorded(known: Mapping[str, Any]) -> str:
    """`1 of them recorded` if recordings of other ranks are missing; else ""."""
    recorded = ranks_recorded(known)
    if not recorded or is_every_rank_recorded(known):
        return ""
    return f"{recorded:,} of them recorded"


def calls_seen(told: pd.DataFrame) -> str:
    """`saw 118 of 118 collectives, by PyTorch's own count`; "" where nothing counted them.

    Of a process that was killed neither number is known.
    """
    counts = [told.loc[told["name"] == name] for name in COUNTED]
    each = [part.set_index(["segment", "rank"])["value"] for part in counts]
    both = each[0].index.intersection(each[1].index)
    seen, issued = (int(part.loc[both].sum()) for part in each)
    if not 0 < seen <= issued:
        return ""
    said = f"saw {seen:,} of {issued:,} collectives, by PyTorch's own count"
    if 0 < issued - seen <= len(both):  # one of a rank may be between two of our lines then
        said += "; the others were under way as the recording ended, or C++ issued them"
    elif seen < issued:
        said += "; C++ issues the others, and waiting for them counts as the surrounding phase"
    return said


def of_clocks(known: Mapping[str, Any]) -> str:
    """`worker-2's is 350 ms ahead of worker-1's, if both end steps at once (give or take 2.0 ms)`,
    or that a clock was set; "" where not known.

    Of many hosts the one that is furthest off.

    Args:
        known: meta data of a run.
    """
    told = known.get("clocks") or {}
    were_set = {host: one["set"] for host, one in told.items() if "set" in one}
    if were_set:
        host = max(were_set, key=lambda name: abs(were_set[name]))
        by = format_seconds(abs(were_set[host]))
        if were_set[host] < 0:
            return f"{host}'s was set back by {by} during the run"
        return f"{host}'s was set forward by {by} during the run, or the host was suspended"
    first, *others = told or [""]
    if not others:
        return ""
    host = max(others, key=lambda name: abs(told[name]["ahead"]))
    ahead, error = told[host]["ahead"], format_seconds(told[host]["error"])
    where = "ahead of" if ahead > 0 else "behind"
    said = f"{host}'s is {format_seconds(abs(ahead))} {where} {first}'s, if both end steps at once "
    said += f"(give or take {error})"
    return said + (f"; others of {len(told):,} hosts less" if len(told) > 2 else "")


def step_of(found: Finding, step: float | None) -> float | None:
    """Seconds of the step that a finding is a part of: of `step` where it does not say."""
    if found.share and found.seconds_per_step:
        return found.seconds_per_step / found.share
    return step


def gpu_count(run: Run) -> int | None:
    """How many GPUs the job has, one a rank; None where nothing tells that it has any."""
    told = len(run.gpu) or run.memory["name"].isin(["allocated", "reserved"]).any()
    return run.meta.get("world_size") if told else None


def what_if(found: Finding, step: float | None, gpus: int | None) -> str:
    """The step replayed: `if rank 5 were not late: 412 ms → 301 ms to 318 ms, 12 GPU hours a day`.

    What `gain` says where nothing could be replayed.
    """
    if not (found.what_if and found.gain and step):
        return "; ".join(filter(None, [gain(found.gain, step), found.gain_why]))
    low, high = found.gain
    now, best, least = (format_seconds(max(0.0, step - more)) for more in (0.0, high, low))
    if least == now:  # the low end is no gain, and no promise
        then, share, most = f"{best} per step at best", high / step, "up to "
    else:
        times = dict.fromkeys([best, least])
        then, share, most = f"{' to '.join(times)} per step", (low + high) / 2 / step, ""
    hours = 24 * (gpus or 0) * share
    spared = f", {most}{hours:,.0f} GPU hours a day" if hours >= 1 else ""
    return f"if {found.what_if}: {now} → {then}{spared}"


def gain(low_to_high: tuple[float, float] | None, step: float | None) -> str:
    """What a change gives at most: `up to 1.2 s of 5.79 s per step (21 %)`; "" if unknown.

    The low end of an estimate is no promise, so it is not said: the document has it.
    """
    if low_to_high is None:
        return ""
    most = low_to_high[1]
    return f"up to {cost(most, most / step if step else None, step)}"


def cost(seconds: float | None, share: float | None, step: float | None) -> str:
    """What a finding costs: `4.11 s of 5.79 s per step (71 %)`; "" if unknown."""
    part = "" if share is None else format_share(share)
    if seconds is None:
        return f"{part} of {'a step' if step else 'the time'}" if part else ""
    whole = f" of {format_seconds(step)}" if step else ""
    return f"{format_seconds(seconds)}{whole} per step" + (f" ({part})" if part else "")
