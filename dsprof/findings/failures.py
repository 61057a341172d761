"""How the last launch of a run ended, where that is a failure: which rank was first, and why.

What was survived, and how earlier launches ended, is told by `dsprof.findings.earlier`.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from dsprof.analysis.memory import capacity
from dsprof.events import Severity
from dsprof.findings.advice import half_micro_batch, higher_stage
from dsprof.findings.facts import Facts, row_evidence, whole
from dsprof.findings.finding import Advice, Confidence, Evidence, Finding
from dsprof.run import from_events
from dsprof.units import format_bytes

if TYPE_CHECKING:
    from dsprof.run import Run

_OOM = ("oom", "host-oom")
_HANG = ("absent", "watchdog", "desync")
_LAST_ENQUEUED = re.compile(r"last enqueued(?: NCCL)? work: (\d{1,12})")
_OF_NCCL = re.compile(r"Cuda failure|Failed to CUDA")
_SEQUENCE = re.compile(r"SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_TRIED = re.compile(r"[Tt]ried to allocate ([\d.]{1,12} [KMGT]?i?B)")


_NEAR = 10  #: lines


class Cause(NamedTuple):
    """What a kind of failure means, and what helps."""

    said: str
    advice: tuple[Advice, ...]


_CAUSES = {
    "exception": Cause("ended with an exception", ()),
    "root-cause": Cause("is what the launcher names as the first failure", ()),
    "exit": Cause("exited with an error", ()),
    "signal": Cause("was killed by a signal", ()),
    "connection": Cause("lost its connection to a peer", ()),
    "rendezvous": Cause(
        "did not find the other workers",
        (
            Advice(
                "MASTER_ADDR, MASTER_PORT, NCCL_SOCKET_IFNAME", "", "reachable from every host", ""
            ),
        ),
    ),
    "port-in-use": Cause(
        "could not open the launcher's port: it is taken",
        (Advice("--master_port", "", "a free port", "a job still running may hold the old one"),),
    ),
    "cancelled": Cause(
        "was ended by the scheduler",
        (Advice("time limit of the job", "", "longer, or resume from a checkpoint", ""),),
    ),
    "overflow-limit": Cause(
        "ended because the loss scale cannot shrink any further",
        (
            Advice("bf16.enabled", "false", "true", "same range as fp32: no loss scale needed"),
            Advice("learning rate", "", "lower", "a diverged model overflows at any scale"),
        ),
    ),
    "checkpoint-failed": Cause(
        "could not write a checkpoint", (Advice("storage", "", "space and rights", ""),)
    ),
    "build-failed": Cause(
        "could not build an extension",
        (
            Advice(
                "TORCH_EXTENSIONS_DIR, CUDA_HOME", "", "writable; the toolkit of torch's CUDA", ""
            ),
        ),
    ),
}

#: Ends of a run that this page judges; other problems are warnings of other rules.
_FATAL = (*_OOM, *_HANG, *(kind for kind in _CAUSES if kind != "checkpoint-failed"))


def last_launch(run: Run) -> pd.DataFrame:
    """Problems of the last launch, without those that training went on behind."""
    segments = run.told["segment"]
    return launch(run, int(segments.max()) if len(segments) else 0)


def launch(run: Run, segment: int) -> pd.DataFrame:
    """Problems of one launch, without those that training went on behind."""
    rows = run.problems
    return rows.loc[(rows["segment"] == segment) & ~rows["survived"]]


def first_failure(run: Run) -> pd.Series[Any] | None:
    """What ended the last launch: the root cause, else the first fatal row; None if nothing."""
    return first_of(last_launch(run))


def first_of(problems: pd.DataFrame) -> pd.Series[Any] | None:
    """The root cause among the problems of one launch, else the first fatal one."""
    cause = problems["root_cause"].fillna(False).astype(bool)
    fatal = problems["kind"].isin(_FATAL) & (problems["severity"] != Severity.INFO)
    named = problems[cause & (fatal | problems["kind"].isin(_CAUSES))]
    rows = named if len(named) else problems[fatal]
    return None if rows.empty else rows.iloc[0]


def said_of(row: pd.Series[Any]) -> str:
    """A failure as a sentence: `Rank 1 on w0 ran out of GPU memory after step 7`."""
    kind = str(row["kind"])
    if kind in _OOM:
        said = f"ran out of {'host' if kind == 'host-oom' else 'GPU'} memory{_device(row)}"
    elif kind in _HANG:
        said = "waited for a collective until it timed out"
    else:
        killed = _signal(row)
        said = f"was killed by {killed}" if killed else _CAUSES[kind].said
    return f"{_who(row)} {said}{_when(row)}"


def _device(row: pd.Series[Any]) -> str:
    """` (GPU 1)`: the device as its process counts them, where NCCL names it."""
    known = row["kind"] == "oom" and pd.notna(row["value"])
    return f" (GPU {int(row['value'])})" if known else ""


def rank_died(facts: Facts) -> list[Finding] | str:
    """A rank, or the whole job, ended by an error that is neither memory nor a hang."""
    row = first_failure(facts.run)
    if row is None or row["kind"] in (*_OOM, *_HANG):
        return []
    cause = _CAUSES[str(row["kind"])]
    text = str(row["text"]) if pd.notna(row["text"]) else ""
    killed = _signal(row)
    return [
        Finding(
            rule="rank-died",
            severity=Severity.CRITICAL,
            title=said_of(row) + (f": {text[:160]}" if text else ""),
            summary=_first_of(facts, row) + (_SIGKILL if killed == "SIGKILL" else ""),
            ranks=_ranks(row),
            steps=_steps(row),
            evidence=_evidence(facts, row),
            advice=cause.advice + (_host_memory(_alone(facts)) if killed == "SIGKILL" else ()),
            confidence=_sure(facts, row),
        )
    ]


def oom(facts: Facts) -> list[Finding] | str:
    """A GPU or a host ran out of memory."""
    rows = last_launch(facts.run)
    rows = rows[rows["kind"].isin(_OOM) & (rows["severity"] != Severity.INFO)]
    if rows.empty:
        return []
    first = first_failure(facts.run)
    row = first if first is not None and first["kind"] in _OOM else rows.iloc[0]
    host = row["kind"] == "host-oom"
    asked = _asked_for(facts.run, row)
    limit = None if host else capacity(facts.run.meta, rows)
    of = f" on a GPU of {format_bytes(limit)}" if limit else ""
    return [
        Finding(
            rule="oom",
            severity=Severity.CRITICAL,
            title=said_of(row),
            summary=(f"It asked for {asked} more{of}. " if asked else "") + _first_of(facts, row),
            ranks=_ranks(row),
            steps=_steps(row),
            evidence=_evidence(facts, row),
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
    behind = events["line"] - row["line"] if pd.notna(row["line"]) else np.inf
    near = (events["source"] == row["source"]) & (behind > 0) & (behind <= _NEAR)
    same = (events["name"] == "refused") & (events["value"] == row["value"])
    told = events.loc[near & same, "bytes"]
    return format_bytes(float(told.iloc[0])) if len(told) else ""


def hang(facts: Facts) -> list[Finding] | str:
    """Ranks waited in a collective until the watchdog ended them."""
    row = first_failure(facts.run)
    if row is None or row["kind"] not in _HANG:
        return []
    rows = last_launch(facts.run)
    rows = rows[rows["kind"].isin(_HANG)]
    absent = rows[rows["kind"] == "absent"]
    behind = whole(absent["rank"].iloc[0]) if len(absent) == 1 else _behind(rows)
    waiting = tuple(sorted({int(rank) for rank in rows["rank"].dropna()}))
    missing = _missing(facts, waiting) if behind is None else None
    operation = _SEQUENCE.search(" ".join(str(text) for text in rows["text"].dropna()))
    inside = f" in {operation[2]}, call {int(operation[1]):,}" if operation else ""
    blame = (
        f"Rank {missing} alone reports none: it never arrived. Medium confidence: it may have "
        "been ended before it could."
        if missing is not None
        else f"Rank {behind} had started the fewest collectives: it is the one that did not come."
        if behind is not None
        else "A rank that never arrived may be one of those that report none, or of those that "
        "this source does not show. Medium confidence: which one cannot be read off these lines."
    )
    sure = behind is not None
    behind = missing if behind is None else behind
    return [
        Finding(
            rule="hang",
            severity=Severity.CRITICAL,
            title=(f"A collective timed out{inside}" if absent.empty else "Training hung")
            + _when(row)
            + (f": rank {behind} did not arrive" if behind is not None else ""),
            summary=f"{_report(len(waiting) or len(rows))} a timeout. {blame}"
            if absent.empty
            else f"{_ABSENT} Its own stack (py-spy dump --pid) says where it is, if it still runs.",
            ranks=(behind,) if behind is not None else waiting,
            steps=_steps(row),
            evidence=tuple(
                row_evidence(r, str(r["text"])[:200]) for _, r in rows.head(4).iterrows()
            ),
            advice=(
                Advice(
                    "TORCH_NCCL_TRACE_BUFFER_SIZE",
                    "",
                    "2000",
                    "PyTorch's flight recorder then writes where each rank stood",
                ),
                Advice(
                    "branches that depend on data or rank",
                    "",
                    "the same collectives on every rank",
                    "a rank that skips one leaves the others waiting",
                ),
            ),
            confidence="high" if sure else "medium",
        )
    ]


def _missing(facts: Facts, waiting: tuple[int, ...]) -> int | None:
    """The one rank of the job that does not report a timeout, if all others do."""
    told = last_launch(facts.run)["rank"].dropna()
    size = facts.layout.world_size
    ranks = set(range(size)) if size else {int(rank) for rank in told}
    left = ranks - set(waiting)
    return left.pop() if waiting and len(left) == 1 else None


_SIGKILL = " Signal 9 without an error of its own is mostly the kernel's out-of-memory killer."


_ABSENT = "The others waited in a collective; its recording ends before that one, without a word."


def _report(ranks: int) -> str:
    return "One rank reports" if ranks == 1 else f"{ranks:,} ranks report"


def _who(row: pd.Series[Any]) -> str:
    rank = f"Rank {int(row['rank'])}" if pd.notna(row["rank"]) else "A process"
    return rank + (f" on {row['host']}" if pd.notna(row["host"]) else "")


def _when(row: pd.Series[Any]) -> str:
    return f" after step {int(row['step']):,}" if pd.notna(row["step"]) else ""


def _ranks(row: pd.Series[Any]) -> tuple[int, ...]:
    return () if pd.isna(row["rank"]) else (int(row["rank"]),)


def _steps(row: pd.Series[Any]) -> tuple[int, int] | None:
    step = whole(row["step"])
    return None if step is None else (step, step)


def _first_of(facts: Facts, row: pd.Series[Any]) -> str:
    others = _others(facts)
    if not others:
        return f"It is the only failure {_where(facts)}."
    if row["root_cause"]:
        follow = "message follows" if others == 1 else "messages follow"
        return f"It was the first failure {_where(facts)}; {others:,} more {follow} from it."
    return (
        f"It is the first of {others + 1:,} failure messages {_where(facts)}; which came first "
        "is not certain, hence medium confidence."
    )


def _sure(facts: Facts, row: pd.Series[Any]) -> Confidence:
    return "high" if row["root_cause"] or not _others(facts) else "medium"


def _others(facts: Facts) -> int:
    """Failure messages of the last launch beside the first one."""
    rows = last_launch(facts.run)
    fatal = rows["kind"].isin(_CAUSES | dict.fromkeys((*_OOM, *_HANG)))
    said = fatal & (rows["severity"] != Severity.INFO)
    return int((said | (rows["kind"] == "killed-by-launcher")).sum()) - 1


def _where(facts: Facts) -> str:
    launches = facts.run.told["segment"].nunique()
    return "in the source" if launches == 1 else f"of the last of {launches:,} launches"


def _evidence(facts: Facts, row: pd.Series[Any]) -> tuple[Evidence, ...]:
    text = str(row["text"]) if pd.notna(row["text"]) else str(row["kind"])
    launcher = last_launch(facts.run)
    launcher = launcher[(launcher["kind"] == "root-cause") & (launcher["line"] != row["line"])]
    return (
        row_evidence(row, text[:300]),
        *(row_evidence(r, str(r["text"])[:200]) for _, r in launcher.head(1).iterrows()),
    )


def _signal(row: pd.Series[Any]) -> str | None:
    if row["kind"] not in ("exit", "signal", "root-cause") or pd.isna(row["value"]):
        return None
    code = int(row["value"])
    number = code if row["kind"] == "signal" else -code
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _behind(rows: pd.DataFrame) -> int | None:
    """The rank whose last enqueued collective is lowest, if one is below all others."""
    enqueued: dict[int, int] = {}
    for rank, text in zip(rows["rank"], rows["text"].astype(str), strict=True):
        found = _LAST_ENQUEUED.search(text) or _SEQUENCE.search(text)
        if found and pd.notna(rank):
            enqueued[int(rank)] = max(int(found[1]), enqueued.get(int(rank), 0))
    if len(enqueued) < 2:
        return None
    lowest = min(enqueued.values())
    ranks = [rank for rank, last in enqueued.items() if last == lowest]
    return ranks[0] if len(ranks) == 1 else None


def _host_memory(facts: Facts) -> tuple[Advice, ...]:
    return (
        Advice(
            "dmesg on that host", "", "look for 'Out of memory: Killed process'", "names the victim"
        ),
        Advice("DataLoader(num_workers=...)", "", "fewer", "each worker holds its own batches"),
        *_offload_less(facts),
    )


def _offload_less(facts: Facts) -> tuple[Advice, ...]:
    """Nothing where no optimizer lies in the host's memory: ZeRO 0 has no offloading."""
    key = "zero_optimization.offload_optimizer"
    device = facts.run.config.get("offload_optimizer") or facts.setting(f"{key}.device")
    unset = device is None and (facts.has_config or facts.layout.zero_stage == 0)
    if unset or device in ("none", "nvme"):
        return ()
    return (Advice(f"{key}.device", str(device or ""), "none or nvme", "frees host memory"),)


