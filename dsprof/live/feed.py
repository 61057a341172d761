"""What the paths hold, as it comes: recordings of any number of ranks, logs, a pipe."""

from __future__ import annotations

import glob
import resource
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from dsprof.errors import DsprofError
from dsprof.grammar import Grammar
from dsprof.live.jobs import Jobs
from dsprof.live.launches import Beside
from dsprof.live.log import LogFollower, last_of
from dsprof.live.past import SLICE, LogPast, Parts, Past, end_of, parts_under, process_named
from dsprof.live.processes import Process, deaths, look_at, process_of
from dsprof.live.store import Store
from dsprof.live.streams import File, Pipe
from dsprof.logs.sources.csv_monitor import is_scalar_file
from dsprof.logs.sources.source import sources_of
from dsprof.recording import Recording, Recordings, is_recording
from dsprof.recording.read import last_of_each
from dsprof.recording.unbegun import said_of

LARGE: Final = 32 << 20  # bytes of a log, or of all recordings, from which on ends are read first
TAIL: Final = 2 << 20  # of a log: read at once
_LEAST: Final = 64 << 10  # of a recording, however many there are
_LOOK_EVERY: Final = 2.0  # seconds between two looks for new files
_AT_FIRST: Final = 0.25  # seconds of reading before the first picture
_OF_PASTS: Final = 0.25  # of the time for reading: what was before is read on, however much is new
_AHEAD: Final = 1_000  # launches that a log's past may hold: all others are counted from here


