"""How a run ended, where that is a failure: which rank was first, and why."""

from __future__ import annotations

import re
import signal
from typing import Any, NamedTuple

import pandas as pd

from dsprof.analysis.memory import capacity
from dsprof.events import Severity
from dsprof.findings.advice import half_micro_batch, higher_stage
from dsprof.findings.facts import Facts, row_evidence, whole
from dsprof.findings.finding import Advice, Confidence, Evidence, Finding
from dsprof.units import format_bytes

_OOM = ("oom", "host-oom")
_HANG = ("watchdog", "desync")
_NETWORK = ("network-fallback", "network-error")
_LAST_ENQUEUED = re.compile(r"last enqueued(?: NCCL)? work: (\d{1,12})")
_SEQUENCE = re.compile(r"SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_TRIED = re.compile(r"[Tt]ried to allocate ([\d.]{1,12} [KMGT]?i?B)")


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


def first_failure(problems: pd.DataFrame) -> pd.Series[Any] | None:
    """The row that is the root cause, else the first fatal one; None if nothing failed."""
    fatal = problems[problems["kind"].isin(_FATAL)]
    named = fatal[fatal["root_cause"].fillna(False).astype(bool)]
    rows = named if len(named) else fatal
    return None if rows.empty else rows.iloc[0]


def rank_died(facts: Facts) -> list[Finding] | str:
    """A rank, or the whole job, ended by an error that is neither memory nor a hang."""
    row = first_failure(facts.run.problems)
    if row is None or row["kind"] in (*_OOM, *_HANG):
        return []
    cause = _CAUSES[str(row["kind"])]
    text = str(row["text"]) if pd.notna(row["text"]) else ""
    killed = _signal(row)
    said = f"was killed by {killed}" if killed else cause.said
    return [
        Finding(
            rule="rank-died",
            severity=Severity.CRITICAL,
            title=f"{_who(row)} {said}{_when(row)}" + (f": {text[:160]}" if text else ""),
            summary=_first_of(facts, row) + (_SIGKILL if killed == "SIGKILL" else ""),
            ranks=_ranks(row),
            steps=_steps(row),
            evidence=_evidence(facts, row),
            advice=cause.advice + (_host_memory() if killed == "SIGKILL" else ()),
            confidence=_sure(facts, row),
        )
    ]


def oom(facts: Facts) -> list[Finding] | str:
    """A GPU or a host ran out of memory."""
    rows = facts.run.problems[facts.run.problems["kind"].isin(_OOM)]
    if rows.empty:
        return []
    first = first_failure(facts.run.problems)
    row = first if first is not None and first["kind"] in _OOM else rows.iloc[0]
    host = row["kind"] == "host-oom"
    what = "host memory" if host else "GPU memory"
    tried = _TRIED.search(str(row["text"]))
    limit = None if host else capacity(facts.run.meta, facts.run.problems)
    size = f" It asked for {tried[1]} more" if tried else ""
    of = f" on a GPU of {format_bytes(limit)}" if limit and size else ""
    return [
        Finding(
            rule="oom",
            severity=Severity.CRITICAL,
            title=f"{_who(row)} ran out of {what}{_when(row)}",
            summary=(f"{size.strip()}{of}. " if size else "") + _first_of(facts, row),
            ranks=_ranks(row),
            steps=_steps(row),
            evidence=_evidence(facts, row),
            advice=_host_memory() if host else _gpu_memory(facts),
            confidence=_sure(facts, row),
        )
    ]


def hang(facts: Facts) -> list[Finding] | str:
    """Ranks waited in a collective until the watchdog ended them."""
    row = first_failure(facts.run.problems)
    if row is None or row["kind"] not in _HANG:
        return []
    rows = facts.run.problems[facts.run.problems["kind"].isin(_HANG)]
    behind = _behind(rows)
    operation = _SEQUENCE.search(" ".join(str(text) for text in rows["text"].dropna()))
    inside = f" in {operation[2]}, call {int(operation[1]):,}" if operation else ""
    blame = (
        f"Rank {behind} had started the fewest collectives: it is the one that did not come."
        if behind is not None
        else "The rank that does not report a timeout is the one to look at: it never arrived. "
        "Medium confidence: which one that is cannot be read off these lines."
    )
    waiting = tuple(sorted({int(rank) for rank in rows["rank"].dropna()}))
    return [
        Finding(
            rule="hang",
            severity=Severity.CRITICAL,
            title=f"A collective timed out{inside}{_when(row)}"
            + (f": rank {behind} did not arrive" if behind is not None else ""),
            summary=f"{len(waiting) or len(rows)} ranks report a timeout. {blame}",
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
            confidence="high" if behind is not None else "medium",
        )
    ]


def network_fallback(facts: Facts) -> list[Finding] | str:
    """NCCL talks over sockets between nodes, or reports a broken link."""
    rows = facts.run.problems[facts.run.problems["kind"].isin(_NETWORK)]
    network = facts.run.config.get("network")
    if rows.empty and network is None:
        return "no NCCL line says which network it uses (NCCL_DEBUG=INFO)"
    nodes = facts.layout.nodes
    socket = str(network).lower().startswith("socket")
    if rows.empty and not socket:
        return []
    if rows.empty and nodes is None:
        return "NCCL uses sockets, but whether the job spans several nodes is unknown"
    if rows.empty and nodes == 1:
        return []
    broken = "network-error" in set(rows["kind"])
    return [
        Finding(
            rule="network-fallback",
            severity=Severity.CRITICAL,
            title="NCCL reports a broken link"
            if broken
            else "NCCL uses TCP sockets between nodes instead of InfiniBand or RoCE",
            summary="Sockets reach a fraction of an RDMA network's bandwidth and load the CPU; all "
            "communication between nodes pays for it. (A cluster with nothing but Ethernet has no "
            "choice: medium confidence.)",
            evidence=tuple(
                row_evidence(r, str(r["text"])[:200]) for _, r in rows.head(3).iterrows()
            )
            or _network_line(facts),
            advice=(
                Advice("NCCL_IB_DISABLE", "", "0", "1 switches InfiniBand off"),
                Advice(
                    "NCCL_IB_HCA",
                    "",
                    "the adapters of ibstat",
                    "NCCL must see them in the container",
                ),
                Advice("NCCL_DEBUG", "", "INFO", "says NET/IB or NET/Socket for each channel"),
            ),
            confidence="high" if broken else "medium",
        )
    ]


_SIGKILL = " Signal 9 without an error of its own is mostly the kernel's out-of-memory killer."


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
        return "It is the only failure in the source."
    if row["root_cause"]:
        return f"It was the first failure; {others} more messages follow from it."
    return (
        f"It is the first of {others + 1} failure messages; which came first is not certain, "
        "hence medium confidence."
    )


def _sure(facts: Facts, row: pd.Series[Any]) -> Confidence:
    return "high" if row["root_cause"] or not _others(facts) else "medium"


def _others(facts: Facts) -> int:
    """Failure messages beside the first one."""
    return int(facts.run.problems["kind"].isin((*_FATAL, "killed-by-launcher")).sum()) - 1


def _evidence(facts: Facts, row: pd.Series[Any]) -> tuple[Evidence, ...]:
    text = str(row["text"]) if pd.notna(row["text"]) else str(row["kind"])
    launcher = facts.run.problems
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


def _network_line(facts: Facts) -> tuple[Evidence, ...]:
    events = facts.run.events
    rows = events[(events["kind"] == "config") & (events["name"] == "network")]
    return tuple(row_evidence(r, f"Using network {r['text']}") for _, r in rows.head(1).iterrows())


def _host_memory() -> tuple[Advice, ...]:
    return (
        Advice(
            "dmesg on that host", "", "look for 'Out of memory: Killed process'", "names the victim"
        ),
        Advice("DataLoader(num_workers=...)", "", "fewer", "each worker holds its own batches"),
        Advice(
            "zero_optimization.offload_optimizer.device", "", "none or nvme", "frees host memory"
        ),
    )


def _gpu_memory(facts: Facts) -> tuple[Advice, ...]:
    why = "recomputes activations instead of keeping them"
    return (
        *half_micro_batch(facts),
        Advice("activation checkpointing", "", "on", why),
        *higher_stage(facts),
        Advice("PYTORCH_CUDA_ALLOC_CONF", "", "expandable_segments:True", "less fragmentation"),
    )
