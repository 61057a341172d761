"""A GPU or a host that ran out of memory: which rank was first, and what makes room."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.analysis.memory import capacity
from dsprof.events import Severity
from dsprof.findings.advice import (
    FRAGMENTS,
    change,
    higher_stage,
    smaller_micro_batch,
)
from dsprof.findings.facts import Facts
from dsprof.findings.failures.ends import (
    OOM,
    ended_launch,
    first_failure,
    last_launch,
    ranks_of,
    said_among_others,
    said_of,
    step_span,
    sure_of,
)
from dsprof.findings.failures.full_gpu import (
    TRIED,
    is_fragmented,
    is_larger_than,
    said_of_others,
    said_of_unmapped,
)
from dsprof.findings.failures.launcher import evidence_of, named, said_of_named
from dsprof.findings.failures.lingering import said_if_over
from dsprof.findings.failures.loading import less_in_memory, reads_weights, said_of_loading
from dsprof.findings.failures.raised import said_of_place
from dsprof.findings.finding import Advice, Finding
from dsprof.run import from_events
from dsprof.run.table import where
from dsprof.units import format_bytes

if TYPE_CHECKING:
    from dsprof.run import Run

_OF_NCCL: Final = re.compile(r"Cuda failure|Failed to CUDA")
_OF_DRIVER: Final = re.compile(r"(?:CUDA|HIP) (?:driver )?error: out of memory\s*$")
_NEAR: Final = 10  #: lines
_SAID_BEHIND: Final = ("refused", "out_of_memory_message")  #: of a message broken into lines
_TRACEBACK: Final = 60  #: lines of one, from the script's to the last
_NAMES_VICTIM: Final = re.compile(
    r"^Out of memory: Kill|^oom-kill:"
)  #: what dmesg would be asked for
_OF_CGROUP: Final = re.compile(
    r"^(?:Memory cgroup out of memory|OOMKilled|oom[-_]kill event|oom-kill:constraint=.{0,20}MEMCG)"
)
_REFUSED: Final = re.compile(
    r"\S{0,100}MemoryError\b|OSError: \[Errno 12\]|memory allocation of\b"
    r"|.{0,200}DefaultCPUAllocator: "
)  #: an allocation that failed inside the process: the kernel ended nobody
_BY_RAY: Final = re.compile(
    r"^ray\.exceptions\.|^Worker exit type: NODE_OUT|due to memory pressure \(OOM\)"
    r"|exceeds the memory usage threshold"
    r"|^Refer to the documentation on how to address the out of memory issue"
)
_MOVES: Final = "_configure_distributed_model"  #: DeepSpeed's function that moves the model
#: What the traceback of a failure may pass through, and what that tells.
_PLACES: Final = {
    "move": "Its traceback passes through the move of the model to the GPU, before any batch: "
    "parameters asked for it, not activations. ",
    "load": "Its traceback passes through the loading of the model's weights: parameters asked for "
    "it, not activations. ",
    "setup": "Its traceback passes through the set-up of the optimizer: its states and the master "
    "weights asked for it, before any batch. ",
    "evaluation": "Its traceback passes through an evaluation: training itself did not ask for "
    "it. ",
    "step": "Its traceback passes through step(): the optimizer's states and its update asked for "
    "it, not activations. ",
}
_SHARED: Final = Advice(
    "nvidia-smi on that host",
    "",
    "see what else uses the GPU",
    "end what is not this job; a rank that puts tensors on another rank's GPU needs "
    "torch.cuda.set_device(local_rank), and no device_map",
)
_OF_NPU: Final = FRAGMENTS._replace(setting="PYTORCH_NPU_ALLOC_CONF")
#: Of a PyTorch before 2.1, which knows no expandable segments, and refuses to start with them.
_OF_OLD: Final = FRAGMENTS._replace(to="max_split_size_mb:128")
_SAID_BY_OLD: Final = re.compile(r"[GM]iB total capacity; ")
_FRAGMENTED: Final = (
    "PyTorch held more than that unused, in pieces that are too small: memory is fragmented. "
)
_LARGER: Final = (
    "Alone that is more than the whole GPU has, so what else is in it does not matter. "
)
#: So many times the GPU's memory, and no batch of a sample fits.
_HOPELESS: Final = 8
_OF_SHAPE: Final = Advice(
    "shape of that tensor",
    "",
    "smaller, or corrected",
    "a sequence that is too long, attention that holds all its scores at once, or a size that was "
    "computed wrongly",
)
_AT_ITS_LIMIT: Final = (
    "It reached the limit of its container or job (a control group): the host itself may have had "
    "memory left. "
)
_MORE_FOR_CGROUP: Final = Advice(
    "docker --memory, resources.limits.memory, sbatch --mem",
    "",
    "higher, if the host has more",
    "that limit, and not the host's memory, was reached",
)
_WHY_REFUSED: Final = Advice(
    "free -g and ulimit -v on that host",
    "",
    "compare with what was asked for",
    "too little is free, or a limit or strict overcommit refused it; the kernel ended nobody, so "
    "its log says nothing",
)
_OF_RAY: Final = Advice(
    "ray logs raylet.out on that host",
    "",
    "see which process held how much",
    "Ray itself ended the worker, before the kernel had to",
)
_EVALUATION_MEMORY: Final = (
    Advice("per_device_eval_batch_size", "", "smaller", "evaluation has a batch size of its own"),
    Advice(
        "eval_accumulation_steps, prediction_loss_only",
        "",
        "a few steps, True",
        "predictions of all batches stay on the GPU otherwise",
    ),
)


def oom(facts: Facts) -> list[Finding] | str:
    """A GPU or a host ran out of memory."""
    rows = last_launch(facts.run)
    rows = where(rows, rows["kind"].isin(OOM))
    if rows.empty:
        return []
    first = first_failure(facts.run)
    row = first if first is not None and first["kind"] in OOM else rows.iloc[0]
    who = named(facts.run, row)
    row = row if who is None else who.failure
    host = row["kind"] == "host-oom"
    asked = _asked_for(facts.run, row)
    message = _message(facts.run, row)
    limit = None if host else capacity(facts.run.meta, rows)
    of = f" on a GPU of {format_bytes(limit)}" if limit else ""
    return [
        Finding(
            rule="oom",
            severity=Severity.CRITICAL,
            title=said_of(row) + (f": it was refused {asked}" if host and asked else ""),
            summary=(f"It asked for {asked} more{of}. " if asked and not host else "")
            + _PLACES.get(_place(facts.run, row), "")
            + (_LARGER if is_larger_than(message) else said_of_others(message))
            + said_of_unmapped(message)
            + (_FRAGMENTED if is_fragmented(message) and not is_larger_than(message) else "")
            + (_AT_ITS_LIMIT if _OF_CGROUP.match(str(row["text"])) else "")
            + said_among_others(facts.run, row)
            + said_if_over(facts, row)
            + (said_of_loading(facts) if host or not _place(facts.run, row) else "")
            + said_of_place(facts.run, row)
            + said_of_named(who),
            ranks=ranks_of(row),
            steps=step_span(row),
            evidence=evidence_of(facts.run, row, who),
            advice=_memory_advice(_alone(facts), row),
            confidence=sure_of(facts.run, row),
        )
    ]


def _asked_for(run: Run, row: pd.Series[Any]) -> str:
    """How much was refused, as PyTorch says in the same line.

    NCCL says it just behind, as does a message that was broken into lines.
    """
    tried = TRIED.search(str(row["text"]))
    if tried:
        return _in_units(tried[1] or tried[2])
    behind = _just_behind(run, row)
    told = behind.loc[behind["name"] == "refused", "bytes"]
    return format_bytes(float(told.iloc[0])) if len(told) else ""


def _message(run: Run, row: pd.Series[Any]) -> str:
    """All that PyTorch said of it, also where the message was broken into lines."""
    behind = _just_behind(run, row)
    told = behind.loc[behind["name"].isin(_SAID_BEHIND), "text"].dropna()
    return " ".join([str(row["text"]), *told])


def _just_behind(run: Run, row: pd.Series[Any]) -> pd.DataFrame:
    """What the same process, or of the same device, says behind it, up to its next failure."""
    events = run.told
    behind = events["line"] - row["line"] if pd.notna(row["line"]) else math.inf
    near = (events["source"] == row["source"]) & (behind > 0) & (behind <= _NEAR)
    by = "value" if pd.notna(row["value"]) else "rank"  # NCCL says the device
    same = events[by].isna() if pd.isna(row[by]) else events[by] == row[by]
    told: pd.DataFrame = events[near & same.fillna(False)]
    return told.loc[~(told["kind"].eq("problem") & told["name"].eq("oom")).cummax()]


def _in_units(said: str) -> str:
    """A size as PyTorch or numpy writes it; bytes, as C++ and Rust count them, in larger units."""
    return format_bytes(int(said.split(maxsplit=1)[0])) if said.endswith("bytes") else said


def _place(run: Run, row: pd.Series[Any]) -> str:
    """Who asked for the memory, as one of `_PLACES`: what the traceback passes through; else ""."""
    if _OF_NCCL.search(str(row["text"])):
        return ""  # the first collective is called there too, for buffers of its own
    if _inside(run, row, "raised_in_setup", _MOVES):
        return "move"
    return next((one for one in _PLACES if _inside(run, row, f"raised_in_{one}")), "")


def _inside(run: Run, row: pd.Series[Any], name: str, text: str = "") -> bool:
    """Whether the traceback that ends with this failure passes through what has that name."""
    told = run.told
    told = told[(told["name"] == name) & (told["source"] == row["source"])]
    told = told[told["text"] == text] if text else told
    apart = row["line"] - told["line"][told["rank"].isna() | (told["rank"] == row["rank"])]
    return bool(((apart > 0) & (apart <= _TRACEBACK)).any())


def _memory_advice(facts: Facts, row: pd.Series[Any]) -> tuple[Advice, ...]:
    if row["kind"] == "host-oom":
        return _of_full_host(facts, str(row["text"]))
    if why := _full_before(facts, row):
        return _other_process(why)
    place = _place(facts.run, row) or ("load" if reads_weights(facts) else "")
    cures = _cures(facts, place)
    message = _message(facts.run, row)
    if times := is_larger_than(message):
        return (_OF_SHAPE, *(smaller_micro_batch(facts) if times < _HOPELESS else ()))
    if said_of_others(message):
        return (_SHARED, *cures)
    if cures != _EVALUATION_MEMORY and is_fragmented(message):
        cures = (FRAGMENTS, *(advice for advice in cures if advice != FRAGMENTS))
    return tuple(_of_allocator(message) if one == FRAGMENTS else one for one in cures)


def _of_allocator(message: str) -> Advice:
    """What keeps memory whole in the allocator that wrote the message."""
    if "NPU out of memory" in message:  # torch_npu has one of its own
        return _OF_NPU
    return _OF_OLD if _SAID_BY_OLD.search(message) else FRAGMENTS


def _cures(facts: Facts, place: str) -> tuple[Advice, ...]:
    if place in ("move", "load"):
        return _parameter_memory(facts)
    if place == "evaluation":
        return _EVALUATION_MEMORY
    return _step_memory(facts) if place in ("setup", "step") else _gpu_memory(facts)


def for_host_memory(facts: Facts) -> tuple[Advice, ...]:
    """What makes room in a host's memory, by what the launch that ended was told."""
    return _host_memory(_alone(facts))


