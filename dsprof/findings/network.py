"""Which network NCCL uses between nodes, and whether it holds."""

from __future__ import annotations

import re
from typing import Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.cures import code_meant, cures
from dsprof.findings.ends import first_failure
from dsprof.findings.facts import Facts, row_evidence
from dsprof.findings.finding import Advice, Evidence, Finding

_NETWORK: Final = ("network-fallback", "network-error")

#: What the launcher hands to the shells of other hosts.
_EXPORT: Final = re.compile(r"\bexport (\w{1,60})=([^\s;]{1,200})")


def network_fallback(facts: Facts) -> list[Finding] | str:
    """NCCL talks over sockets between nodes, or reports a broken link."""
    rows = facts.run.problems[facts.run.problems["kind"].isin(_NETWORK)]
    network = facts.run.config.get("network")
    if rows.empty and network is None:
        return "no NCCL line says which network it uses (NCCL_DEBUG=INFO)"
    broken = rows[rows["kind"] == "network-error"]
    if len(broken):
        ended = first_failure(facts.run)  # whose rule tells of it, where this is what ended the job
        return [] if ended is not None and ended["kind"] == "network-error" else [_broken(broken)]
    nodes = facts.layout.nodes
    socket = str(network).lower().startswith("socket")
    if rows.empty and not socket:
        return []
    if rows.empty and nodes is None:
        return "NCCL uses sockets, but whether the job spans several nodes is unknown"
    if rows.empty and nodes == 1:
        return []
    return [
        Finding(
            rule="network-fallback",
            severity=Severity.CRITICAL,
            title="NCCL uses TCP sockets between nodes instead of InfiniBand or RoCE",
            summary="Sockets reach a fraction of an RDMA network's bandwidth and load the CPU; all "
            "communication between nodes pays for it. (A cluster with nothing but Ethernet has no "
            "choice: medium confidence.)",
            evidence=_evidence(rows) or _network_line(facts),
            advice=(
                *_variable(facts, "NCCL_IB_DISABLE", "0", "1 switches InfiniBand off"),
                *_variable(
                    facts,
                    "NCCL_IB_HCA",
                    "the adapters of ibstat",
                    "NCCL must see them in the container",
                ),
                *_variable(
                    facts, "NCCL_DEBUG", "INFO", "says NET/IB or NET/Socket for each channel"
                ),
            ),
            confidence="medium",
        )
    ]


def _broken(rows: pd.DataFrame) -> Finding:
    """NCCL's warnings of a link that failed, which ended no process that this source shows."""
    told = "One line" if len(rows) == 1 else f"{len(rows):,} lines"
    return Finding(
        rule="network-fallback",
        severity=Severity.CRITICAL,
        title="NCCL reports a broken link",
        summary=f"{told} of NCCL: a connection was not made, or data did not arrive."
        + code_meant(str(rows["text"].iloc[0])),
        evidence=_evidence(rows),
        advice=cures("network-error", str(rows["text"].iloc[0])),
    )


def _evidence(rows: pd.DataFrame) -> tuple[Evidence, ...]:
    return tuple(row_evidence(r, str(r["text"])[:200]) for _, r in rows.head(3).iterrows())


def _network_line(facts: Facts) -> tuple[Evidence, ...]:
    events = facts.run.told
    rows = events[(events["kind"] == "config") & (events["name"] == "network")]
    return tuple(row_evidence(r, f"Using network {r['text']}") for _, r in rows.head(1).iterrows())


def _variable(facts: Facts, name: str, to: str, why: str) -> tuple[Advice, ...]:
    """Advice to set a variable of the environment; empty if it is so already."""
    now = _environment(facts).get(name, "")
    return () if now.lower() == to.lower() else (Advice(name, now, to, why),)


def _environment(facts: Facts) -> dict[str, str]:
    """What the launcher's command and NCCL itself tell of the variables they were given."""
    config = facts.run.config
    exported = dict(_EXPORT.findall(str(config.get("launch_command", ""))))
    obeyed = {name: str(value) for name, value in config.items() if name.startswith("NCCL_")}
    return exported | obeyed
