"""Which recorded processes of a launch are to blame for its end: killed, gone, or never coming.

It is not over with a launch because a recording is open: training may go on. It is once another
process has closed its own, or a later launch has begun, or `dsprof attach` saw its command end, or
nobody has written for `IDLE`.
"""

from __future__ import annotations

import math
import signal
from typing import Final, Literal

import pandas as pd

from dsprof.events import Class, Kind
from dsprof.recording.launches import AT_ONCE, FAULTS
from dsprof.recording.layout import STANDING
from dsprof.run.ends.exits import (
    Process,
    end_of,
    ended_by_signal,
    has_failed,
    is_there,
    last_seen,
    rows_of,
    told_by,
    was_interrupted,
    was_stopped,
)
from dsprof.run.ends.problems import OF_A_PEER, has_timed_out
from dsprof.run.table import among, where

#: Seconds without a row after which a launch is over, or stuck.
IDLE: Final = 60.0
#: So long the others waited for a process that hung, at least: they lose one that died at once.
#: (On NCCL they wait for that, too; then both are told as what they have in common.)
WAITED: Final = 5.0
#: And longer than so many of their steps: none is that much longer than the others.
STEPS: Final = 5
#: And than so many times what passed at most from the end of one step to that of the next: in
#: between, scripts save, evaluate and upload.
BEFORE: Final = 2
#: What a script does between phases is not recorded; of a launch that is over, so long is told.
PAUSE: Final = 20.0
#: A save, an evaluation or a generation may take as long as this, if nothing shows what is usual.
LONG: Final = 600.0
#: And no save takes so many times what the longest one before did.
SAVES: Final = 20
#: `dsprof attach` looks for new processes within so many seconds: they may be gone by then.
LOOKING: Final = 1.0
#: What no step needs, and what may take as long as it takes.
_LONG: Final = ("evaluation", "generate")

#: How a process went: without a word; by a fault, the first of all; while others waited for it; as
#: did all of its launch, of which nobody closed its recording. And of those that had closed it:
#: failed, as one of several at once, or in good order while others still needed it. Or it stands
#: for all, of which each waits in a collective and not all in the same one; or was asked to end,
#: after another had failed.
Way = Literal[
    "gone", "killed", "absent", "ended", "left", "all left", "left alone", "apart", "asked"
]


def missing(
    launch: list[Process], events: pd.DataFrame, followed: bool
) -> list[tuple[Process, Way]]:
    """Those to blame that their launch ended or stands still, and how each of them went."""
    if not followed and (_meant(launch, events) or _is_stopped(launch)):
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
        least, end, told = _patience(launch, events), max(ends), told_by(launch, events)
        if has_timed_out(told["name"], told["text"]):  # whoever did not come took too long
            ways = [(one, _way(one, events, end, WAITED)) for one in still]
        else:
            ways = [(one, _way(one, events, end, max(least, _usual(one, events)))) for one in still]
        ways = [
            (one, "asked" if way == "gone" and _was_asked(one, told) else way) for one, way in ways
        ]
        ways = [(one, way) for one, way in ways if not _may_end_well(one, way)]
        return _blamed([(one, way) for one, way in ways if not (told.empty and _may_be_there(one))])
    first = _gone_first(still)
    if first:
        return [(first, "gone")]
    return _of_none_closed(still, events, followed)


def _blamed(ways: list[tuple[Process, Way]]) -> list[tuple[Process, Way]]:
    """Without those that waited in a collective themselves, where others came to none."""
    if all(one["in_flight"] for one, way in ways if way == "absent"):
        return ways
    return [(one, way) for one, way in ways if way != "absent" or not one["in_flight"]]


def _was_asked(process: Process, told: pd.DataFrame) -> bool:
    """Whether it was ended by SIGTERM after another had failed, so by its launcher."""
    failed = told["at"][told["source"] != process["source"]].min()
    return bool(was_stopped(process) and pd.notna(failed) and failed.value < process["killed"].at)


def _is_stopped(launch: list[Process]) -> bool:
    """Whether all that are left were stopped from outside, as by a scheduler that suspends the job:
    none of them hangs.
    """
    left = [one for one in launch if not one["ended"]]
    return bool(left) and all(one.get("stopped") for one in left)


