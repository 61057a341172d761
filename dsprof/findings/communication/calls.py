"""Single communication calls: how fast they are, and what rules about them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.analysis.collectives import (
    BARRIER,
    LARGE,
    SMALL,
    per_operation,
    trusted,
)
from dsprof.findings.advice import change, nccl_debug, set_to
from dsprof.findings.communication.traffic import REDUCED_IN_PHASES, beyond_gradients
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.ranks.accounted import late_at_calls
from dsprof.findings.thresholds import (
    AROUND_CALLS,
    LINK_CALLS,
    SLOW_LINK_CRITICAL,
    SLOW_LINK_WARNING,
    WAITING_EXPLAINS,
    grade,
)
from dsprof.run.table import where
from dsprof.units import format_bandwidth, format_bytes, format_seconds, format_share, listed

_AROUND = "more than the calls take, because what prepares each of them is saved as well"


def slow_link(facts: Facts) -> list[Finding] | str:
    """Even the fastest large transfers stay far below the link's speed.

    Judges the fastest tenth on the rank that has the fastest: a collective's time includes waiting
    for the last rank, and the fastest calls waited least.
    """
    link = facts.layout.link_bytes_per_second
    comm = trusted(facts.run.comm)
    large = comm[(comm["bytes"] >= LARGE) & comm["busbw"].gt(0)]
    if len(large) < LINK_CALLS:
        return (
            f"fewer than {LINK_CALLS} trustworthy communication lines of "
            f"{format_bytes(LARGE)} or more"
        )
    if not link:
        return "the link's speed is unknown (--link 100Gb states it)"
    fastest = large["busbw"].groupby(large["rank"], dropna=False).quantile(0.9)
    best = float(fastest.max())
    severity = grade(-best / link, -SLOW_LINK_WARNING, -SLOW_LINK_CRITICAL)
    if severity is None:
        return []
    shown = large.sort_values("busbw").tail(3)
    return [
        Finding(
            rule="slow-link",
            severity=severity,
            title=f"Large transfers reach {format_bandwidth(best)} of the link's "
            f"{format_bandwidth(link)}",
            summary=f"The fastest tenth of {len(large):,} calls of {format_bytes(LARGE)} and more"
            f"{_of(fastest)} has a bus bandwidth of {format_bandwidth(best)}, "
            f"{format_share(best / link)} of the link. {_why(facts, len(fastest))}",
            phase=str(large["op"].astype(str).mode().iloc[0]),
            evidence=tuple(
                row_evidence(row, f"{call_words(row)}: {format_bandwidth(row['busbw'])}")
                for _, row in shown.iterrows()
            ),
            advice=(
                *nccl_debug(facts, "shows NET/Socket or NET/IB and GPUDirect (GDRDMA)"),
                Advice(
                    "NCCL_IB_HCA, NCCL_SOCKET_IFNAME",
                    "",
                    "the fast adapters",
                    "NCCL may pick a slow one",
                ),
            ),
            confidence="medium",
        )
    ]


def _of(fastest: pd.Series[float]) -> str:
    rank: Any = fastest.idxmax() if len(fastest) > 1 else pd.NA
    return "" if pd.isna(rank) else f", on rank {rank}, whose are fastest,"


def _why(facts: Facts, told: int) -> str:
    """Why the path is slow, and not another rank late, where calls of so many ranks are told."""
    stated = "the link's speed is what was stated, hence medium confidence."
    if told == facts.layout.world_size:
        return (
            "The rank that comes last to a call waits for nobody, and calls of all ranks are here: "
            f"the path itself is slow. Yet {stated}"
        )
    return (
        "Most likely the path itself is slow, because waiting for a late rank slows the median "
        "more than the fastest calls. But a rank whose calls are not here may be late to all of "
        f"them, and {stated}"
    )


class BesidePhases(NamedTuple):
    """Recorded calls in no phase that carry no gradients: the script's own, or a trainer's."""

    title: str
    said: str
    advice: Advice


def beside_phases(facts: Facts, seconds: float) -> BesidePhases | None:
    """What is said of such calls, and what to change, if they are most of `seconds` of
    communication, apart from waiting for a late rank.
    """
    if not facts.run.is_recording:
        return None
    table = facts.phases_of("communication")
    table = table[~table.index.str.contains("_in_") & ~_may_reduce_gradients(facts, table.index)]
    late = late_at_calls(facts, frozenset(table.index))  # that is `straggler-rank`'s
    own = min(max(float(table["seconds"].sum()) - late, 0.0), seconds)
    if own < WAITING_EXPLAINS * seconds:
        return None
    calls = facts.held_up[facts.held_up["op"].isin(table.index) & facts.held_up["phase"].isna()]
    sent = float(per_operation(calls)["bytes"].sum()) * (facts.per_step or 0.0)
    size = f", {format_bytes(sent)} per step" if sent else ""
    said = (
        f"{format_seconds(own)} of it are calls that the script or its trainer makes outside of "
        f"forward, backward and update{size}, and waiting in them for a slower peer."
    )
    title = f", {format_share(own / seconds)} of it outside of forward, backward and update"
    sender = _late_to_send(facts, table.index) if sent < SMALL else None
    if sender is not None:
        why = "so few bytes take no such time: the others wait until it sends them"
        said += f" In them rank {sender} is held up least."
        what = f"what rank {sender} does before its {table.index[0]}"
        return BesidePhases(title, said, Advice(what, "", "less", why))
    sends = [str(op) for op in table.index if not BARRIER.search(op)]
    what = f"what the script sends by {listed(sends)}" if sends else "the script's own barriers"
    why = "these calls carry no gradients: larger batches do not save them"
    return BesidePhases(title, said, Advice(what, "", "less of it, or less often", why))


def _may_reduce_gradients(facts: Facts, calls: pd.Index[str]) -> npt.NDArray[np.bool_]:
    """Which recorded calls in no phase may be a script's own averaging of gradients, and a barrier
    be beside it. None are, if gradients are reduced in a phase and these send little each, as
    metrics do, or more than the model has gradients.
    """
    others = np.asarray(calls.str.contains("reduce|barrier"), bool)
    known = facts.phases_of("communication").index
    if not known.str.contains(REDUCED_IN_PHASES).any():
        return others
    beside = facts.held_up[facts.held_up["phase"].isna()]
    large = set(beside["op"][beside["bytes"] >= SMALL].astype("str")) - beyond_gradients(facts)
    return others & np.isin(calls, np.asarray(sorted(large), object))


def _late_to_send(facts: Facts, calls: pd.Index[str]) -> int | None:
    """The rank that others wait for in these broadcasts of a few bytes: the one that is held up
    less than half as long as the mean rank. None where it is none, or another kind of call.
    """
    if not calls.str.contains("broadcast").all():
        return None
    rows = where(facts.compared, facts.compared["name"].isin(calls).to_numpy(bool))
    held_up = rows.groupby("rank", observed=True)["self_seconds"].sum()
    if len(held_up) < 2 or 2 * held_up.min() >= held_up.mean():
        return None
    return int(held_up.sort_values().index[0])


def altogether(facts: Facts, seconds: float, *beside: str) -> float:
    """What calls cost including the work around them, at most half of the classes `beside` them,
    else of what is computed (of the rest of the step if that is unknown), because the model
    computes, too. The times of a logger are already complete.
    """
    if not facts.exposure_is_known or facts.step_seconds is None:
        return seconds
    computed = facts.seconds_of(*beside or ("compute", "optimizer"))
    rest = facts.step_seconds - seconds if computed is None else computed
    return seconds + min((AROUND_CALLS - 1) * seconds, rest / 2)


def beyond(facts: Facts, seconds: float, *beside: str) -> str:
    """Why more than that can be saved; "" if it cannot."""
    return _AROUND if altogether(facts, seconds, *beside) > seconds else ""


def exposed_seconds(facts: Facts, rule: Callable[[Facts], Sequence[Finding] | str]) -> float:
    found = rule(facts) if facts.exposure_is_known else ""
    return 0.0 if isinstance(found, str) else sum(one.seconds_per_step or 0.0 for one in found)


def of_zero(facts: Facts, key: str, to: str, why: str) -> tuple[Advice, ...]:
    """Advice to enlarge a size of ZeRO's, which counts parameters; empty where it holds all of the
    model's already."""
    path, whole = f"zero_optimization.{key}", facts.layout.parameters
    now = set_to(facts, path)
    if whole and isinstance(now, int | float) and now >= whole:
        return ()
    return change(facts, path, to, why, least=True)


def call_words(row: pd.Series[Any]) -> str:
    """A call in words: `40 times all_reduce of 4.00 KiB in 196 ms, 4.89 ms each`."""
    count, seconds = max(1.0, float(row["count"])), float(row["seconds"])
    said = f"{row['op']} of {format_bytes(row['bytes'])} in {format_seconds(seconds)}"
    if count == 1:
        return said
    return f"{int(count):,} times {said}, {format_seconds(seconds / count)} each"
