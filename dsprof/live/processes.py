"""Who of the job still writes: each recorded process, and what became of it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dsprof.errors import DsprofError
from dsprof.events import Kind
from dsprof.live.store import EMPTY, SCHEMA
from dsprof.recording import Recording
from dsprof.recording.alive import is_silent
from dsprof.recording.frames import frames_of, line_of
from dsprof.recording.launches import (
    AT_ONCE,
    FAULTS,
    NOT_FOUND,
    OUTLIVED,
    Gone,
    end_of,
    killed_at,
)
from dsprof.recording.layout import JSON, ROW, STANDING, STEP, RowKind, header_size
from dsprof.recording.stream import end_of_rows

State = Literal["running", "silent", "ended", "died"]

_GONE: Final = 1.0  # seconds without a row before anybody asks whether a process is there


@dataclass(slots=True)
class Process:
    """One recorded process.

    Attributes:
        state: `ended`: it closed its recording, or exited with code 0. `died`: it was seen to end
            otherwise, or it ran on this machine, and is gone. `silent`: it has written nothing for
            long, or is gone, and nobody saw how.
        step: the last one that ended, None before the first.
        grown: `time.time()` of when its recording last grew by more than samples of GPUs, as far as
            that was seen.
        operation: the collective that it is, or died, in.
        phase: the outermost phase that it is in, "no phase" between two; None if unknown.
        gone: how it ended; None where nobody who started it saw that, or it closed its recording.
    """

    recording: Recording
    grown: float
    rank: int | None
    host: str | None
    pid: int | None
    state: State = "running"
    step: int | None = None
    seconds: float = 0.0  # of its last step
    at: Any = None  # time of its last row of training
    operation: str | None = None
    phase: str | None = None
    reached: bool = False  # its end was read up to once
    met: bool = False  # it was seen to run on this machine
    victim: bool = False  # another one of its launch had died before
    lost: bool = False  # it is surely gone, and nobody saw how
    gone: Gone | None = None
    code: str = ""  # the line of the job that it stands in, where its stack was seen there

    @property
    def segment(self) -> int:
        return self.recording.segment

    def took(self, table: pa.Table) -> None:
        """Rows that it wrote."""
        stands = pc.any(_is_standing(table)).as_py()
        table = table.filter(pc.and_(pc.greater(table["line"], 0), _of_training(table)))
        if not len(table):
            return  # its header, or what its other threads write while it stands still
        self.at = pc.max(table["at"]).as_py() or self.at
        # Not what had been written when nobody looked, nor with what is seen of one that stands.
        if self.reached and not stands:
            self.grown = time.time()
        elif self.at is not None:
            self.grown = max(self.grown, self.at.replace(tzinfo=UTC).timestamp())
        ends = table.filter(pc.equal(table["name"].cast(pa.string()), "step_seconds"))
        if len(ends):
            self.step = int(ends["step"][-1].as_py() or 0)
            self.seconds = float(ends["seconds"][-1].as_py() or 0.0)

    def read_up(self) -> None:
        """All that it had written has been read: its file is no older than samples of GPUs are."""
        if not self.reached:
            self.grown -= self.recording.sampled_for
        self.reached = True

    def look(self, now: float) -> None:
        """Find out what became of it."""
        if self.recording.ended:
            self.state, self.operation, self.phase = "ended", None, None
            return
        self.grown = min(self.grown, now)  # clocks of file servers go before, clocks are set back
        flight = self.recording.in_flight()
        self.operation = flight["name"] if flight else None
        phase = self.recording.phase()
        self.phase = None if phase is None else "no phase" if phase["over"] else phase["name"]
        frames = frames_of(self.recording.stands_in())
        self.code = line_of(frames) if frames else ""
        idle = now - self.grown
        here = self.host == _hostname() and self.pid is not None
        there = here and self.pid is not None and _runs(self.pid, self.begun)
        self.met |= there
        is_gone = not there and idle >= _GONE
        if is_gone:
            self.ask()
        self.lost = is_gone and self.gone is None and self.recording.is_gone()
        if is_gone and self._ended_well():
            self.state = "ended"
        elif is_gone and (self.met or self.gone is not None):
            self.state = "died"
        elif self.lost or is_silent(idle, self.seconds):
            self.state = "silent"
        else:
            self.state = "running"

    def ask(self) -> None:
        """Who started it may tell how it ended, if that is not known yet."""
        if self.gone is None:
            gone = killed_at(Path(self.recording.path))
            self.gone = None if gone is None or gone.signal == NOT_FOUND else gone

    @property
    def place(self) -> str | None:
        """What it is, or died, in: a collective, else a phase; None if unknown."""
        return self.operation or self.phase

    @property
    def where(self) -> str | None:
        """The same with the line of the job's code."""
        return f"{self.place}, {self.code}" if self.place and self.code else self.place

    @property
    def signal(self) -> int:
        """The number of the signal that was seen to end it; 0 if none was."""
        return self.gone.signal if self.gone else 0

    def _ended_well(self) -> bool:
        """Whether somebody saw it exit with code 0, or its command, in which it waited for nobody:
        it has skipped Python's own end, as `os._exit` does."""
        if self.gone is not None:
            return (self.gone.signal, self.gone.code) == (0, 0)
        over = end_of(Path(self.recording.path).parent, self.recording.header.get("launch"))
        if over is None or over.code != 0 or self.operation:
            return False
        return self.grown <= over.at * 1e-9 + OUTLIVED  # else it only starts the job, as `&` does

    @property
    def begun(self) -> float:
        """Seconds since 1970 at which it surely ran."""
        clock = self.recording.header.get("clock")
        return float(clock["wall_ns"]) * 1e-9 if isinstance(clock, dict) else 0.0