def _host_memory(facts: Facts) -> tuple[Advice, ...]:
    return (
        Advice(
            "dmesg on that host", "", "look for 'Out of memory: Killed process'", "names the victim"
        ),
        *less_in_memory(facts),
    )


def _of_full_host(facts: Facts, said: str) -> tuple[Advice, ...]:
    dmesg, *others = _host_memory(facts)
    if _OF_CGROUP.match(said):
        return (_MORE_FOR_CGROUP, *others)
    if _NAMES_VICTIM.match(said):
        return tuple(others)
    if _BY_RAY.search(said):
        return (_OF_RAY, *others)
    return (_WHY_REFUSED if _REFUSED.match(said) else dmesg, *others)


def _step_memory(facts: Facts) -> tuple[Advice, ...]:
    """What makes room for the optimizer: smaller micro-batches would not."""
    key = "zero_optimization.offload_optimizer.device"
    return (
        *higher_stage(facts),
        *change(facts, key, "cpu", "keeps the optimizer's states in the host's memory"),
        Advice("optimizer", "", "one with smaller states", "8-bit Adam or Adafactor keep less"),
        FRAGMENTS,
    )


def _parameter_memory(facts: Facts) -> tuple[Advice, ...]:
    """What makes room for the model itself, which lies whole on each GPU below ZeRO-3; in a
    pipeline, which takes no ZeRO-3, the stage does.
    """
    narrow = Advice("dtype of the loaded model", "", "bfloat16", "half of what float32 takes")
    if facts.is_by_pipeline_engine:
        why = "each holds fewer layers"
        return (
            Advice("number of pipeline stages", str(facts.layout.stages or ""), "more", why),
            narrow,
        )
    key = "zero_optimization.stage"
    whole = facts.layout.world_size == 1 or facts.layout.zero_stage == 3
    shard = () if whole else change(facts, key, "3", "shards the parameters over the ranks")
    why = (
        "the model is sharded as it is made; from_pretrained does so once TrainingArguments or "
        "HfDeepSpeedConfig exist"
    )
    return (
        *shard,
        Advice("deepspeed.zero.Init()", "", "around the model's making, with ZeRO-3", why),
        narrow,
    )


