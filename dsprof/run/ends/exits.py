"""What is known of recorded processes and of how they ended.

A process that ends, by an exception too, closes its recording. Where `dsprof attach` saw it end,
it is known how (`killed`), whether or not it closed it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from dsprof.events import Kind
from dsprof.recording.launches import NOT_FOUND, Gone
from dsprof.run.table import of_kind, where

#: What a script exits with that was asked to end and says so.
_ASKED: Final = 128 + signal.SIGTERM

#: Begins what is said of a launch that was stopped by hand.
INTERRUPTED: Final = "an interrupt ended"
#: And of one in which every rank waited.
APART: Final = "no rank came out of the collective it waited in, and not all waited in the same"

#: `Recording.facts` of one.
Process = Mapping[str, Any]
#: Of each host, see `recording.clocks.apart`.
Clocks = Mapping[str, Mapping[str, float]]


def as_seen(process: Process) -> Process:
    """The process with what its end is known to mean.

    Of one that was gone when it was looked for, only since when is known: `lost`. Not that it died
    before: it may run in a container, with a number that means another here. One that was seen to
    end with status 0 counts as closed then.
    """
    gone = process.get("killed")
    if not gone:
        return process
    if gone.signal == NOT_FOUND:
        return {**process, "killed": None, "lost": gone.at}
    if process["ended"] or (gone.signal, gone.code) != (0, 0):
        return process
    return {**process, "ended": True, "ended_at": gone.at, "said_nothing": True}


def by_one_clock(
    processes: Sequence[Process], events: pd.DataFrame, clocks: Clocks | None
) -> tuple[list[Process], pd.DataFrame]:
    """The processes and their events by the clock of the first host, as far as `clocks` tell how
    far the others' are apart from it.

    When a command ended (`over_at`) is by the clock of who started it, most likely that one.
    """
    ahead = {host: known.get("ahead", 0.0) for host, known in (clocks or {}).items()}
    late = {
        one["source"]: round(ahead[str(one["host"])] * 1e9)
        for one in processes
        if ahead.get(str(one["host"]))
    }
    if not late:
        return list(processes), events
    shift = pd.to_timedelta(events["source"].astype("object").map(late).fillna(0), unit="ns")
    timed = events.assign(at=events["at"] - shift.to_numpy())
    return [_earlier(one, late.get(one["source"], 0)) for one in processes], timed


def have_one_clock(processes: Sequence[Process], clocks: Clocks | None) -> bool:
    """Whether it is known how far the clocks of their hosts are apart."""
    hosts = {str(one["host"]) for one in processes}
    return len(hosts) < 2 or all("ahead" in (clocks or {}).get(host, {}) for host in hosts)


def _earlier(process: Process, late: int) -> Process:
    """The process with all moments of its own clock so many ns earlier."""
    moments = {name: process.get(name) for name in ("ended_at", "alive_at", "lost")}
    told = {name: at - late for name, at in moments.items() if at}
    for cell in ("in_flight", "phase"):
        known = process.get(cell)
        if known and known.get("at"):
            told[cell] = {**known, "at": known["at"] - late}
    gone = process.get("killed")
    return {**process, **told, **({"killed": gone._replace(at=gone.at - late)} if gone else {})}


def has_failed(gone: Gone) -> bool:
    """Whether its exit code says so; a crash of a process that closed its recording does not."""
    return gone.code not in (None, 0, _ASKED)


def is_there(process: Process) -> bool:
    """Whether it is seen to be there now."""
    return bool(process.get("alive_at"))


def was_interrupted(process: Process) -> bool:
    """By Ctrl-C, which is no fault, or somebody's `kill -INT`."""
    gone = process.get("killed")
    return bool(gone and gone.signal == signal.SIGINT)


def was_stopped(process: Process) -> bool:
    """By SIGTERM, which a launcher sends to the others: whoever was first had it from elsewhere."""
    gone = process.get("killed")
    return bool(not process["ended"] and gone and gone.signal == signal.SIGTERM)


def ended_by_signal(process: Process) -> bool:
    """By any: its fault, the kernel's, or its launcher's."""
    gone = process.get("killed")
    return bool(gone and gone.signal)


def end_of(process: Process) -> int:
    """When it closed its recording or was seen to end, ns since 1970."""
    return int(process["ended_at"] if process["ended"] else process["killed"].at)


def rows_of(events: pd.DataFrame, process: Process) -> pd.DataFrame:
    return where(events, (events["source"] == process["source"]).fillna(value=False))


def last_seen(launch: Sequence[Process], events: pd.DataFrame) -> int:
    """When the last row of any of them was written, or now, if one is seen to be there.

    In ns since 1970.
    """
    last = [rows_of(events, one)["at"].max() for one in launch]
    times = [int(at.value) for at in last if pd.notna(at)]
    return max([*times, *(int(one.get("alive_at") or 0) for one in launch)], default=0)


def told_by(launch: Sequence[Process], events: pd.DataFrame) -> pd.DataFrame:
    """The problems that its processes tell of themselves."""
    told = of_kind(events, Kind.PROBLEM)
    return where(told, told["source"].isin([one["source"] for one in launch]))
