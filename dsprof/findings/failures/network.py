"""Which network NCCL uses between nodes, and whether it holds."""

from __future__ import annotations

import re
from typing import Final

import pandas as pd

from dsprof.events import Severity
from dsprof.findings.advice import environment, not_yet_debugged, variable
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.failures.cures import cures
from dsprof.findings.failures.ends import first_failure
from dsprof.findings.failures.error_codes import code_meant
from dsprof.findings.finding import Advice, Evidence, Finding
from dsprof.findings.resources.nccl_paths import first_line, most_nodes, through_the_host, told
from dsprof.quotes import quoted
from dsprof.run.ends.problems import FLUSHED
from dsprof.run.table import where

_NETWORK: Final = ("network-fallback", "network-error")

#: A network, or a channel's transport, of that kind.
_SOCKET: Final = r"^(?:NET/)?Socket"
_NO_DEVICE: Final = r"^NET/IB ?: No device found"
_BROKEN_LINK: Final = "NCCL reports a broken link"
_OF_HCCL: Final = "HCCL reports a broken link"
_OF_ADAPTER: Final = "An InfiniBand or RoCE adapter reports a transfer that failed"
_NOT_REACHED: Final = "NCCL could not connect to a peer"
_NOT_YET_REACHED: Final = "NCCL tries in vain to connect to a peer"
_BROKE: Final = "NCCL lost the connection to a peer"
_REFUSED: Final = "NCCL was refused a resource of an InfiniBand or RoCE adapter"
_NO_DATA: Final = "a connection was not made, or data did not arrive"
_WHAT_IT_MEANS: Final = {
    _NOT_REACHED: "a connection was not made",
    _NOT_YET_REACHED: "a connection is not made yet; the other process may not run, or its "
    "address not be reachable from here",
    _BROKE: "a connection that had been made broke, or nothing came through it for long",
    _REFUSED: "a connection through it was not made",
}
#: In NCCL's words of these.
_CONNECTING: Final = r"\b[Cc]onnect to |socket(?:Start|Poll)Connect: "
_TRYING: Final = r"retrying \((\d{1,4})/(?!\1\))"
_MAKING: Final = r"^Call to ibv_(?:create|reg|alloc)_"
_RECEIVING: Final = r"Call to (?:recv|send)\w{0,5} (?:from|to) "


def network_fallback(facts: Facts) -> list[Finding] | str:
    """NCCL talks over sockets between nodes, moves data through memory of the host, or reports a
    broken link."""
    ways, found = through_the_host(facts), _between_nodes(facts)
    if isinstance(found, str):
        return ways or found
    return [*found, *ways]


def _between_nodes(facts: Facts) -> list[Finding] | str:
    rows = where(facts.run.problems, facts.run.problems["kind"].isin(_NETWORK))
    chosen, channels = told(facts, "network"), told(facts, "transport", _SOCKET)
    if rows.empty and chosen.empty and channels.empty:
        other = len(told(facts, "transport")) > 0  # of a channel
        return [] if other else "no NCCL line says which network it uses (NCCL_DEBUG=INFO)"
    broken = rows[rows["kind"] == "network-error"]
    if len(broken):
        ended = first_failure(facts.run)  # whose rule tells of it, where this is what ended the job
        elsewhere = ended is not None and ended["kind"] == "network-error"
        return [] if elsewhere else [_broken(facts, broken)]
    nodes = facts.layout.nodes or most_nodes(facts)
    sockets = told(facts, "network", _SOCKET)
    if nodes == 1 or (len(chosen) and sockets.empty):
        return []
    if nodes is None and channels.empty:
        named = environment(facts).get("NCCL_IB_HCA", "")
        missing = rows[rows["text"].astype("str").str.contains(_NO_DEVICE)]
        if len(missing) and len(sockets) and named and not named.startswith("^"):
            return [_named_but_missing(named, missing, sockets)]
        return "NCCL uses sockets, but whether the job spans several nodes is unknown"
    return [
        Finding(
            rule="network-fallback",
            severity=Severity.CRITICAL,
            title="NCCL uses TCP sockets between nodes instead of InfiniBand or RoCE",
            summary="Sockets reach a fraction of an RDMA network's bandwidth and load the CPU; all "
            "communication between nodes pays for it. (A cluster with nothing but Ethernet has no "
            "choice: medium confidence.)",
            evidence=(
                *_evidence(rows),
                *first_line(sockets, "Using network {}"),
                *first_line(channels, "a channel via {}"),
            )[:3],
            advice=(
                *_switched_on(facts, rows),
                *variable(
                    facts,
                    "NCCL_IB_HCA",
                    "the adapters of ibstat",
                    "NCCL must see them in the container",
                ),
            ),
            confidence="medium",
        )
    ]


