"""What helps against a failure: by its kind, and by what an exception says."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.finding import Advice

_BY_KIND: Final = {
    "rendezvous": (
        Advice(
            "MASTER_ADDR, MASTER_PORT, NCCL_SOCKET_IFNAME",
            "",
            "reachable from every host",
            "every worker must find the first one there",
        ),
    ),
    "port-in-use": (
        Advice("--master_port", "", "a free port", "a job still running may hold the old one"),
    ),
    "cancelled": (
        Advice(
            "sacct, or the scheduler's own log",
            "",
            "look up who ended the job",
            "this log gives no reason; no rank of it did",
        ),
    ),
    "overflow-limit": (
        Advice("bf16.enabled", "", "true", "same range as fp32: no loss scale needed"),
        Advice("learning rate", "", "lower", "a diverged model overflows at any scale"),
    ),
    "checkpoint-failed": (
        Advice("storage", "", "space and rights", "what is not written cannot be resumed from"),
    ),
    "network-error": (
        Advice(
            "ibstat, ibv_devinfo",
            "",
            "ports active on both hosts, in the container too",
            "a port, cable or switch may be down, or the adapter not visible",
        ),
        Advice("NCCL_DEBUG", "", "INFO", "says which adapter and which peer"),
    ),
    "build-failed": (
        Advice(
            "TORCH_EXTENSIONS_DIR, CUDA_HOME",
            "",
            "writable; the toolkit of torch's CUDA",
            "extensions are compiled there, by that toolkit",
        ),
    ),
}

#: What a scheduler gives as its reason -> what helps.
_BY_REASON: Final = {
    r"TIME LIMIT|walltime|RUNLIMIT": Advice(
        "time limit of the job",
        "",
        "longer, or resume from a checkpoint",
        "the scheduler ended the job, no rank of it did",
    ),
    r"PREEMPTION|REQUEUE": Advice(
        "checkpoints",
        "",
        "often, and resume from the last one",
        "the scheduler gave the nodes to another job",
    ),
    r"NODE FAILURE": Advice(
        "sinfo -R", "", "leave that node out (--exclude)", "a node failed, no rank did"
    ),
}

#: An exception that says itself which variable it wants, and how.
_VARIABLE: Final = re.compile(r"environment variable ([A-Z][A-Z0-9_]{1,60}) to (\S{1,60})")

#: What is in an exception's text -> what helps.
_BY_TEXT: Final = {
    "timer has already been started": Advice(
        "wall_clock_breakdown",
        "true",
        "false",
        "since 0.18.3 DeepSpeed cannot time its pipeline engine (0.19.8 still cannot)",
    ),
    "'numactl'": Advice(
        "--bind_cores_to_rank", "", "left out, or numactl installed", "it needs that program"
    ),
    "No space left on device": Advice("storage", "", "space", "a full disk, quota or /dev/shm"),
    "DataLoader worker": Advice(
        "DataLoader(num_workers=...)",
        "",
        "fewer, or a larger /dev/shm (docker --shm-size)",
        "its workers hand their batches over in shared memory",
    ),
    "device-side assert": Advice(
        "CUDA_LAUNCH_BLOCKING", "", "1, for one run", "the traceback then ends where it failed"
    ),
    "NCCL error": Advice("NCCL_DEBUG", "", "INFO", "says which call failed, and between whom"),
}


#: InfiniBand's completion status -> what it means (`enum ibv_wc_status` of rdma-core's verbs.h).
_COMPLETIONS: Final = {
    "5": "an earlier error had closed the queue already",
    "10": "the peer refused access to its memory",
    "12": "retries ran out, the peer or the path to it did not answer",
    "13": "the peer was not ready to receive, and retries ran out",
}
_COMPLETION: Final = re.compile(r"Got completion from peer \S{1,100} with error (\d{1,3})\b")


def link_error(text: str) -> str:
    """What an InfiniBand completion in NCCL's line means, as a sentence; "" if unknown."""
    found = _COMPLETION.search(text)
    meaning = _COMPLETIONS.get(found[1]) if found else None
    return f" InfiniBand's error {found[1]}: {meaning}." if found and meaning else ""


def cures(kind: str, text: str) -> tuple[Advice, ...]:
    """What to change; empty where nothing but the code that failed is at fault."""
    if kind == "cancelled":
        told = tuple(advice for reason, advice in _BY_REASON.items() if re.search(reason, text))
        return told or _BY_KIND[kind]
    if kind != "exception":
        return _BY_KIND.get(kind, ())
    wanted = _VARIABLE.search(text)
    if wanted:
        return (Advice(wanted[1], "", wanted[2].rstrip("."), "the exception asks for it"),)
    return tuple(advice for words, advice in _BY_TEXT.items() if words in text)[:1]