def _gpu_memory(facts: Facts) -> tuple[Advice, ...]:
    why = "recomputes activations instead of keeping them"
    return (
        *smaller_micro_batch(facts),
        Advice("activation checkpointing", "", "on", why),
        *higher_stage(facts),
        FRAGMENTS,
    )


def _full_before(facts: Facts, row: pd.Series[Any]) -> str:
    """Why the GPU seems to have been full before any step: who found it so asks for little, or for
    nothing that PyTorch's allocator knows of. "" if a step was done, or if others asked."""
    if not facts.run.told["step"].isna().all():
        return ""
    if _OF_NCCL.search(str(row["text"])):
        return "NCCL asks for little, so the GPU was full: by this process, or by another one"
    if _OF_DRIVER.search(str(row["text"])) and not _place(facts.run, row):
        return "no step had begun: another process may hold it, or the GPU may be at fault"
    return ""


def _other_process(why: str) -> tuple[Advice, ...]:
    return (
        Advice(
            "nvidia-smi on that host", "", "see what uses the GPU; end what is not this job", why
        ),
        Advice(
            "processes per GPU",
            "",
            "one each",
            "if two ranks share this GPU, they fill it together",
        ),
    )


def _alone(facts: Facts) -> Facts:
    """The launch that ended by itself: what it was told, not what those before it were."""
    events = facts.run.told
    here = events["segment"] == ended_launch(facts.run)
    if here.all():
        return facts
    return Facts(from_events(events[here], grammar=facts.run.grammar))
