"""By which ways NCCL moves data that could go directly: within a node, and out of it."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dsprof.events import Kind, Severity
from dsprof.findings.advice import environment
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.run.table import of_kind, where

_DIRECT: Final = r"^P2P/"
_OF_A_NODE: Final = 8  #: GPUs that hardly any node has more of
_OF_PEERS: Final = Advice(
    "nvidia-smi topo -m, nvidia-smi topo -p2p r",
    "",
    "GPUs that reach each other directly",
    "P2P may be switched off, or not work: NCCL_P2P_DISABLE, IOMMU or ACS, a virtual machine, "
    "cards without it",
)
_OF_ADAPTERS: Final = Advice(
    "nvidia_peermem",
    "",
    "loaded on every host (lsmod), or an NCCL and a kernel that use DMA-BUF",
    "the adapter then reads and writes memory of the GPUs itself",
)


def told(facts: Facts, name: str, what: str = "") -> pd.DataFrame:
    """Lines of the last launch that has such ones of NCCL, of `what`."""
    rows = of_kind(facts.run.told, Kind.CONFIG, name)
    if rows.empty:
        return rows
    mine = rows["segment"] == rows["segment"].max()
    if what:
        mine &= rows["text"].astype("str").str.contains(what, case=False, na=False)
    return where(rows, mine)


def first_line(rows: pd.DataFrame, said: str) -> tuple[Evidence, ...]:
    return tuple(row_evidence(r, said.format(r["text"])) for _, r in rows.head(1).iterrows())


def most_nodes(facts: Facts) -> int | None:
    """Over how many nodes the widest of NCCL's communicators spans; None where it says of none."""
    nodes = told(facts, "nccl_nodes")["value"].dropna()
    return int(nodes.max()) if len(nodes) else None


def through_the_host(facts: Facts) -> list[Finding]:
    """What moves within a node, and what leaves it, by way of the host's memory."""
    return [*_within_a_node(facts), *_to_adapters(facts)]


def _within_a_node(facts: Facts) -> list[Finding]:
    ways = told(facts, "local_transport")
    if ways.empty or ways["text"].astype("str").str.contains(_DIRECT).any():
        return []
    off = environment(facts).get("NCCL_P2P_DISABLE") == "1"
    unset = Advice("NCCL_P2P_DISABLE", "1", "0, unless what it cures comes back", _OF_PEERS.why)
    return [
        Finding(
            rule="network-fallback",
            severity=Severity.WARNING,
            title="NCCL moves data between the GPUs of a node through host memory, not directly",
            summary="Every channel within a node is of shared memory (SHM), none of P2P: all that "
            "ranks exchange there passes through the CPU's memory. (GPUs that cannot reach each "
            "other have no choice: medium confidence.)",
            evidence=first_line(ways, "a channel via {}"),
            advice=(unset,) if off else (_OF_PEERS,),
            confidence="medium",
        )
    ]


def _to_adapters(facts: Facts) -> list[Finding]:
    states = told(facts, "gpudirect")
    on = states["text"].astype("str").str.lower() == "enabled"
    straight = told(facts, "transport", "GDRDMA")
    if states.empty or on.any() or len(straight) or not _leaves_a_node(facts):
        return []
    if told(facts, "network", "^IB").empty:
        return []
    return [
        Finding(
            rule="network-fallback",
            severity=Severity.WARNING,
            title="NCCL sends to other nodes through host memory: GPUDirect RDMA is off",
            summary="It says so of every adapter that it names. Each byte is then copied once more "
            "on both sides. Medium confidence: GPUs that share the CPU's memory have no other way.",
            evidence=first_line(states, "GPU Direct RDMA {}"),
            advice=(_OF_ADAPTERS,),
            confidence="medium",
        )
    ]


def _leaves_a_node(facts: Facts) -> bool:
    """Whether there are several nodes: as is stated, or as a channel by the network shows, or more
    ranks than a node has GPUs.
    """
    nodes = facts.layout.nodes or most_nodes(facts)
    if nodes is not None:
        return nodes > 1
    ranks = told(facts, "nccl_ranks")["value"].max()
    return len(told(facts, "transport")) > 0 or bool(ranks > _OF_A_NODE)