def _of_training(table: pa.Table) -> pa.ChunkedArray:
    """Without samples of GPUs, and what is seen of a thread that stands still."""
    beside = pc.equal(table["kind"].cast(pa.string()), str(Kind.GPU))
    return pc.invert(pc.or_(beside, _is_standing(table)))


def _is_standing(table: pa.Table) -> pa.ChunkedArray:
    is_ = pc.equal(table["name"].cast(pa.string()), STANDING)
    return pc.fill_null(is_, fill_value=False)


def process_of(recording: Recording, file: Path | None = None) -> Process:
    """A process before it is read; `file` is the last of its parts."""
    pid = recording.header.get("pid")
    return Process(
        recording,
        grown=_modified(recording.path if file is None else file),
        step=None if file is None else last_step(file),
        rank=recording.rank,
        host=recording.host,
        pid=pid if isinstance(pid, int) else None,
    )


def look_at(processes: Iterable[Process], now: float) -> None:
    """Find out what became of each, and who of the dead is another one's victim.

    That is who dies after another one of its launch; of those found dead at one look, who is known
    to have died later, else who was in an operation while another was in none: it waited for that
    one.
    """
    every = list(processes)
    dead = [p for p in every if p.state == "died"]
    for process in dead:
        process.ask()
    alive = [p for p in every if p.state != "died"]
    for process in alive:
        process.look(now)
    before = {p.segment for p in dead}
    for segment, died in _launches(p for p in alive if p.state == "died"):
        later = _later(died)
        for process in died:
            process.victim = segment in before or process in later


def _launches(processes: Iterable[Process]) -> Iterable[tuple[int, list[Process]]]:
    launches: dict[int, list[Process]] = {}
    for process in processes:
        launches.setdefault(process.segment, []).append(process)
    return launches.items()


def _later(died: list[Process]) -> list[Process]:
    """Those of a launch's dead that did not die first."""
    times = [p.gone.at for p in died if p.gone]
    if len(times) == len(died):
        asked = [p for p in died if p.signal == signal.SIGTERM]  # by their launcher, for another
        asked = asked if len(asked) < len(died) else []
        return [
            p for p in died if p in asked or (p.gone and p.gone.at > min(times) + AT_ONCE * 1e9)
        ]
    waited = [p for p in died if p.operation]
    return waited if len(waited) < len(died) else []


def deaths(processes: Iterable[Process]) -> pa.Table:
    """The processes that died, as problems: what no log and no recording can tell.

    Of the first that a fault was seen to end, its recording tells (`run.ends.unclosed`).
    """
    died = [p for p in processes if p.state == "died" and (p.victim or p.signal not in FAULTS)]
    return pa.Table.from_pylist(list(map(_death, died)), SCHEMA) if died else EMPTY


def _death(process: Process) -> dict[str, Any]:
    inside = f" in {process.place}" if process.place else ""
    word, value, how = _way_of(process)
    return {
        "segment": process.segment,
        "engine": 0,
        "step": process.step,
        "rank": process.rank,
        "host": process.host,
        "at": process.at,
        "kind": "problem",
        "name": word,
        "raw": word,
        "value": value,
        "text": f"process {process.pid} {how}{inside}, its recording was not closed",
        "source": process.recording.path,
        "record": 0,
    }


def _way_of(process: Process) -> tuple[str, float | None, str]:
    """The problem's name, its value, and how that is said."""
    if process.victim or process.signal == signal.SIGTERM:  # who hung then, `run.ends.missed` tells
        return "killed-by-launcher", None, "is gone"
    if process.signal:
        return "signal", process.signal, f"was ended by signal {process.signal}"
    if process.gone and process.gone.code:
        return "exit", process.gone.code, f"exited with code {process.gone.code}"
    return "gone", None, "is gone"


def last_step(file: Path) -> int | None:
    """The step that ended last, as the end of a recording's last file tells without being read."""
    try:
        with file.open("rb") as stream:
            begin = header_size(stream.read(JSON), str(file))
            end = end_of_rows(stream.fileno(), begin)
            rows = os.pread(stream.fileno(), _END, max(begin, end - _END))
    except (OSError, DsprofError):
        return None
    at = rows[::ROW].rfind(RowKind.STEP)
    return int(STEP.unpack_from(rows, at * ROW)[2]) if at >= 0 else None


_END: Final = 64 << 10


def _modified(path: str | Path) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return time.time()


@cache
def _hostname() -> str:
    return socket.gethostname()


@cache
def _boot() -> float:
    """Seconds since 1970 at which this machine started; 0 where it does not say."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith("btime")), 0.0)


def _runs(pid: int, at: float) -> bool:
    """Whether the process that had this number at `at` still runs; zombies do not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in {"Z", "X"}:
        return False
    begun = _boot() + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return begun <= at + 2
