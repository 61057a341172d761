"""From recordings to events: of one process or a whole run folder, complete or still growing."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dsprof.errors import DsprofError
from dsprof.events import Class
from dsprof.recording.alive import is_gone, is_stopped, is_writing, shares_clock
from dsprof.recording.launches import end_of, killed_at
from dsprof.recording.layout import JSON, LATE, MAGIC, ROW, SUFFIX, RowKind, header_size, stem_of
from dsprof.recording.pace import Pace
from dsprof.recording.standing import LastStand
from dsprof.recording.stream import Cell, Portion, Stream, in_flight, outermost_phase
from dsprof.recording.table import Array, Names, Origin, events_of
from dsprof.recording.wall_clock import Clock
from dsprof.schema import SCHEMA

#: Key of the header → canonical name of the configuration.
_CONFIG: Final = {"world": "world_size", "framework": "framework"}


class Recording:
    """The recording of one process. Each `follow` returns the events since the previous one.

    Attributes:
        header: the JSON of its header.
        ended: whether the writer was closed, so that nothing follows.
        names, clock: what its rows have defined so far.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open it.

        Args:
            path: any of its files.

        Raises:
            DsprofError: it cannot be read, is not a recording, or has a newer format.
        """
        self.path = str(path)
        self._stream = Stream(path)
        self.header = self._stream.meta
        self.ended = False
        self.names = Names()
        self.clock = Clock(*_anchor(self.header))
        self._pace = Pace(_anchor(self.header)[0])
        self._stand = LastStand()
        self._origin = Origin(self.header)
        self._told = False
        self._looked: int | None = None  # ns of perf_counter; when its rows were last looked for

    def follow(self) -> pa.Table:
        """New events, whatever has happened to the files in the meantime."""
        tables = list(self.tables())
        return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    def tables(self) -> Iterator[pa.Table]:
        """The same piece by piece, so that a long recording need not be in memory at once."""
        if not self._told:
            self._told = True
            yield self.settings()
        for portion in self.portions():
            yield self.events(portion)

    def events(self, portion: Portion, lines: Array | None = None) -> pa.Table:
        """The events of these rows; `lines` are the rows' numbers if they are not consecutive."""
        return events_of(portion, self.names, self.clock, self._origin, lines)

    def portions(self) -> Iterator[Portion]:
        """New rows; afterwards the names and clocks that they define are known."""
        self._looked = time.perf_counter_ns()
        for portion in self._stream.read():
            self.names.define(portion.rows, portion.kinds)
            self.clock.define(portion.rows, portion.kinds)
            self._pace.see(portion.rows, portion.kinds)
            self._stand.see(portion.rows, portion.kinds, self.names)
            self.ended |= portion.rows[-ROW] == RowKind.END
            yield portion

    def skip(self, part: int, most: int) -> int:
        """Continue with the last `most` bytes of a part, reading only names and clocks before them.

        Returns the number of the next row.
        """
        for rows in self._stream.skip(part, most):
            kinds = rows[::ROW]
            self.names.define(rows, kinds)
            self.clock.define(rows, kinds)
        return self._stream.row

    @property
    def segment(self) -> int:
        return self._origin.segment

    @property
    def rank(self) -> int | None:
        return self._origin.rank

    @property
    def host(self) -> str | None:
        return self._origin.host

    def in_flight(self) -> dict[str, Any] | None:
        """The operation in progress, or in which it died: `name` (path), `seq`, `at` (ns since
        1970, or None).
        """
        name, seq, at = in_flight(self._cell())
        if not name:
            return None
        since = int(self.clock.utc(np.array([at], np.int64))[0]) if at else None
        return {"name": self.names.path.get(name), "seq": seq, "at": since}

    def phase(self) -> dict[str, Any] | None:
        """The outermost phase that is open, or that was the last one: `name` and `class`, `over`
        (whether it is), `at` (ns since 1970; when it began, or ended). None where the cell holds
        none, as in recordings of older versions.
        """
        name, at, over = outermost_phase(self._cell())
        path = self.names.path.get(name)
        if path is None or self.ended:
            return None
        since = int(self.clock.utc(np.array([at], np.int64))[0])
        class_ = self.names.class_.get(name, Class.OTHER)
        return {"name": path, "class": str(class_), "over": over, "at": since}

    @property
    def sampled_for(self) -> float:
        """Seconds by which the newest row is younger than the newest one of training: meanwhile the
        process has only sampled the GPUs of its node.
        """
        cell = self._cell()
        _, _, called = in_flight(cell)
        _, since, _ = outermost_phase(cell)
        return self._pace.behind(max(called, since))

    def stands_in(self) -> str:
        """The calls that it was seen in where it stands still now, or did when it ended, the
        innermost first; "" if nobody knows.
        """
        last = self._stand
        mine = bool(last.stack) and not self.ended and last.cell == self._cell()
        return last.stack if mine and not self._is_expired() else ""

    def _cell(self) -> Cell:
        """That in the file, unless it was never written; all zeros if there is none."""
        cell, last = self._stream.cell(), self._stand.cell
        if last is None or self._stand.kept or self.ended or self._is_expired():
            return cell
        return last

    def _is_expired(self) -> bool:
        """Whether it has not told any more where it stands, although it was there for longer."""
        over = end_of(Path(self.path).parent, self.header.get("launch"))
        ends = [one.at for one in (killed_at(Path(self.path)), over) if one]
        there = [time.time_ns()] if not ends and self._is_being_written() else []
        known = min(ends or there, default=0)
        return known > int(self.clock.utc(np.array([self._stand.expires], np.int64))[0])

    def close(self) -> None:
        self._stream.close()

    @property
    def facts(self) -> dict[str, Any]:
        """What is known about the process itself."""
        known = {key: self.header.get(key) for key in ("restart", "launch")}
        pid, is_there = self.header.get("pid"), self._is_being_written()
        over = end_of(Path(self.path).parent, self.header.get("launch"))
        return known | {
            "rank": self.rank,
            "host": self.host,
            "pid": pid if isinstance(pid, int) else None,
            "source": self.path,
            "segment": self.segment,
            "ended": self.ended,
            "ended_at": self.clock.last if self.ended else None,
            "over_at": over.at if over else None,
            "over_with": over.code if over else None,
            "killed": killed_at(Path(self.path)),
            "alive_at": self._looked_at(int(pid)) if is_there and pid else None,
            "stopped": is_there and isinstance(pid, int) and is_stopped(pid),
            "gone": self.is_gone(),
            "idle": time.time() - self._stream.written + self.sampled_for,
            "in_flight": self.in_flight(),
            "stands": bool(self.stands_in()),
            "phase": self.phase(),
        }

    def _is_being_written(self) -> bool:
        """Whether its process is seen on this host; of one on another host nothing is known."""
        pid, host = self.header.get("pid"), self.header.get("host")
        if self.ended or not isinstance(pid, int) or host != socket.gethostname():
            return False
        return is_writing(pid, Path(self.path))

    def _looked_at(self, pid: int) -> int:
        """When its rows were last looked for, in ns since 1970 by its own clock.

        Its clock does not know yet if the wall clock has been set, or its host was suspended: then
        its newest rows look as old as that is long. Nor may many files take so long to read.
        """
        now = time.perf_counter_ns()
        looked = now if self._looked is None else self._looked
        if shares_clock(pid):
            return int(self.clock.utc(np.array([looked], np.int64))[0])
        return time.time_ns() - (now - looked)

    def is_gone(self) -> bool:
        """Whether it is sure that its process is no more; else nothing is known."""
        pid, pids = self.header.get("pid"), self.header.get("pids")
        return isinstance(pid, int) and isinstance(pids, str) and is_gone(pid, pids)

    def launched(self, segment: int) -> None:
        """Set the launch of the run that it belongs to, before anything is read."""
        self._origin = Origin(self.header, segment)

    def settings(self) -> pa.Table:
        """The header's configuration, as events of line 0."""
        told = _settings_of(self.header)
        at = int(self.clock.utc(np.array([_anchor(self.header)[0]], np.int64))[0])
        words, numbers = [], []
        for value in told.values():
            number = isinstance(value, int | float)
            numbers.append(float(value) if number else None)
            words.append(None if number else value if isinstance(value, str) else json.dumps(value))
        size = len(told)
        columns = {
            "kind": ["config"] * size,
            "name": list(told),
            "raw": list(told),
            "engine": np.zeros(size, np.int16),
            "at": np.full(size, at // 1000),
            "value": numbers,
            "text": words,
            "line": np.zeros(size, np.int64),
        }
        return self._origin.table(columns, size, self.path)


def _anchor(header: Mapping[str, Any]) -> tuple[int, int]:
    clock = header.get("clock")
    clock = clock if isinstance(clock, dict) else {}
    perf, wall = (clock.get(name) for name in ("perf_ns", "wall_ns"))
    if not (isinstance(perf, int) and isinstance(wall, int) and max(abs(perf), abs(wall)) < LATE):
        raise DsprofError("has a header without clocks", "", "it was not written by dsprof")
    return perf, wall


def _settings_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """Canonical name → value; names without a value are left out."""
    told = {name: header.get(key) for key, name in _CONFIG.items()}
    versions = header.get("versions")
    if isinstance(versions, dict):
        told |= {f"{name}_version": str(version) for name, version in versions.items()}
    own = header.get("config")
    if isinstance(own, dict):
        told |= own
    return {str(name): value for name, value in told.items() if value is not None}


class Recordings:
    """All recordings of a run. Each `follow` also finds files that appeared since."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        """Nothing is read yet.

        Args:
            paths: folders and files.
        """
        self.recordings: list[Recording] = []
        self._paths = [Path(path) for path in paths]
        self._known: set[tuple[Path, str]] = set()
        self._records = 0

    def follow(self) -> pa.Table:
        """New events, process by process; `record` continues to count.

        Raises:
            DsprofError: a file is not a recording, or has a newer format.
        """
        self.discover()
        tables = [recording.follow() for recording in self.recordings]
        table = pa.concat_tables([SCHEMA.empty_table(), *tables]).unify_dictionaries()
        self._records += len(table)
        return numbered(table, self._records - len(table))

    def facts(self) -> dict[str, Any]:
        """`sources`, and `recordings`: what is known about each process."""
        return {
            "sources": [recording.path for recording in self.recordings],
            "recordings": [recording.facts for recording in last_of_each(self.recordings)],
        }

    def close(self) -> None:
        for recording in self.recordings:
            recording.close()

    def discover(self) -> None:
        """Open recordings that are not open yet.

        Raises:
            DsprofError: one cannot be read; the others are open.
        """
        found: dict[tuple[Path, str], list[Path]] = {}
        for file in (file for path in self._paths for file in _files(path)):
            found.setdefault(_process(file), []).append(file)
        old = set(map(id, self.recordings))
        faults = []
        for key in sorted(found.keys() - self._known):
            try:
                self.recordings.append(_opened(found[key]))
                self._known.add(key)
            except DsprofError as error:
                faults.append(error)
        numbers = segments([recording.header for recording in self.recordings])
        for recording, number in zip(self.recordings, numbers, strict=True):
            if id(recording) not in old:
                recording.launched(number)
        if faults:
            raise faults[0]


def numbered(table: pa.Table, first: int = 0) -> pa.Table:
    """The table with `record` numbered from `first`, one number per row."""
    place = SCHEMA.get_field_index("record")
    numbers = np.arange(len(table), dtype=np.int32) + np.int32(first)
    return table.set_column(place, SCHEMA.field(place), pa.array(numbers))


def _process(file: Path) -> tuple[Path, str]:
    """A key that is the same for all files of one process."""
    return file.parent, stem_of(file.name) or file.name


def _opened(files: Sequence[Path]) -> Recording:
    """The recording of one process; any file but the last may have been deleted meanwhile."""
    for file in files[:-1]:
        try:
            return Recording(file)
        except DsprofError:
            if file.exists():
                raise
    return Recording(files[-1])


def segments(headers: Sequence[Mapping[str, Any]]) -> list[int]:
    """The launch that each process belongs to, numbered from 0 in order of time.

    Processes of one launch agree in `launch` and `restart`. A rank that occurs twice was launched
    again without a new `launch`, unless its recording continues another one.
    """
    times: Counter[tuple[str, str]] = Counter()
    keys: dict[int, tuple[str, int]] = {}
    begin: dict[tuple[str, int], int] = {}
    order = sorted(range(len(headers)), key=lambda i: _anchor(headers[i])[1])
    for i in order:
        launch = json.dumps([headers[i].get("launch"), headers[i].get("restart", 0)], default=str)
        rank = launch, str(headers[i].get("rank"))
        if not (times[rank] and headers[i].get("continues")):
            times[rank] += 1
        keys[i] = launch, times[rank]
        begin.setdefault(keys[i], _anchor(headers[i])[1])
    number = {key: n for n, key in enumerate(sorted(begin, key=lambda key: begin[key]))}
    return [number[keys[i]] for i in range(len(headers))]


def last_of_each(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings without those that another one of the same process continues: the last one has
    the end.
    """
    gone_on = {(Path(one.path).parent, one.header.get("continues")) for one in recordings}
    return [one for one in recordings if _process(Path(one.path)) not in gone_on]


def _files(path: Path) -> list[Path]:
    """The file itself, or the recordings in a folder whose headers are complete."""
    if not path.is_dir():
        return [path]
    return [file for file in sorted(path.rglob(f"*{SUFFIX}")) if file.is_file() and _begun(file)]


def _begun(file: Path) -> bool:
    """Whether its header is complete; True for foreign files."""
    try:
        with file.open("rb") as stream:
            head = stream.read(JSON)
            size = os.fstat(stream.fileno()).st_size
    except OSError:
        return file.exists()  # the error is reported when it is read
    if not MAGIC.startswith(head[: len(MAGIC)]):
        return True
    return len(head) == JSON and size >= header_size(head, str(file))


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Whether the path is a recording, or a folder that contains one."""
    place = Path(path)
    if place.is_dir():
        return any(place.rglob(f"*{SUFFIX}"))
    if place.suffix == SUFFIX:
        return True
    if not place.is_file():  # what is read from a pipe is consumed
        return False
    try:
        with place.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_folder(*paths: str | os.PathLike[str]) -> pa.Table:
    """The events of all recordings under `paths`, in the columns of `dsprof.events`.

    Raises:
        DsprofError: there is none, or one cannot be read.
    """
    recordings = Recordings(paths)
    table = recordings.follow()
    recordings.close()
    return table