def _alone(facts: Facts) -> Facts:
    """The last launch by itself: what it was told, not what those before it were."""
    events = facts.run.told
    here = events["segment"] == events["segment"].max()
    if here.all():
        return facts
    return Facts(from_events(events[here], grammar=facts.run.grammar))


def _memory_advice(facts: Facts, row: pd.Series[Any]) -> tuple[Advice, ...]:
    if row["kind"] == "host-oom":
        return _host_memory(facts)
    return _other_process() if _full_before(facts, row) else _gpu_memory(facts)


def _full_before(facts: Facts, row: pd.Series[Any]) -> bool:
    """Whether NCCL, which asks for little, found the GPU full before any step."""
    return bool(_OF_NCCL.search(str(row["text"]))) and bool(facts.run.told["step"].isna().all())


def _other_process() -> tuple[Advice, ...]:
    why = "another process, or what an earlier job left, holds this GPU"
    return (
        Advice("nvidia-smi on that host", "", "end what else holds the GPU", why),
        Advice("processes per GPU", "", "one", "two of one job on a GPU fill it together"),
    )


def _gpu_memory(facts: Facts) -> tuple[Advice, ...]:
    why = "recomputes activations instead of keeping them"
    return (
        *half_micro_batch(facts),
        Advice("activation checkpointing", "", "on", why),
        *higher_stage(facts),
        Advice("PYTORCH_CUDA_ALLOC_CONF", "", "expandable_segments:True", "less fragmentation"),
    )