def _may_end_well(process: Process, way: Way) -> bool:
    """Whether it is there: it may still save, evaluate or end, unless others wait for it."""
    return is_there(process) and (way != "absent" or process["idle"] < IDLE)


def _may_be_there(process: Process) -> bool:
    """Whether nobody can see if it is, as from another host, and it has just written: it may end a
    little later than the others.
    """
    known = (process.get("gone"), process.get("killed"), process.get("lost"), process["over_at"])
    return not any(known) and process["idle"] < IDLE


def _meant(launch: list[Process], events: pd.DataFrame) -> bool:
    """Whether all exited with one code and without a word, and the command reports success.

    So Ray ends its workers when they have done their work: with code 1. Or none closed its
    recording, nobody saw how any of them ended (on other hosts nobody does), and none waited.
    """
    if not all(one.get("over_with") == 0 for one in launch) or not told_by(launch, events).empty:
        return False
    if not any(one["ended"] or one.get("killed") or one["in_flight"] for one in launch):
        return True
    codes = {one["killed"].code if one.get("killed") else None for one in launch}
    return len(codes) == 1 and None not in codes


def _of_none_closed(
    still: list[Process], events: pd.DataFrame, followed: bool
) -> list[tuple[Process, Way]]:
    """Those that others waited for.

    Where all went and none waited long, who was first is not known: the one that wrote last stands
    for all of them ("ended"), if the launch is known to be over. A signal that ended one of them
    was not seen to come first, so it is no reason to name that one.
    """
    over = max((process["over_at"] for process in still if process["over_at"]), default=None)
    is_over = bool(followed or over) or _ended_in_the_middle(still)
    is_over &= not any(map(is_there, still))
    if not is_over and any(one["idle"] < IDLE for one in still if not one.get("killed")):
        return []
    absent = [process for process in still if not process["in_flight"]]
    if len(absent) < len(still):
        blamed = [
            (one, way)
            for one, way in _ways(absent, still, events, over or _last_sign(still, events))
            if way == "absent" or (over and not (ended_by_signal(one) or is_there(one)))
        ]
        if blamed:
            return blamed
    if not absent and _wait_apart(still, events, over or _last_sign(still, events)):
        return [(still[0], "apart")]
    if not is_over:
        return []
    return [(min(still, key=lambda one: float(one["idle"])), "ended")]


def _ways(
    absent: list[Process], launch: list[Process], events: pd.DataFrame, end: int
) -> list[tuple[Process, Way]]:
    """How those went that waited in no collective, while others of their launch did."""
    least = _patience(launch, events)
    return [(one, _way(one, events, end, max(least, _usual(one, events)))) for one in absent]


def awaited(launch: list[Process], events: pd.DataFrame) -> list[Process]:
    """Those of a launch which still is there that the others have waited for by now for longer than
    a step, or what they are in, may take. All of them where each waits and their calls differ.

    Whether they hang is known after `IDLE`.
    """
    still = [process for process in launch if not process["ended"]]
    absent = [process for process in still if not process["in_flight"]]
    end = _last_sign(still, events)
    if not absent and _wait_apart(still, events, end):
        return still
    if len(absent) == len(still) or _is_stopped(launch):
        return []
    return [one for one, way in _ways(absent, still, events, end) if way == "absent"]


def _wait_apart(launch: list[Process], events: pd.DataFrame, end: int) -> bool:
    """Whether every rank waits, for so long until `end` that none comes out, and not all in calls
    of one name: then no rank is missing, but what they call does not match.
    """
    calls = [one["in_flight"] for one in launch]
    since = [int(call["at"] or 0) for call in calls]
    told = events[(events["segment"] == launch[0]["segment"]).fillna(value=False)]
    world = told["value"][(told["name"] == "world_size").fillna(value=False)].max()
    is_every_rank = pd.isna(world) or len(launch) >= world
    if len({call["name"] for call in calls}) < 2 or not (all(since) and is_every_rank):
        return False
    return (end - max(since)) * 1e-9 >= max(PAUSE, _patience(launch, events))


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
    return max([*waits, last_seen(launch, events)])


