"""Recorded processes that did not end as the others of their launch did.

A process that ends, by an exception too, closes its recording. One that is killed does not, nor
one that never comes out of what it is in; nor one that skips Python's own end, which is no fault
where it was seen to end with status 0, or where all did and their command reports success. Nor
did one end well that closed its recording, if it was seen to exit with an error, of which it wrote
nothing, or if others then lost their connection to it: a script may call `sys.exit` anywhere. It
is not over with a launch because a recording is open: training may go on. It is once another
process has closed its own, or a later launch has begun, or `dsprof attach` saw its command end, or
nobody has written for `IDLE`. Where it saw a process end, that one is named, and how it ended.
Where nobody was seen to fail and the command ended with an error all the same, that is told.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pandas as pd

from dsprof.events import Class, Kind
from dsprof.recording.launches import AT_ONCE, FAULTS, NOT_FOUND, OUTLIVED, Gone
from dsprof.run.problems import NONE_CLOSED, OF_A_PEER, SEVERE
from dsprof.run.table import of_kind, tidy

#: Seconds without a row after which a launch is over, or stuck.
IDLE: Final = 60.0
#: So long the others waited for a process that hung, at least: they lose one that died at once.
#: (On NCCL they wait for that, too; then both are told as what they have in common.)
WAITED: Final = 5.0
#: And longer than so many of their steps: none is that much longer than the others.
STEPS: Final = 5
#: A save, an evaluation or a generation may take as long as this, if nothing shows what is usual.
LONG: Final = 600.0
#: And no save takes so many times what the longest one before did.
SAVES: Final = 20
#: `dsprof attach` looks for new processes within so many seconds: they may be gone by then.
LOOKING: Final = 1.0
#: What a script exits with that was asked to end and says so.
_ASKED: Final = 128 + signal.SIGTERM

#: What no step needs, and what may take as long as it takes.
_LONG: Final = ("evaluation", "generate")

Process = Mapping[str, Any]


def with_unclosed(events: pd.DataFrame, processes: Sequence[Process]) -> pd.DataFrame:
    """`events`, and a problem for each of `processes` that died or hangs.

    Args:
        events: tidy events, among them the last one of each process.
        processes: `Recording.facts` of each.
    """
    processes = [_ended_well(_as_found(process)) for process in processes]
    found = []
    for segment, launch in _launches(processes):
        mine = _without_what_it_outlived(list(launch), events)
        missing = _missing(mine, events, _follows(processes, segment))
        found += [_problem(events, process, way) for process, way in missing]
        if not missing and _command_failed(mine, events, processes):
            found.append(_of_command(mine, events))
    return tidy(pd.concat([events, pd.DataFrame(found)], ignore_index=True)) if found else events


def _as_found(process: Process) -> Process:
    """The process; of one that was gone when it was looked for, only since when is known: `lost`.

    Not that it died before: it may run in a container, with a number that means another here.
    """
    gone = process.get("killed")
    if not gone or gone.signal != NOT_FOUND:
        return process
    return {**process, "killed": None, "lost": gone.at}


def _ended_well(process: Process) -> Process:
    """The process; one that was seen to end with status 0 counts as closed then."""
    gone = process.get("killed")
    if process["ended"] or not gone or (gone.signal, gone.code) != (0, 0):
        return process
    return {**process, "ended": True, "ended_at": gone.at, "said_nothing": True}


def _launches(processes: Sequence[Process]) -> Any:
    return groupby(sorted(processes, key=_segment), _segment)


def _without_what_it_outlived(launch: list[Process], events: pd.DataFrame) -> list[Process]:
    """The processes; without the end of a command that they went on after.

    One that only starts the job and returns (`sbatch`, `&`) says nothing of how the job ends.
    """
    over = max((one["over_at"] for one in launch if one["over_at"]), default=None)
    if not over or _last_seen(launch, events) <= over + OUTLIVED * 1e9:
        return launch
    return [{**one, "over_at": None, "over_with": None} for one in launch]


def _segment(process: Process) -> int:
    return int(process["segment"])


def _follows(processes: Sequence[Process], segment: int) -> bool:
    return any(_segment(process) > segment for process in processes)


def _command_failed(
    launch: list[Process], events: pd.DataFrame, processes: Sequence[Process]
) -> bool:
    """Whether their command ended with an error of which no process of theirs tells.

    The code is that of its last launch: workers that were started anew have others behind them.
    """
    known = [one for one in launch if one.get("over_with")]
    again = any(
        _segment(other) > _segment(one) and other.get("launch") == one.get("launch")
        for one in known
        for other in processes
    )
    return bool(known) and not again and not _told(launch, events)["name"].isin(SEVERE).any()


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
    step = max((_rows_of(events, one)["step"].max() for one in launch), default=pd.NA, key=_step)
    return _row(events, last, name, f"{how}, and {who}", code) | {
        "rank": pd.NA, "host": pd.NA, "step": step,
        "at": pd.NaT if over is None else pd.Timestamp(over).floor("us"),
    }  # fmt: skip


def _step(step: Any) -> int:
    return -1 if pd.isna(step) else int(step)


def _missing(
    launch: list[Process], events: pd.DataFrame, followed: bool
) -> list[tuple[Process, str]]:
    """The processes of a launch that went without a word ("gone"), or that others waited for."""
    if not followed and _meant(launch, events):
        return []
    first = _killed_first(launch)
    if first:
        return [(first, "killed")]
    left = _left(launch, events)
    if left:
        return left
    still = [process for process in launch if not process["ended"]]
    ends = [process["ended_at"] for process in launch if process["ended"]]
    if ends:
        least = _patience(launch, events)
        return [(one, _way(one, events, max(ends), least)) for one in still]
    first = _gone_first(still)
    if first:
        return [(first, "gone")]
    return _of_none_closed(still, events, followed)


def _meant(launch: list[Process], events: pd.DataFrame) -> bool:
    """Whether all exited with one code and without a word, and the command reports success.

    So Ray ends its workers when they have done their work: with code 1. Or none closed its
    recording, nobody saw how any of them ended (on other hosts nobody does), and none waited.
    """
    if not all(one.get("over_with") == 0 for one in launch) or not _told(launch, events).empty:
        return False
    if not any(one["ended"] or one.get("killed") or one["in_flight"] for one in launch):
        return True
    codes = {one["killed"].code if one.get("killed") else None for one in launch}
    return len(codes) == 1 and None not in codes


def _told(launch: list[Process], events: pd.DataFrame) -> pd.DataFrame:
    """The problems that its processes tell of themselves."""
    told = of_kind(events, Kind.PROBLEM)
    return told[told["source"].isin([one["source"] for one in launch])]


def _of_none_closed(
    still: list[Process], events: pd.DataFrame, followed: bool
) -> list[tuple[Process, str]]:
    """Those that others waited for.

    Where all went and none waited long, who was first is not known: the one that wrote last stands
    for all of them ("ended"), if the launch is known to be over. A signal that ended one of them
    was not seen to come first, so it is no reason to name that one.
    """
    over = max((process["over_at"] for process in still if process["over_at"]), default=None)
    is_over = bool(followed or over) or _ended_in_the_middle(still)
    if not is_over and any(process["idle"] < IDLE for process in still):
        return []
    absent = [process for process in still if not process["in_flight"]]
    if len(absent) < len(still):
        end, least = over or _last_sign(still, events), _patience(still, events)
        ways = [(one, _way(one, events, end, least)) for one in absent]
        blamed = [
            (one, way)
            for one, way in ways
            if way == "absent" or (over and not _ended_by_signal(one))
        ]
        if blamed:
            return blamed
    if not is_over:
        return []
    return [(min(still, key=lambda one: float(one["idle"])), "ended")]


def _ended_in_the_middle(launch: list[Process]) -> bool:
    """Whether all are gone, and one of them from a phase or a collective: then they did not just
    skip Python's own end when they had done their work.
    """
    phases = (one.get("phase") for one in launch)
    inside = any(phase and not phase["over"] for phase in phases)
    return all(one.get("gone") for one in launch) and (
        inside or any(one["in_flight"] for one in launch)
    )


def _last_sign(launch: list[Process], events: pd.DataFrame) -> int:
    """When any of them was last known to be there, ns since 1970.

    A process that is ended from outside writes nothing more: of a launch that nobody saw the end
    of, it is unknown how long it stood still before that.
    """
    waits = [int(one["in_flight"]["at"] or 0) for one in launch if one["in_flight"]]
    return max([*waits, _last_seen(launch, events)])


def _last_seen(launch: list[Process], events: pd.DataFrame) -> int:
    """When the last row of any of them was written, or now, if one is seen to be there."""
    last = [_rows_of(events, one)["at"].max() for one in launch]
    times = [int(at.value) for at in last if pd.notna(at)]
    return max([*times, *(int(one.get("alive_at") or 0) for one in launch)], default=0)


def _patience(launch: list[Process], events: pd.DataFrame) -> float:
    """Seconds after its last row from which on a process is missed: a step may be longer than
    `WAITED`, and a rank that is in the middle of one has not hung.
    """
    mine = events[(events["segment"] == launch[0]["segment"]).fillna(value=False)]
    step = mine["seconds"][(mine["name"] == "step_seconds").fillna(value=False)].median()
    return max(WAITED, STEPS * float(step)) if pd.notna(step) else WAITED


def _killed_first(launch: list[Process]) -> Process | None:
    """The process whose fault, or the kernel's, ended it while the others still went on.

    A launcher asks the others to end, and kills those that do not, which may be long after: then
    it is no fault of theirs, whoever was first and however that one went.
    """
    gone = [process for process in launch if process.get("killed") and not process["ended"]]
    by_fault = [one for one in gone if one["killed"].signal in FAULTS]
    first = min(by_fault, key=lambda one: int(one["killed"].at), default=None)
    if first is None:
        return None
    others = [one["killed"].at + AT_ONCE * 1e9 for one in gone if one is not first]
    others += [one["ended_at"] + WAITED * 1e9 for one in launch if one["ended"]]
    others += [
        one["lost"] - LOOKING * 1e9 for one in launch if one.get("lost") and not one["ended"]
    ]
    since = (first["in_flight"] or {}).get("at")
    if since and any(not one["ended"] and not one.get("killed") for one in launch):
        others.append(since + WAITED * 1e9)  # it waited, maybe for who is on another host
    return None if first["killed"].at > min(others, default=math.inf) else first


def _left(launch: list[Process], events: pd.DataFrame) -> list[tuple[Process, str]]:
    """The first that closed its recording and then failed, or left the others alone.

    None where somebody else was gone before; of those that failed at once one stands for all.
    """
    told = _told(launch, events)
    seen = [one for one in launch if one["ended"] and one.get("killed")]
    silent = [one for one in seen if not (told["source"] == one["source"]).any()]
    failed = [one for one in silent if _failed(one["killed"])]
    if failed:
        first, *others = sorted(failed, key=_end)
        gone = [one["killed"].at for one in launch if not one["ended"] and one.get("killed")]
        at_once = bool(others) and _end(others[0]) - _end(first) < AT_ONCE * 1e9
        before = min(gone, default=math.inf) < _end(first)
        return [] if before else [(first, "all left" if at_once else "left")]
    lost = told["text"].astype("str").str.contains(OF_A_PEER)
    well = [one for one in silent if one["killed"].code == 0 or _interrupted(one)]
    well += [one for one in launch if _stopped(one)]
    if not well or told.empty or not lost.all() or told["at"].isna().any():
        return []
    first = min(well, key=_end)
    since = _end(first) - AT_ONCE * 1e9 * bool(first.get("said_nothing"))  # seen a moment later
    return [(first, "left alone")] if told["at"].min().value > since else []


def _failed(gone: Gone) -> bool:
    """Whether a process that closed its recording says so; a crash on its way out is no fault."""
    return gone.code not in (None, 0, _ASKED)


def _interrupted(process: Process) -> bool:
    """By Ctrl-C, which is no fault, or somebody's `kill -INT`."""
    gone = process.get("killed")
    return bool(gone and gone.signal == signal.SIGINT)


