"""Whether the job runs, and what it waits for, in a sentence. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dsprof.live.picture import State
from dsprof.live.processes import Process
from dsprof.recording.alive import is_silent
from dsprof.recording.launches import Gone, signal_name
from dsprof.text.words import count_of
from dsprof.units import format_ranks, format_seconds


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known of where the events come from.

    Attributes:
        missing: paths that are not there.
        faults: why something cannot be read.
        processes: the recorded ones of the last launch.
        logs: how many there are; `closed`: none of them goes on.
        failure: what ended the launch, or holds it up, as its rows say; "" if nothing does.
        hangs: that is a hang, during which its ranks may all be there.
        exited: a log says that every process of the launch has ended well.
        idle: seconds since anything was written, None if nothing ever was.
        begins: where ranks stand that have not begun to train, as far as that is known.
        bar: where a progress bar stands, and of how many, if no line shows more.
    """

    missing: Sequence[str]
    faults: Sequence[str]
    processes: Sequence[Process]
    logs: int
    closed: bool
    failure: str
    hangs: bool
    exited: bool
    idle: float | None
    begins: str = ""
    bar: tuple[int, int] | None = None


def status_of(
    found: Sources, world: int | None, seconds: float | None, *, begun: bool
) -> tuple[State, str]:
    """State and sentence; `seconds` are of a usual step, `begun`: one was told of."""
    died = [p for p in found.processes if p.state == "died"]
    asked = all(p.victim or p.signal == signal.SIGTERM for p in died)  # why, the rows may tell
    if died and not (found.failure and (asked or found.hangs)):
        return "died", _deaths(died, found.processes)
    if found.failure:
        return "silent" if found.hangs and _left(found.processes) else "died", found.failure
    end = _end(found, begun=begun)
    if end:
        return "ended", end
    if not begun:
        return "waiting", _waiting(found, world)
    amiss = [*found.faults, *(f"{name} is gone" for name in found.missing)]
    if found.idle is not None and is_silent(found.idle, seconds or 0.0):
        return "silent", " · ".join([_silence(found.idle, found.processes), *amiss])
    return "running", " · ".join([*_absent(found.processes, world), *amiss])


def _end(found: Sources, *, begun: bool) -> str:
    """How the job ended; "" if it goes on, as far as anybody can tell."""
    closed = bool(found.processes) and all(p.state == "ended" for p in found.processes)
    over = found.closed or not found.logs or (closed and is_silent(found.idle or 0.0, 0.0))
    if found.exited and not found.processes:
        return _WELL if begun else f"{_WELL}, no line shows a step: {_HINT}"
    if found.logs and found.closed and not (found.processes or begun):
        return f"nothing more will come, and no line shows a step: {_HINT}"
    if not (closed or not found.processes) or not over or not begun:
        return ""
    return "every rank has ended" if closed else "nothing more will come"


def _deaths(died: Sequence[Process], everyone: Sequence[Process]) -> str:
    first = [p for p in died if not p.victim] or list(died)
    said = [_death(p) for p in sorted(first, key=lambda p: p.rank or 0)[:3]]
    rest = _left(everyone)
    left = f"; {_ranks(rest)} left" if rest else ""
    others = len(died) - len(said)
    more = f", then {count_of(others, 'other rank')}" if others else ""
    return "; ".join(said) + more + left


def _left(processes: Sequence[Process]) -> list[Process]:
    """Those that may still be there."""
    return [p for p in processes if p.state in {"running", "silent"} and not p.lost]


def _death(process: Process) -> str:
    who = f"rank {process.rank}" if process.rank is not None else f"process {process.pid}"
    step = f" after step {process.step:,}" if process.step else ""
    inside = f" in {process.where}" if process.place else ""
    return f"{who} {_way(process.gone)}{step}{inside}"


def _way(gone: Gone | None) -> str:
    if gone and gone.signal:
        return f"was killed by {signal_name(gone.signal) or f'signal {gone.signal}'}"
    return f"exited with code {gone.code}" if gone and gone.code else "died"


def _waiting(found: Sources, world: int | None) -> str:
    if found.processes:
        absent = _absent(found.processes, world)
        return absent[0] if absent else f"{_ranks(found.processes)}: waiting for the first step"
    if found.faults:
        return found.faults[0]
    if found.begins:
        return found.begins
    if found.logs:
        return _of_logs(found)
    if found.missing:
        return f"waiting for {', '.join(found.missing)} to appear"
    return "the folder is empty: waiting for the first recording or log"


def _of_logs(found: Sources) -> str:
    if found.bar:
        at, of = found.bar
        return f"a progress bar stands at {at:,} of {of:,}; {_NO_LINE}"
    return _NO_STEP if found.idle is not None else "the log is empty: waiting for its first line"


_WELL: Final = "every process has ended well"
_HINT: Final = "`dsprof parsers --unknown`"
_NO_LINE: Final = "no line shows a step yet"
_NO_STEP: Final = f"{_NO_LINE}: {_HINT} shows what is not read"


def _absent(processes: Sequence[Process], world: int | None) -> list[str]:
    """Ranks that should record and do not."""
    if not processes or not world or world > 100_000:
        return []
    there = {p.rank for p in processes}
    absent = [rank for rank in range(world) if rank not in there]
    if not absent:
        return []
    return [f"waiting for {format_ranks(absent, 4)}"]


def _silence(idle: float, processes: Sequence[Process]) -> str:
    said = f"nothing was written for {format_seconds(float(round(idle)))}"
    inside: dict[str, list[Process]] = {}
    for process in processes:
        if process.state != "ended":
            inside.setdefault(process.where or "no collective", []).append(process)
    # First who is in no collective: the others wait for it, and what comes last may be cut.
    told = sorted(inside.items(), key=lambda one: (bool(one[1][0].operation), len(one[1])))
    waits = [f"{_ranks(of)} in {word}" for word, of in told]
    return "; ".join([said, *waits[:3]])


def _ranks(processes: Sequence[Process]) -> str:
    numbers = [p.rank for p in processes if p.rank is not None]
    if not numbers:
        return count_of(len(processes), "process", "processes")
    return format_ranks(numbers, 4)