def _patience(launch: list[Process], events: pd.DataFrame) -> float:
    """Seconds after its last row from which on a process is missed: a step may be longer than
    `WAITED`, and a rank that is in the middle of one has not hung.
    """
    mine = events["segment"] == launch[0]["segment"]
    steps = where(events, mine & among(events["name"], ["step_seconds"]))
    usual = STEPS * steps["seconds"].median()
    apart = steps.sort_values("at").groupby("source", observed=True)["at"].diff()
    longest = BEFORE * apart.max().total_seconds()
    return max([WAITED, *(float(one) for one in (usual, longest) if pd.notna(one))])


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


def _left(launch: list[Process], events: pd.DataFrame) -> list[tuple[Process, Way]]:
    """The first that closed its recording and then failed, or left the others alone.

    None where somebody else was gone before; of those that failed at once one stands for all.
    """
    told = told_by(launch, events)
    seen = [one for one in launch if one["ended"] and one.get("killed")]
    silent = [one for one in seen if not (told["source"] == one["source"]).any()]
    failed = [one for one in silent if has_failed(one["killed"])]
    if failed:
        first, *others = sorted(failed, key=end_of)
        gone = [one["killed"].at for one in launch if not one["ended"] and one.get("killed")]
        at_once = bool(others) and end_of(others[0]) - end_of(first) < AT_ONCE * 1e9
        before = min(gone, default=math.inf) < end_of(first)
        return [] if before else [(first, "all left" if at_once else "left")]
    lost = told["text"].astype("str").str.contains(OF_A_PEER)
    well = [one for one in silent if one["killed"].code == 0 or was_interrupted(one)]
    well += [one for one in launch if was_stopped(one) or _closed_unseen(one, told)]
    if not well or told.empty or not lost.all() or told["at"].isna().any():
        return []
    first = min(well, key=end_of)
    later = bool(first.get("said_nothing")) or _outlived(first, launch, told)
    since = end_of(first) - AT_ONCE * 1e9 * later  # it was seen a moment later
    return [(first, "left alone")] if told["at"].min().value > since else []


def _outlived(process: Process, launch: list[Process], told: pd.DataFrame) -> bool:
    """Whether all that lost their connection were still there when it was seen to be gone: no
    launcher had asked it to go because of them.
    """
    lost = [one for one in launch if (told["source"] == one["source"]).any()]
    gone = [one["killed"].at for one in lost if one.get("killed")]
    return not process["ended"] and len(gone) == len(lost) and min(gone) > end_of(process)


def _closed_unseen(process: Process, told: pd.DataFrame) -> bool:
    """Whether it closed its recording without a word, and nobody saw with which code it exited."""
    unseen = process["ended"] and not process.get("killed")
    return bool(unseen and not (told["source"] == process["source"]).any())


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


def _way(process: Process, events: pd.DataFrame, end: int, least: float) -> Way:
    """How it went, told by how long the others still went on: until `end`, ns since 1970. It hung
    if that is `least` seconds.

    What its other threads tell, of the node's GPUs and of where training stands, they also tell
    while it stands still.
    """
    rows = rows_of(events, process)
    beside = (rows["kind"] == Kind.GPU) | rows["name"].eq(STANDING).fillna(value=False)
    last = rows["at"][~beside].max()
    waited = (end - last.value) * 1e-9 if pd.notna(last) else 0.0
    return "absent" if waited >= least else "gone"


def _usual(process: Process, events: pd.DataFrame) -> float:
    """Seconds that the phase which it is in may take, of one that takes long by its nature."""
    phase = process.get("phase")
    if not phase:
        return 0.0
    if phase["over"]:  # nothing records what a script does there: it may evaluate another module
        return IDLE if is_there(process) else PAUSE
    if phase["class"] != Class.CHECKPOINT:
        return LONG if phase["name"] in _LONG else 0.0
    rows = rows_of(events, process)
    saves = rows["seconds"][(rows["raw"] == phase["name"]).fillna(value=False)]
    return max(IDLE, SAVES * float(saves.max())) if saves.notna().any() else LONG