def _stopped(process: Process) -> bool:
    """By SIGTERM, which a launcher sends to the others: whoever was first had it from elsewhere."""
    gone = process.get("killed")
    return bool(not process["ended"] and gone and gone.signal == signal.SIGTERM)


def _ended_by_signal(process: Process) -> bool:
    gone = process.get("killed")
    return bool(gone and gone.signal)


def _end(process: Process) -> int:
    return int(process["ended_at"] if process["ended"] else process["killed"].at)


def _gone_first(still: list[Process]) -> Process | None:
    """The process that was gone, by no signal, before the launcher asked all others to end.

    One that is known to have failed, if it was gone well before anything befell the others.
    """
    if not all(one.get("killed") for one in still):
        return None
    first, *others = sorted(still, key=lambda one: int(one["killed"].at))
    asked = [one["killed"].signal == signal.SIGTERM for one in others]
    if first["killed"].code:
        since = first["killed"].at + AT_ONCE * 1e9
        return first if all(asked) or all(one["killed"].at > since for one in others) else None
    return first if not first["killed"].signal and asked and all(asked) else None


def _way(process: Process, events: pd.DataFrame, end: int, least: float) -> str:
    """How it went, told by how long the others still went on: until `end`, ns since 1970.

    What its thread says of the node's GPUs it also says where training stands still.
    """
    rows = _rows_of(events, process)
    last = rows["at"][rows["kind"] != Kind.GPU].max()
    waited = (end - last.value) * 1e-9 if pd.notna(last) else 0.0
    return "absent" if waited >= max(least, _usual(process, rows)) else "gone"