class Feed:
    """Reads on, `poll` after `poll`, and puts everything into a store.

    Attributes:
        logs: the growing logs, by name.
        jobs: what they tell of their jobs; logs of others are left.
        processes: the recorded processes.
        missing: paths that are not there yet.
        faults: path → why it cannot be read.
        begins: where ranks stand of which nothing is recorded yet, in words; "" if nobody knows.
        grown: when anything was last written, as far as that was seen (seconds since 1970).
    """

    def __init__(self, paths: Sequence[str], grammar: Grammar, store: Store, pipe: int) -> None:
        self.paths = list(paths)
        self.logs: dict[str, LogFollower] = {}
        self.jobs = Jobs()
        self.processes: list[Process] = []
        self.missing: list[str] = []
        self.faults: dict[str, str] = {}
        self.begins = ""
        self.grown = 0.0
        self._grammar, self._store, self._pipe = grammar, store, pipe
        self._folders: dict[str, Recordings] = {}
        self._pasts: dict[str, Past] = {}
        self._grown: defaultdict[str, float] = defaultdict(float)  # log → last written
        self._beside: defaultdict[str, Beside] = defaultdict(Beside)
        self._looked = -_LOOK_EVERY
        _open_many_files()

    def begin(self) -> int:
        """Find what is there, and read ends of logs for a moment; the last step or -1."""
        until = time.monotonic() + _AT_FIRST
        self._look()
        for name, log in self.logs.items():
            self._read_log(name, log, 0.0)
            if time.monotonic() > until:
                break
        logs = [log for log in self.logs.values() if not log.counted]
        steps = [last_of(log.fresh(), "step") for log in logs]
        return max([s or -1 for s in (*steps, *(p.step for p in self.processes))], default=-1)

    def poll(self, seconds: float) -> bool:
        """Read for about so long; whether there was anything new."""
        until = time.monotonic() + seconds
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._look()
        new = self._read_recordings(until)
        for name, log in self.logs.items():
            new |= self._read_log(name, log, until)
        new |= self._read_pasts(max(until, time.monotonic() + seconds * _OF_PASTS))
        if new and len(self.logs) > 1:
            self._leave_others()
        now = time.time()
        look_at(self.processes, now)
        self.grown = max([self.grown, *(process.grown for process in self.processes)])
        self.grown = min(self.grown, now)  # clocks of file servers go before, clocks are set back
        fresh = [self._placed(name, log.fresh()) for name, log in self.logs.items()]
        self._store.show([*fresh, deaths(self.processes)])
        return new

    @property
    def behind(self) -> int:
        """Bytes that are still to be read; what cannot be read is not waited for."""
        pasts = (p.left for name, p in self._pasts.items() if _past_of(name) not in self.faults)
        ends = (_left(log) for name, log in self.logs.items() if name not in self.faults)
        return sum(pasts) + sum(ends)

    @property
    def facts(self) -> dict[str, Any]:
        """What `Run.meta` is told of the sources."""
        recorded = [process.recording for process in self.processes]
        headers = {header for log in self.logs.values() for header in log.fingerprints}
        return {
            "fingerprints": dict.fromkeys(sorted(headers), 1),
            "counted_steps": not recorded and any(log.counted for log in self.logs.values()),
            "sources": [*self.logs, *(recording.path for recording in recorded)],
            **self.jobs.facts(self.logs),
            "recordings": [recording.facts for recording in last_of_each(recorded)],
        }

    def close(self) -> None:
        for log in self.logs.values():
            log.stream.close()
        for folder in self._folders.values():
            folder.close()
        for name in list(self._pasts):
            self._forget_past(name)

    def _look(self) -> None:
        """Find what has appeared under the paths."""
        self._looked, self.missing = time.monotonic(), []
        for path in self.paths:
            names = _matches(path)
            if not names:
                self.missing.append(path)
            for name in names:
                with self._told(name):
                    self._open(name)
        self.begins = "" if self.processes else "; ".join(filter(None, map(said_of, self._folders)))

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """What cannot be read is told until it can; everything else goes on."""
        try:
            yield
        except DsprofError as error:
            self.faults[name] = str(error)
        except OSError as error:
            self.faults[name] = str(DsprofError(f"cannot be read: {error.strerror}", name))
        else:
            self.faults.pop(name, None)

    def _open(self, name: str) -> None:
        if name == "-":
            if name not in self.logs:
                self.logs[name] = LogFollower(Pipe(self._pipe), self._grammar, _AHEAD)
        elif Path(name).is_dir() or is_recording(name):
            self._open_folder(name)
        elif name not in self.logs and name not in self.jobs:
            self._open_log(name)

    def _open_folder(self, name: str) -> None:
        """A folder may hold recordings, logs, or both; each may come later."""
        folder = self._folders.setdefault(name, Recordings([name]))
        with self._told(f"{name} (recordings)"):
            folder.discover()
        known = {id(process.recording) for process in self.processes}
        new = [recording for recording in folder.recordings if id(recording) not in known]
        self._open_recordings(new, parts_under(name) if new else {})
        with suppress(DsprofError):  # it holds no logs
            for source in sources_of([name]) if Path(name).is_dir() else []:
                known_log = source.name in self.logs or source.name in self.jobs
                if not known_log and not is_scalar_file(source.name):
                    self._open_log(source.name)

    def _open_recordings(self, recordings: Sequence[Recording], there: dict[str, Parts]) -> None:
        """Of what is too much to be read at once, the ends come first."""
        large = sum(size for parts in there.values() for *_, size in parts) > LARGE
        most = max(_LEAST, LARGE // max(1, len(recordings)))
        for recording in recordings:
            recording.launched(_AHEAD + recording.segment)
            parts = there.get(process_named(Path(recording.path)), [])
            self.processes.append(process_of(recording, parts[-1].file if parts else None))
            past = end_of(recording, parts, most) if large else None
            if past:
                self._pasts[recording.path] = past

    def _open_log(self, name: str) -> None:
        size = Path(name).stat().st_size
        if size <= LARGE:
            self.logs[name] = LogFollower(File(name), self._grammar, _AHEAD)
            return
        begin = _line_begin(name, size - TAIL)
        self.logs[name] = LogFollower(File(name, begin), self._grammar, _AHEAD, base=None)
        self._pasts[name] = LogPast(name, begin, self._grammar, self.logs[name])

    def _read_recordings(self, until: float) -> bool:
        """Every process in turn, piece by piece: none waits for another's long past.

        What was there when a recording was found is read to its end, however long that takes:
        till then its last steps would be told of by others alone.
        """
        waiting = {id(p): (p, p.recording.tables()) for p in self.processes}
        new = False
        for turn in count():  # the first gives what a header says
            for key, (process, tables) in list(waiting.items()):
                table = self._next(process, tables)
                if table is None:
                    process.read_up()
                    del waiting[key]
                    continue
                new = True
                process.took(table)
                self._store.add(table)
            late = turn > 0 and time.monotonic() > until
            if not waiting or (late and all(process.reached for process, _ in waiting.values())):
                break
        return new

    def _next(self, process: Process, tables: Iterator[pa.Table]) -> pa.Table | None:
        with self._told(process.recording.path):
            return next(tables, None)
        return None

    def _read_log(self, name: str, log: LogFollower, until: float) -> bool:
        new = False
        with self._told(name):
            while log.poll(SLICE):
                new = True
                self._grown[name] = log.stream.written
                self.grown = max(self.grown, self._grown[name])
                if time.monotonic() > until:
                    break
        for table in log.settled:
            self.jobs.hear(name, table)
            self._store.add(self._placed(name, table))
        log.settled.clear()
        return new

    def _leave_others(self) -> None:
        """Logs of other jobs than that which was written last are watched no more."""
        for name, log in self.logs.items():
            self.jobs.hear(name, log.fresh())
        left = self.jobs.leave(self.logs, self._grown)
        for name in left:
            self.logs.pop(name).stream.close()
            self._forget_past(name)
        if left:
            self._store.forget(left)

    def _read_pasts(self, until: float) -> bool:
        """One after the other, as long as there is time."""
        new = False
        for name, past in list(self._pasts.items()):
            with self._told(_past_of(name)):
                for table in past.read(until):
                    self.jobs.hear(name, table)
                    self._store.add(table, past=True)
                    new = True
            if past.done:
                self._forget_past(name)
                if isinstance(past, LogPast) and past.goes_on is not None:
                    self._join(name, past.goes_on)
        return new

    def _forget_past(self, name: str) -> None:
        past = self._pasts.pop(name, None)
        if past:
            past.close()

    def _join(self, name: str, segment: int) -> None:
        """A log's end goes on with that launch of its past."""
        self._store.relaunched(name, segment, _AHEAD - segment + self._beside[name].more)

    def _placed(self, name: str, table: pa.Table) -> pa.Table:
        """A log's rows in the launches of the recordings, if there are any."""
        return self._beside[name].placed(table, self.processes, self._grown[name])


def _past_of(name: str) -> str:
    """What faults of reading a source's past stand under."""
    return f"{name} (what was before)"


def _left(log: LogFollower) -> int:
    """Bytes of a file that are there and not read."""
    if not isinstance(log.stream, File):
        return 0
    try:
        return max(0, Path(log.stream.name).stat().st_size - log.stream.offset)
    except OSError:
        return 0


def _line_begin(name: str, at: int) -> int:
    """Where the first line behind `at` begins."""
    with Path(name).open("rb") as file:
        file.seek(at)
        data = file.read(LARGE // 8)
    return at + data.find(b"\n") + 1


def _matches(path: str) -> list[str]:
    """What a path names: itself, if it is there or cannot be asked for; else it is a pattern."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        itself = path == "-"
    except OSError:
        itself = not glob.has_magic(path)
    else:
        itself = True
    return [path] if itself else sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - as typed


def _open_many_files() -> None:
    """A file a rank stays open: hundreds are usual, and more than the soft limit may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