def _switched_on(facts: Facts, rows: pd.DataFrame) -> tuple[Advice, ...]:
    """Not where NCCL found no device: it looks for none where InfiniBand is switched off."""
    if rows["text"].astype("str").str.contains(_NO_DEVICE).any():
        return ()
    return variable(facts, "NCCL_IB_DISABLE", "0", "1 switches InfiniBand off")


def _named_but_missing(named: str, rows: pd.DataFrame, sockets: pd.DataFrame) -> Finding:
    """Adapters that the job asks for, and that NCCL does not see."""
    return Finding(
        rule="network-fallback",
        severity=Severity.WARNING,
        title="NCCL finds none of the InfiniBand adapters that NCCL_IB_HCA names",
        summary=f"It looked for {quoted(named, 80)}, found no device and uses TCP sockets, which "
        "reach a fraction of an RDMA network's bandwidth between nodes. Medium confidence: whether "
        "the job spans several nodes is unknown.",
        evidence=(*_evidence(rows), *first_line(sockets, "Using network {}"))[:3],
        advice=(
            Advice(
                "ibstat, ibv_devinfo",
                "",
                "adapters there under these names, in the container too",
                "RDMA may not be set up on the host, or its devices not passed to the container",
            ),
        ),
        confidence="medium",
    )


def _broken(facts: Facts, rows: pd.DataFrame) -> Finding:
    """NCCL's warnings of a link that failed, which ended no process that this source shows; no more
    than a warning where training went on behind all of them, or they are of earlier launches.
    """
    over = bool((rows["segment"] < facts.run.told["segment"].max()).all())
    survived = bool(rows["survived"].all())
    queues = rows["text"].astype("str").str.contains(FLUSHED)
    flushed = bool(queues.all())
    said = [str(text) for text in (rows if flushed else rows[~queues])["text"]]
    first = said[-1] if re.search(_TRYING, said[0]) else said[0]
    title, who = _said_by(first)
    counted = "One line" if len(rows) == 1 else f"{len(rows):,} lines"
    return Finding(
        rule="network-fallback",
        severity=Severity.WARNING if over or survived else Severity.CRITICAL,
        title="NCCL reports a queue that an earlier error had closed" if flushed else title,
        summary=f"{counted} of {who}: {_WHAT_IT_MEANS.get(title, _NO_DATA)}."
        + (" That was in an earlier launch." if over else " Training went on." * survived)
        + " The error that came before is not among NCCL's lines here." * flushed
        + code_meant(first),
        evidence=_evidence(rows),
        advice=not_yet_debugged(facts, cures("network-error", first)),
    )


def _said_by(text: str) -> tuple[str, str]:
    """What the first of such lines says, and whose it is."""
    if text.startswith("mlx"):
        return _OF_ADAPTER, "its driver's library"
    if text.startswith("EI"):
        return _OF_HCCL, "HCCL"
    kinds = (
        (_TRYING, _NOT_YET_REACHED),
        (_CONNECTING, _NOT_REACHED),
        (_RECEIVING, _BROKE),
        (_MAKING, _REFUSED),
    )
    return next((title for says, title in kinds if re.search(says, text)), _BROKEN_LINK), "NCCL"


def _evidence(rows: pd.DataFrame) -> tuple[Evidence, ...]:
    return tuple(row_evidence(r, quoted(r["text"], 200)) for _, r in rows.head(3).iterrows())