def _usual(process: Process, rows: pd.DataFrame) -> float:
    """Seconds that the phase which it is in may take, of one that takes long by its nature."""
    phase = process.get("phase")
    if not phase or phase["over"]:
        return 0.0
    if phase["class"] != Class.CHECKPOINT:
        return LONG if phase["name"] in _LONG else 0.0
    saves = rows["seconds"][(rows["raw"] == phase["name"]).fillna(value=False)]
    return max(IDLE, SAVES * float(saves.max())) if saves.notna().any() else LONG


def _rows_of(events: pd.DataFrame, process: Process) -> pd.DataFrame:
    rows: pd.DataFrame = events[(events["source"] == process["source"]).fillna(value=False)]
    return rows


def _seen(process: Process, way: str) -> tuple[str, float]:
    """The name of the problem and its value: the signal or code, where somebody saw it end."""
    gone = process.get("killed")
    if way == "left alone" and not _interrupted(process):
        return "left", math.nan
    if way == "absent":
        return way, math.nan
    if not gone or not (gone.signal or gone.code) or (way == "ended" and gone.signal in FAULTS):
        return "gone", math.nan  # nobody saw it; or a launcher may have killed it in the end
    return ("signal", gone.signal) if gone.signal else ("exit", gone.code)


def _problem(events: pd.DataFrame, process: Process, way: str) -> dict[str, Any]:
    text = {
        "ended": f"{NONE_CLOSED}, and the launch is over",
        "gone": f"process {process['pid']} ended without closing its recording",
        "killed": f"process {process['pid']} was killed while its launch went on",
        "absent": f"process {process['pid']}{_place(process)} did not come to the collective the "
        "others waited in",
        "left": f"process {process['pid']} ended without an exception",
        "all left": "several processes ended at once, without an exception",
        "left alone": f"process {process['pid']} ended {_in_order(process)}, and others lost their "
        "connection to it",
    }[way]
    name, value = _seen(process, way)
    code = f", with exit code {value}" if name == "exit" and way != "ended" else ""
    row = _row(events, process, name, text + code, value)
    rank = pd.NA if way in ("ended", "all left") else process["rank"]
    return row | {"rank": rank, "at": _moment(process, way, row["at"])}


