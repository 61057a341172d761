"""Recorded processes that did not end as the others of their launch did, as problems of the run.

One that is killed does not close its recording, nor one that never comes out of what it is in; nor
one that skips Python's own end, which is no fault where it was seen to end with status 0, or where
all did and their command reports success. Nor did one end well that closed its recording, if it
was seen to exit with an error, of which it wrote nothing, or if others then lost their connection
to it: a script may call `sys.exit` anywhere. Where `dsprof attach` saw a process end, that one is
named, and how it ended. Where nobody was seen to fail and the command ended with an error all the
same, that is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import pandas as pd

from dsprof.events import Kind
from dsprof.recording.launches import FAULTS, OUTLIVED
from dsprof.run.ends.exits import (
    APART,
    INTERRUPTED,
    Clocks,
    Process,
    as_seen,
    by_one_clock,
    end_of,
    is_there,
    last_seen,
    rows_of,
    told_by,
    was_interrupted,
    was_stopped,
)
from dsprof.run.ends.missed import IDLE, Way, missing
from dsprof.run.ends.problems import NONE_CLOSED, SEVERE
from dsprof.run.table import tidy


def with_unclosed(
    events: pd.DataFrame, processes: Sequence[Process], clocks: Clocks | None = None
) -> pd.DataFrame:
    """`events`, and a problem for each of `processes` that died or hangs.

    Args:
        events: tidy events, among them the last one of each process.
        processes: `Recording.facts` of each.
        clocks: how far those of hosts are apart, where known. What happened first is judged by one
            clock; problems have the times of their own hosts.
    """
    processes = [as_seen(process) for process in processes]
    own = {process["source"]: process for process in processes}
    processes, timed = by_one_clock(processes, events, clocks)
    found = []
    for segment, launch in _launches(processes):
        mine = _without_what_it_outlived(list(launch), timed)
        went = missing(mine, timed, _follows(processes, segment, timed))
        found += [
            row
            for row in (_problem(events, own[process["source"]], way) for process, way in went)
            if not _is_known(row, told_by(mine, events))
        ]
        if not went and _command_failed(mine, timed, processes):
            found.append(_of_command(mine, events))
    return tidy(pd.concat([events, pd.DataFrame(found)], ignore_index=True)) if found else events


def _launches(processes: Sequence[Process]) -> Any:
    return groupby(sorted(processes, key=_segment), _segment)


def _without_what_it_outlived(launch: list[Process], events: pd.DataFrame) -> list[Process]:
    """The processes; without the end of a command that they went on after.

    One that only starts the job and returns (`sbatch`, `&`) says nothing of how the job ends.
    """
    over = max((one["over_at"] for one in launch if one["over_at"]), default=None)
    if not over or last_seen(launch, events) <= over + OUTLIVED * 1e9:
        return launch
    return [{**one, "over_at": None, "over_with": None} for one in launch]


def _segment(process: Process) -> int:
    return int(process["segment"])


def _follows(processes: Sequence[Process], segment: int, events: pd.DataFrame) -> bool:
    """Whether a later launch shows that this one is over; not one that runs beside it, as of other
    ranks, which `dsprof attach --pid` joined on another host.
    """
    mine = [one for one in processes if _segment(one) == segment]
    ranks = {one["rank"] for one in mine}
    later = [one["source"] for one in processes if _segment(one) > segment and one["rank"] in ranks]
    began = events["at"][events["source"].isin(later)].min()
    beside = pd.notna(began) and last_seen(mine, events) > began.value + IDLE * 1e9
    return bool(later) and not beside


def _command_failed(
    launch: list[Process], events: pd.DataFrame, processes: Sequence[Process]
) -> bool:
    """Whether their command ended with an error of which no process of theirs tells.

    The code is that of its last launch: workers that were started anew have others behind them.
    Nothing is over if they are still there.
    """
    known = [one for one in launch if one.get("over_with")]
    again = any(
        _segment(other) > _segment(one) and other.get("launch") == one.get("launch")
        for one in known
        for other in processes
    )
    if not known or again or any(map(is_there, launch)):
        return False
    return not told_by(launch, events)["name"].isin(SEVERE).any()


def _of_command(launch: list[Process], events: pd.DataFrame) -> dict[str, Any]:
    """What is known of a launch whose command ended with an error, and no process was seen to."""
    last = min(launch, key=lambda one: float(one["idle"]))
    code = next(int(one["over_with"]) for one in launch if one.get("over_with"))
    over = max((one["over_at"] for one in launch if one["over_at"]), default=None)
    seen = [one.get("killed") for one in launch]
    alone = all(gone and (gone.signal, gone.code) == (0, 0) for gone in seen)
    how = f"signal {-code} ended it" if code < 0 else f"it exited with code {code}"
    who = (
        "every recorded process had ended with code 0"
        if alone
        else "no recorded process was seen to fail: which rank failed, if one did, is unknown"
    )
    name = "command-alone" if alone else "command"
    said = f"{how}, and {who}"
    if any(map(was_interrupted, launch)):
        said = f"{INTERRUPTED} its recorded processes, and {how}"
    step = max((_last_step(rows_of(events, one)) for one in launch), default=pd.NA, key=_step)
    return _row(events, last, name, said, code) | {
        "rank": pd.NA, "host": pd.NA, "step": step,
        "at": pd.NaT if over is None else pd.Timestamp(over).floor("us"),
    }  # fmt: skip


def _step(step: Any) -> int:
    return -1 if pd.isna(step) else int(step)


_NAMES: Final = {"absent": "absent", "apart": "desync", "asked": "killed-by-launcher"}


def _seen(process: Process, way: Way) -> tuple[str, float]:
    """The name of the problem and its value: the signal or code, where somebody saw it end."""
    gone = process.get("killed")
    if way == "left alone" and not was_interrupted(process):
        return "left", math.nan
    if way in _NAMES:
        return _NAMES[way], math.nan
    if not gone or not (gone.signal or gone.code) or (way == "ended" and gone.signal in FAULTS):
        return "gone", math.nan  # nobody saw it; or a launcher may have killed it in the end
    return ("signal", gone.signal) if gone.signal else ("exit", gone.code)


def _problem(events: pd.DataFrame, process: Process, way: Way) -> dict[str, Any]:
    who = "a process" if process["pid"] is None else f"process {process['pid']}"
    text = {
        "ended": f"{NONE_CLOSED}, and the launch is over",
        "gone": f"{who} ended without closing its recording",
        "killed": f"{who} was killed while its launch went on",
        "absent": _of_absent(process, who),
        "left": f"{who} ended without an exception",
        "all left": "several processes ended at once, without an exception",
        "apart": APART,
        "asked": f"{who} was ended by SIGTERM after another had failed",
        "left alone": f"{who} {_in_order(process)}, and others lost their connection to it",
    }[way]
    name, value = _seen(process, way)
    code = f", with exit code {value}" if name == "exit" and way != "ended" else ""
    row = _row(events, process, name, text + code, value)
    rank = pd.NA if way in ("ended", "all left", "apart") else process["rank"]
    return row | {"rank": rank, "at": _moment(process, way, row["at"])}


def _of_absent(process: Process, who: str) -> str:
    call = process["in_flight"]
    if call:
        return f"{who} waited in {call['name']}, and others ended without it"
    return f"{who}{_place(process)} did not come to the collective the others waited in"


def _is_known(row: dict[str, Any], told: pd.DataFrame) -> bool:
    """Whether who watches the job has told the same of this process."""
    same = (told["source"] == row["source"]) & (told["name"] == row["name"])
    return bool(same.any()) and not pd.isna(row["rank"])


def _place(process: Process) -> str:
    phase = process.get("phase")
    if not phase:
        return ""
    return f", which had ended {phase['name']}," if phase["over"] else f", in {phase['name']},"


def _in_order(process: Process) -> str:
    if was_stopped(process):
        return "ended by SIGTERM"
    if was_interrupted(process):
        return "ended by an interrupt"
    if process.get("said_nothing"):  # as one that `os._exit` ends anywhere
        return "exited with code 0 without closing its recording"
    known = "with exit code 0" if process.get("killed") else "as far as its recording tells"
    return f"ended in good order, {known}"


def _moment(process: Process, way: Way, last: pd.Timestamp) -> pd.Timestamp:
    """When it went, as far as it says so itself."""
    return pd.Timestamp(end_of(process)).floor("us") if "left" in way else last


def _row(
    events: pd.DataFrame, process: Process, name: str, text: str, value: float
) -> dict[str, Any]:
    """A problem behind the last row of a process."""
    rows = rows_of(events, process).dropna(subset="line")  # others are not of its recording
    last = rows.sort_values("line").iloc[-1] if len(rows) else pd.Series(dtype="object")
    return {
        "segment": process["segment"], "engine": 0, "rank": process["rank"],
        "host": process["host"], "kind": str(Kind.PROBLEM), "name": name, "raw": name,
        "text": text, "source": process["source"], "value": value,
        "line": last.get("line", 0) + 1,  # where its next row would be
        "at": last.get("at", pd.NaT),
        "step": _last_step(rows),
    }  # fmt: skip


def _last_step(rows: pd.DataFrame) -> Any:
    """The last one that ended: a save behind it has the number of the next one."""
    return rows["step"][(rows["name"] == "step_seconds").fillna(value=False)].max()
