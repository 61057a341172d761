"""How the last launch of a run ended, where that is a failure: which rank was first, and why."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.analysis.memory import capacity
from dsprof.events import Severity
from dsprof.findings.advice import (
    change,
    half_micro_batch,
    higher_stage,
    not_yet_debugged,
    offload_less,
)
from dsprof.findings.cures import cures
from dsprof.findings.ends import (
    ENDED,
    HANG,
    OOM,
    first_failure,
    last_launch,
    of_ssh,
    said_of,
    said_untold,
    signal_behind,
    signal_of,
    step_span,
    untold_among,
)
from dsprof.findings.error_codes import code_meant
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Confidence, Evidence, Finding
from dsprof.findings.launcher import Dead, Named, dead_rank, named
from dsprof.findings.quotes import quoted
from dsprof.run import from_events
from dsprof.units import format_bytes, format_seconds, size

if TYPE_CHECKING:
    from dsprof.run import Run

_OF_NCCL: Final = re.compile(r"Cuda failure|Failed to CUDA")
_TRIED: Final = re.compile(r"[Tt]ried to allocate ([\d.]{1,12} [KMGT]?i?B)")
_PORT: Final = re.compile(r"\bport: (\d{1,5})\b")
_NEAR: Final = 10  #: lines
_TRACEBACK: Final = 60  #: lines of one, from the script's to the last


def rank_died(facts: Facts) -> list[Finding] | str:
    """A rank, or the whole job, ended by an error that is neither memory nor a hang."""
    row = first_failure(facts.run)
    if row is None or row["kind"] in (*OOM, *HANG):
        return []
    who, dead = named(facts.run, row), dead_rank(facts.run, row)
    row = row if dead is None else pd.Series({**row, "rank": dead.rank})
    row = row if who is None else who.failure
    text = str(row["text"]) if pd.notna(row["text"]) else ""
    killed = (signal_of(row) or signal_behind(row)) == "SIGKILL"
    return [
        Finding(
            rule="rank-died",
            severity=Severity.CRITICAL,
            title=said_of(row) + _message(row, text),
            summary=_first_of(facts, row)
            + _of_signal(row)
            + (_UNSEEN if row["kind"] == "gone" and "lost their" not in text else "")
            + _OF_SSH * of_ssh(row)
            + code_meant(text)
            + _who_was_named(who)
            + _who_was_dead(dead),
            ranks=_ranks(row),
            steps=step_span(row),
            evidence=_evidence(facts, row, who)
            + (() if dead is None else (row_evidence(dead.row, str(dead.row["text"])),)),
            advice=not_yet_debugged(facts, cures(_kind(row), text))
            + (_host_memory(_alone(facts)) if killed else ()),
            confidence=_sure(facts, row) if dead is None else "medium",
        )
    ]


def _message(row: pd.Series[Any], text: str) -> str:
    """What the error itself says, but where the kind of failure says as much in fewer words."""
    if row["kind"] == "port-in-use":
        port = _PORT.search(text)
        return f" (port {port[1]})" if port else ""
    return f": {quoted(text, 160)}" if text else ""


def _of_signal(row: pd.Series[Any]) -> str:
    """What a signal mostly comes of, and that an exit code stands for it."""
    name = signal_of(row) or signal_behind(row)
    code = "" if signal_of(row) or not name else _STANDS_FOR.format(row["value"], name)
    return code + _MOSTLY.get(name or "", "")


def _kind(row: pd.Series[Any]) -> str:
    """By which its cures are found: a bus error is mostly a full /dev/shm."""
    bus_error = (signal_of(row) or signal_behind(row)) == "SIGBUS"
    return "shm-full" if bus_error else str(row["kind"])


def _who_was_named(who: Named | None) -> str:
    if who is None:
        return ""
    task = "task" in who.failure
    one = f"task {who.failure['task']}" if task else f"rank {int(who.failure['rank'])}"
    return f" {who.by} names {one}; the message itself does not name it."


def _who_was_dead(dead: Dead | None) -> str:
    if dead is None:
        return ""
    return (
        f" The launcher waited {format_seconds(dead.waited)} or more for each other rank to end, "
        f"but not for rank {dead.rank}: it was already dead. Medium confidence: only the time "
        "stamps of the launcher's lines say so."
    )


def oom(facts: Facts) -> list[Finding] | str:
    """A GPU or a host ran out of memory."""
    rows = last_launch(facts.run)
    rows = rows[rows["kind"].isin(OOM) & (rows["severity"] != Severity.INFO)]
    if rows.empty:
        return []
    first = first_failure(facts.run)
    row = first if first is not None and first["kind"] in OOM else rows.iloc[0]
    who = named(facts.run, row)
    row = row if who is None else who.failure
    host = row["kind"] == "host-oom"
    asked = _asked_for(facts.run, row)
    limit = None if host else capacity(facts.run.meta, rows)
    of = f" on a GPU of {format_bytes(limit)}" if limit else ""
    return [
        Finding(
            rule="oom",
            severity=Severity.CRITICAL,
            title=said_of(row),
            summary=(f"It asked for {asked} more{of}. " if asked else "")
            + (_IN_STEP if _inside(facts.run, row, "raised_in_step") else "")
            + (_IN_EVALUATION if _inside(facts.run, row, "raised_in_evaluation") else "")
            + (_FRAGMENTED if _fragmented(str(row["text"])) else "")
            + (_AT_ITS_LIMIT if _OF_CGROUP.match(str(row["text"])) else "")
            + _first_of(facts, row)
            + _who_was_named(who),
            ranks=_ranks(row),
            steps=step_span(row),
            evidence=_evidence(facts, row, who),
            advice=_memory_advice(_alone(facts), row),
            confidence=_sure(facts, row),
        )
    ]


def _asked_for(run: Run, row: pd.Series[Any]) -> str:
    """How much was refused, as PyTorch says in the same line and NCCL in one just behind."""
    tried = _TRIED.search(str(row["text"]))
    if tried:
        return tried[1]
    events = run.told
    behind = events["line"] - row["line"] if pd.notna(row["line"]) else math.inf
    near = (events["source"] == row["source"]) & (behind > 0) & (behind <= _NEAR)
    same = (events["name"] == "refused") & (events["value"] == row["value"])
    told = events.loc[near & same, "bytes"]
    return format_bytes(float(told.iloc[0])) if len(told) else ""


_OF_SSH = (
    " 255 is what ssh itself exits with when the connection breaks; a command that exits with 255 "
    "looks the same."
)
_UNSEEN = (
    " How it ended is not known: a process that skips Python's shutdown (os._exit) looks the same."
)
_MOSTLY: Final = {
    "SIGKILL": " Signal 9 without an error of its own is mostly the kernel's out-of-memory killer.",
    "SIGBUS": " Signal 7 mostly means that shared memory (/dev/shm) was full.",
}
_STANDS_FOR: Final = " Exit code {:.0f} most likely stands for {}."


def _ranks(row: pd.Series[Any]) -> tuple[int, ...]:
    return () if pd.isna(row["rank"]) else (int(row["rank"]),)


def _first_of(facts: Facts, row: pd.Series[Any]) -> str:
    launches, others = untold_among(facts.run, row), _others(facts)
    if launches:
        return said_untold(launches)
    if not others:
        return f"It is the only failure {_where(facts)}."
    if row["kind"] == "root-cause":
        return f"The launcher names it as the first of several failures {_where(facts)}."
    if row["root_cause"] and _is_behind(facts, row):
        return f"It is the likeliest cause of the failure messages {_where(facts)}, some before it."
    if row["root_cause"]:
        return f"It was the first failure {_where(facts)}; other messages come after it."
    return (
        f"It is the first of the failure messages {_where(facts)}; which came first is not "
        "certain, hence medium confidence."
    )


def _sure(facts: Facts, row: pd.Series[Any]) -> Confidence:
    if untold_among(facts.run, row):
        return "low"
    if row["kind"] == "gone" or of_ssh(row):
        return "medium"
    return "high" if row["root_cause"] or not _others(facts) else "medium"


def _others(facts: Facts) -> int:
    """Failure messages of the last launch beside the first one."""
    ended = (last_launch(facts.run)["kind"] == "killed-by-launcher").sum()
    listed = facts.run.problems  # as notes, in the launcher's own summary
    listed = (
        (listed["kind"] == "exit")
        & (listed["severity"] == Severity.INFO)
        & (listed["segment"] == facts.run.told["segment"].max())
    )
    return int(len(_fatal(facts)) + ended + listed.sum()) - 1


def _fatal(facts: Facts) -> pd.DataFrame:
    """Failure messages of the last launch."""
    rows = last_launch(facts.run)
    fatal = rows["kind"].isin(ENDED | dict.fromkeys((*OOM, *HANG)))
    return rows[fatal & (rows["severity"] != Severity.INFO)]


def _is_behind(facts: Facts, row: pd.Series[Any]) -> bool:
    """Whether its own source told of another failure before: of what its cause led to elsewhere,
    or of the same with less."""
    rows = _fatal(facts)
    return bool(((rows["source"] == row["source"]) & (rows["line"] < row["line"])).any())


def _where(facts: Facts) -> str:
    launches = facts.run.told["segment"].nunique()
    return "in the source" if launches == 1 else f"of the last of {launches:,} launches"


def _evidence(facts: Facts, row: pd.Series[Any], who: Named | None) -> tuple[Evidence, ...]:
    text = str(row["text"]) if pd.notna(row["text"]) else str(row["kind"])
    launcher = last_launch(facts.run)
    launcher = launcher[(launcher["kind"] == "root-cause") & (launcher["line"] != row["line"])]
    told = [who.row] if who is not None else [one for _, one in launcher.head(1).iterrows()]
    return (
        row_evidence(row, quoted(text, 300)),
        *(row_evidence(one, quoted(one["text"], 200)) for one in told),
    )


def _host_memory(facts: Facts) -> tuple[Advice, ...]:
    return (
        Advice(
            "dmesg on that host", "", "look for 'Out of memory: Killed process'", "names the victim"
        ),
        Advice("DataLoader(num_workers=...)", "", "fewer", "each worker holds its own batches"),
        *offload_less(facts),
    )


def _alone(facts: Facts) -> Facts:
    """The last launch by itself: what it was told, not what those before it were."""
    events = facts.run.told
    here = events["segment"] == events["segment"].max()
    if here.all():
        return facts
    return Facts(from_events(events[here], grammar=facts.run.grammar))


def _memory_advice(facts: Facts, row: pd.Series[Any]) -> tuple[Advice, ...]:
    if row["kind"] == "host-oom":
        return _of_full_host(facts, str(row["text"]))
    if _full_before(facts, row):
        return _other_process()
    if _inside(facts.run, row, "raised_in_evaluation"):
        return _EVALUATION_MEMORY
    cures = _step_memory(facts) if _inside(facts.run, row, "raised_in_step") else _gpu_memory(facts)
    if _fragmented(str(row["text"])):
        return (_FRAGMENTS, *(advice for advice in cures if advice != _FRAGMENTS))
    return cures


def _of_full_host(facts: Facts, said: str) -> tuple[Advice, ...]:
    dmesg, *others = _host_memory(facts)
    if _OF_CGROUP.match(said):
        return (_MORE_FOR_CGROUP, *others)
    if _NAMES_VICTIM.match(said):
        return tuple(others)
    return (_OF_RAY if _BY_RAY.search(said) else dmesg, *others)


_NAMES_VICTIM: Final = re.compile(r"^Out of memory: Kill")  #: what dmesg would be asked for
_OF_CGROUP: Final = re.compile(r"^(?:Memory cgroup out of memory|OOMKilled|oom[-_]kill event)")
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
_BY_RAY: Final = re.compile(r"^ray\.exceptions\.|due to memory pressure \(OOM\)")
_OF_RAY: Final = Advice(
    "ray logs raylet.out on that host",
    "",
    "see which process held how much",
    "Ray itself ended the worker, before the kernel had to",
)

_IN_STEP: Final = (
    "Its traceback passes through step(): the optimizer's states and its update asked for it, not "
    "activations. "
)


_IN_EVALUATION: Final = (
    "Its traceback passes through an evaluation: training itself did not ask for it. "
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

_FRAGMENTED: Final = (
    "PyTorch held more than that unused, in pieces that are too small: memory is fragmented. "
)
_UNUSED: Final = re.compile(r"([\d.]{1,12} [KMGT]?i?B) is reserved by PyTorch but unallocated")
_HELD: Final = re.compile(
    r"([\d.]{1,12} [KMGT]?i?B) already allocated; .{1,60}; "
    r"([\d.]{1,12} [KMGT]?i?B) reserved in total"
)


def _fragmented(text: str) -> bool:
    """Whether PyTorch had reserved more than was asked for, beside what it had given out."""
    asked, unused, held = _TRIED.search(text), _UNUSED.search(text), _HELD.search(text)
    if not asked or not (unused or held):
        return False
    free = _size(unused[1]) if unused else _size(held[2]) - _size(held[1]) if held else 0.0
    return free > _size(asked[1])


def _size(text: str) -> float:
    return size(text) or 0.0


def _inside(run: Run, row: pd.Series[Any], name: str) -> bool:
    """Whether the traceback that ends with this failure passes through what has that name."""
    told = run.told
    told = told[(told["name"] == name) & (told["source"] == row["source"])]
    apart = row["line"] - told["line"][told["rank"].isna() | (told["rank"] == row["rank"])]
    return bool(((apart > 0) & (apart <= _TRACEBACK)).any())


def _step_memory(facts: Facts) -> tuple[Advice, ...]:
    """What makes room for the optimizer: smaller micro-batches would not."""
    key = "zero_optimization.offload_optimizer.device"
    return (
        *higher_stage(facts),
        *change(facts, key, "cpu", "keeps the optimizer's states in the host's memory"),
        Advice("optimizer", "", "one with smaller states", "8-bit Adam or Adafactor keep less"),
        _FRAGMENTS,
    )


_FRAGMENTS: Final = Advice(
    "PYTORCH_CUDA_ALLOC_CONF", "", "expandable_segments:True", "less fragmentation"
)


def _full_before(facts: Facts, row: pd.Series[Any]) -> bool:
    """Whether NCCL, which asks for little, found the GPU full before any step."""
    return bool(_OF_NCCL.search(str(row["text"]))) and bool(facts.run.told["step"].isna().all())


def _other_process() -> tuple[Advice, ...]:
    why = "NCCL asks for little, so the GPU was full already: by this process, or by another one"
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


def _gpu_memory(facts: Facts) -> tuple[Advice, ...]:
    why = "recomputes activations instead of keeping them"
    return (
        *half_micro_batch(facts),
        Advice("activation checkpointing", "", "on", why),
        *higher_stage(facts),
        _FRAGMENTS,
    )