def _place(process: Process) -> str:
    phase = process.get("phase")
    if not phase:
        return ""
    return f", which had ended {phase['name']}," if phase["over"] else f", in {phase['name']},"


def _row(
    events: pd.DataFrame, process: Process, name: str, text: str, value: float
) -> dict[str, Any]:
    """A problem behind the last row of a process."""
    rows = _rows_of(events, process)
    last = rows.sort_values("line").iloc[-1] if len(rows) else pd.Series(dtype="object")
    return {
        "segment": process["segment"], "engine": 0, "rank": process["rank"],
        "host": process["host"], "kind": str(Kind.PROBLEM), "name": name, "raw": name,
        "text": text, "source": process["source"], "value": value,
        "line": last.get("line", 0) + 1,  # where its next row would be
        "at": last.get("at", pd.NaT),
        "step": rows["step"].max() if len(rows) else pd.NA,
    }  # fmt: skip


def _in_order(process: Process) -> str:
    if _stopped(process):
        return "by SIGTERM"
    return "by an interrupt" if _interrupted(process) else "in good order, with exit code 0"


def _moment(process: Process, way: str, last: pd.Timestamp) -> pd.Timestamp:
    """When it went, as far as it says so itself."""
    return pd.Timestamp(_end(process)).floor("us") if "left" in way else last
