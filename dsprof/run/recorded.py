"""Views of the rows that recordings hold by the million, without a table of all events.

What `dsprof.run.spans`, `comm` and `steps` make of events is made here of the narrow columns of
each process, one process after the other, and then put in the order of steps and ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.recording.bulk import FORGOTTEN, LONGEST, Bulk, Columns, Process
from dsprof.recording.layout import CLASSES
from dsprof.recording.table import distinct
from dsprof.run import spans
from dsprof.run.classes import P2P
from dsprof.run.phases import CLOSING, COLUMNS, first_present
from dsprof.run.table import Numbers, known_rank, of_kind, runs

Array = npt.NDArray[Any]

_THREADS: Final = 2
_STEPS: Final = (1 << 32) - 1


@dataclass
class _Word:
    """What a path means."""

    path: str
    name: str
    class_: str


class Recorded:
    """Phases, calls and step times of a `Bulk`.

    Args:
        bulk: what is recorded.
        told: the tidy events of `Bulk.told`, repaired.
    """

    def __init__(self, bulk: Bulk, told: pd.DataFrame) -> None:
        self.processes = bulk.processes
        self._told = told
        self._words: list[_Word] = []
        self._code_of: dict[str, int] = {}
        self._codes = [self._codes_of(process) for process in self.processes]
        self.files = list(dict.fromkeys(file for one in self.processes for file in one.files))
        self._file_of = {file: number for number, file in enumerate(self.files)}

    def _codes_of(self, process: Process) -> Array:
        """Which word each id of a process is; behind the ids the classes."""
        names = process.recording.names
        size = max(names.path, default=0) + 1
        codes = np.full(size + len(CLASSES) + 1, -1, np.int32)
        for number, path in names.path.items():
            codes[number] = self._code(path, names.text[number], names.class_[number])
        for number, word in enumerate(CLASSES):
            codes[size + number] = self._code(word, word, word)
        return codes

    def _code(self, path: str, name: str, class_: str) -> int:
        code = self._code_of.setdefault(path, len(self._words))
        if code == len(self._words):
            self._words.append(_Word(path, name, class_))
        return code

    def words(self, number: int, ids: Array) -> Array:
        """The words that ids of a process mean, -1 where nothing defines one."""
        codes = self._codes[number]
        forgotten = ids >= FORGOTTEN
        first = len(codes) - 1 - len(CLASSES)
        place = np.where(forgotten, ids.astype(np.int64) - FORGOTTEN + first, ids)
        place[~forgotten & (place >= first)] = len(codes) - 1
        return codes[place]

    @cached_property
    def phases(self) -> pd.DataFrame:
        """As `spans.phases` makes them of events, in narrow columns."""
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = list(pool.map(self._part, range(len(self.processes))))
        meanings = _Meanings(self._words, self._holding)
        return meanings.frame(_woven(self.processes, parts), self.files)

    @cached_property
    def _blind(self) -> set[tuple[int, int, int]]:
        """Segment, engine and word of calls whose exposed time nobody measured."""
        found = set()
        for number, process in enumerate(self.processes):
            if self._is_on_device(process):
                continue
            calls = process.calls
            unknown = calls["blocked"] < 0
            if unknown.any():
                unknown &= self._finished(process, calls)
            pair = np.unique(
                calls["engine"][unknown].astype(np.int64) << 32 | calls["name"][unknown]
            )
            words = self.words(number, pair & _STEPS)
            found |= {
                (process.segment, int(one >> 32), int(word))
                for one, word in zip(pair, words, strict=True)
            }
        return found

    @cached_property
    def _holding(self) -> set[str]:
        """Paths of the phases that hold such calls."""
        paths = [self._words[word].path for _, _, word in self._blind if word >= 0]
        return {above for path in paths for above in spans.above(path)}

    @cached_property
    def _on_device(self) -> set[tuple[int, int]]:
        """Segment and rank of the processes whose phases are a GPU's."""
        told = known_rank(of_kind(self._told, Kind.CONFIG))
        told = told[(told["name"] == "phases_on") & (told["text"] == "gpu")]
        return set(zip(told["segment"].astype(int), told["rank"].astype(int), strict=True))

    def _is_on_device(self, process: Process) -> bool:
        return (process.segment, process.rank or 0) in self._on_device

    @cached_property
    def _until(self) -> dict[tuple[int, int], int]:
        """The last step of each segment and engine that was finished."""
        ends = self._told[self._told["name"].isin(CLOSING) & self._told["step"].notna()]
        last = ends.groupby(["segment", "engine"], as_index=False)["step"].max()
        until = {
            (int(segment), int(engine)): int(step)
            for segment, engine, step in last.itertuples(index=False)
        }
        for process in self.processes:
            for engine, step in _last_steps(process.steps):
                key = process.segment, engine
                until[key] = max(until.get(key, step), step)
        return until

    @cached_property
    def calls(self) -> pd.DataFrame:
        """Calls inside steps in order of step and rank, in the columns that `comm` begins with."""
        parts = [one.calls for one in self.processes]
        sizes = [len(one["step"]) for one in parts]

        def column(name: str) -> Array:
            return np.concatenate([one[name] for one in parts])

        word = np.concatenate([self.words(n, one["name"]) for n, one in enumerate(parts)])
        groups = _Names()
        group = [
            groups.codes(one.recording.names.text, one.calls["group"]) for one in self.processes
        ]
        ranks = np.array([-1 if one.rank is None else one.rank for one in self.processes], np.int32)
        segments = np.array([one.segment for one in self.processes], np.int16)
        file = np.concatenate([self._file(one, one.calls["file"]) for one in self.processes])
        columns = {
            "segment": np.repeat(segments, sizes),
            "engine": column("engine").astype(np.int16),
            "step": column("step"),
            "rank": _ranks(np.repeat(ranks, sizes)),
            "op": _words(word, [one.name for one in self._words]),
            "group": _words(np.concatenate(group), groups.words),
            "bytes": column("size").astype(np.float64),
            "count": column("count"),
            "seconds": _seconds(column("duration")),
            "exposed_seconds": _seconds(column("blocked")),
            "source": _words(file, self.files),
            "line": column("line"),
        }
        place = columns["segment"].astype(np.int64) << 40
        place |= columns["engine"].astype(np.int64) << 32 | columns["step"]
        order = np.argsort(place, kind="stable")
        return pd.DataFrame({name: one[order] for name, one in columns.items()}, copy=False)

    @cached_property
    def times(self) -> pd.DataFrame:
        """One row per step that a process ended: `segment engine step`, `seconds` (mean over the
        ranks of each one's last), `at` (the latest), `source` and `line` (the first)."""
        frames = [
            self._times([one for one in self.processes if one.segment == segment], segment)
            for segment in sorted({one.segment for one in self.processes})
        ]
        return pd.concat(frames, ignore_index=True)

    def _times(self, processes: Sequence[Process], segment: int) -> pd.DataFrame:
        each = [_visits(one.steps) for one in processes]
        visits = distinct(np.concatenate(each))
        total, known, at = (np.zeros(len(visits), kind) for kind in (float, int, np.int64))
        file, line = (np.full(len(visits), -1) for _ in range(2))
        for process, visit in reversed(list(zip(processes, each, strict=True))):
            steps, place = process.steps, np.searchsorted(visits, visit)
            seconds = _seconds(steps["duration"])
            timed = np.flatnonzero(seconds > 0)
            own = np.full(len(visits), np.nan)
            own[place[timed]] = seconds[timed]
            total += np.nan_to_num(own)
            known += np.isfinite(own)
            end = process.recording.clock.utc(steps["begin"] + steps["duration"]) // 1000
            np.maximum.at(at, place, end)
            file[place[::-1]] = self._file(process, steps["file"])[::-1]
            line[place[::-1]] = steps["line"][::-1]
        known_by = np.where(known > 0, known, np.nan)
        return pd.DataFrame(
            {
                "segment": segment,
                "engine": visits >> 32,
                "step": visits & _STEPS,
                "seconds": total / known_by,
                "at": at.astype("datetime64[us]"),
                "source": _words(file, self.files),
                "line": line,
            }
        )

    def _file(self, process: Process, number: Array) -> Array:
        """Which of all files each of a process's is."""
        files = [self._file_of[file] for file in process.files] or [0]
        return np.array(files, np.int16 if len(self.files) < 1 << 15 else np.int32)[number]

    def _part(self, number: int) -> _Part:
        process = self.processes[number]
        rows = (
            self._spans(number, process, process.spans),
            self._calls(number, process, process.calls),
        )
        kept = [found if mask.all() else _where(found, mask) for found, mask in rows]
        together = {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}
        return _part_of(together, [word.path for word in self._words], self._code_of)

    def _spans(self, number: int, process: Process, columns: Columns) -> tuple[Columns, Array]:
        seconds = _seconds(columns["duration"])
        count = np.where(columns["name"] < FORGOTTEN, 1.0, np.nan)
        kept = self._finished(process, columns)
        if self._is_on_device(process):
            gpu = columns["gpu"] if "gpu" in columns else np.full(len(seconds), -1)
            seconds = np.where(gpu >= 0, gpu * 1e-9, seconds)
            kept &= (gpu >= 0) | np.isnan(count)
        word = self.words(number, columns["name"]) * 2
        found = {"word": word, "seconds": seconds, "count": count}
        return found | self._places(process, columns), kept & (word >= 0)

    def _calls(self, number: int, process: Process, columns: Columns) -> tuple[Columns, Array]:
        seconds = _seconds(columns["blocked"])
        kept = self._finished(process, columns)
        blind = [engine for segment, engine, _ in self._blind if segment == process.segment]
        if blind:
            kept &= ~np.isin(columns["engine"], blind)
        if self._is_on_device(process):
            kept &= ~np.isnan(seconds)
        word = self.words(number, columns["name"]) * 2 + 1
        found = {"word": word, "seconds": seconds, "count": columns["count"].astype(np.float64)}
        return found | self._places(process, columns), kept & (word >= 0)

    def _finished(self, process: Process, columns: Columns) -> Array:
        """Rows of steps that the end of the recording did not cut off."""
        kept = np.ones(len(columns["step"]), bool)
        for engine in np.flatnonzero(np.bincount(columns["engine"], minlength=1)):
            until = self._until.get((process.segment, int(engine)))
            if until is not None:
                kept &= (columns["step"] <= until) | (columns["engine"] != engine)
        return kept

    def _places(self, process: Process, columns: Columns) -> Columns:
        file = self._file(process, columns["file"])
        return {"visit": _visits(columns), "line": columns["line"], "file": file}


class _Names:
    """Words of several processes, each once."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def codes(self, meaning: Mapping[int, str], ids: Array) -> Array:
        """Where the words of ids stand, -1 where nothing defines one."""
        known = {word: code for code, word in enumerate(self.words)}
        of_id = np.full(max(meaning, default=0) + 2, -1, np.int32)
        for number, word in meaning.items():
            of_id[number] = known.setdefault(word, len(known))
        self.words = list(known)
        return np.asarray(np.take(of_id, ids, mode="clip"))


def _where(columns: Columns, mask: Array) -> Columns:
    return {name: values[mask] for name, values in columns.items()}


def _visits(columns: Columns) -> Array:
    """Engine and step as one number."""
    visits: Array = columns["engine"].astype(np.int64) << 32 | columns["step"]
    return visits


def _numbers(processes: Sequence[Process]) -> Array:
    """The rank of each; -1 if unknown."""
    return np.array([-1 if one.rank is None else one.rank for one in processes], np.int32)


def _ranks(numbers: Array) -> Any:
    """Missing where -1; a column that lacks none stays plain."""
    lacking = numbers < 0
    return pd.arrays.IntegerArray(numbers.astype(np.int64), lacking) if lacking.any() else numbers


def _seconds(nanoseconds: Array) -> Numbers:
    """NaN where unknown, or no time."""
    seconds: Numbers = nanoseconds * 1e-9
    seconds[(nanoseconds < 0) | (nanoseconds > LONGEST)] = np.nan
    return seconds


def _last_steps(columns: Columns) -> Iterator[tuple[int, int]]:
    for engine in distinct(columns["engine"]):
        yield int(engine), int(columns["step"][columns["engine"] == engine].max())


@dataclass(frozen=True)
class _Part:
    """The phases of one process, in order of visit (engine and step) and path.

    Attributes:
        visits: each once.
        lengths: rows of each.
        columns: `word`, `parent` (a word or -1), `seconds`, `self_seconds`, `count`, `line`,
            `file`.
    """

    visits: Array
    lengths: Array
    columns: Columns


def _part_of(rows: Columns, paths: Sequence[str], code_of: dict[str, int]) -> _Part:
    """Rows of one path and step summed up, and each in its parent."""
    timer = rows["visit"] * max(len(paths), 1) + rows["word"] // 2
    order = np.argsort(timer, kind="stable")
    timer = timer[order]
    heads = runs(timer)
    first, timer = order[heads], timer[heads]
    seconds, count = (np.add.reduceat(rows[name][order], heads) if len(heads) else rows[name]
                      for name in ("seconds", "count"))  # fmt: skip
    word = rows["word"][first]
    place = first_present(timer, word // 2, [spans.above(path) for path in paths], code_of)
    inside = place >= 0
    explained = np.bincount(place[inside], seconds[inside], minlength=len(word))
    visit = rows["visit"][first]
    begins = runs(visit)
    kind = np.int16 if len(paths) < 1 << 14 else np.int32
    return _Part(
        visits=visit[begins],
        lengths=np.diff(begins, append=len(visit)),
        columns={
            "word": word.astype(kind),
            "parent": np.where(inside, word[place], -1).astype(
                np.int16 if len(paths) < 1 << 14 else np.int32
            ),
            "seconds": seconds,
            "self_seconds": np.clip(seconds - explained, 0.0, None),
            "count": count.astype(np.float32),
            "line": rows["line"][first],
            "file": rows["file"][first],
        },
    )


def _woven(processes: Sequence[Process], parts: Sequence[_Part]) -> Columns:
    """The rows of all processes in order of segment, engine, step and rank.

    Processes come in order of segment and rank.
    """
    woven = []
    for segment in sorted({process.segment for process in processes}):
        mine = [n for n, process in enumerate(processes) if process.segment == segment]
        rows = _of_segment([processes[n] for n in mine], [parts[n] for n in mine])
        woven.append(rows | {"segment": np.full(len(rows["step"]), segment, np.int16)})
    if len(woven) == 1:
        return woven[0]
    return {name: np.concatenate([rows[name] for rows in woven]) for name in woven[0]}


def _of_segment(processes: Sequence[Process], parts: Sequence[_Part]) -> Columns:
    visits = distinct(np.concatenate([part.visits for part in parts]))
    width = len(parts)
    lengths = np.zeros((len(visits), width), np.int32)
    for n, part in enumerate(parts):
        lengths[np.searchsorted(visits, part.visits), n] = part.lengths
    ends = lengths.cumsum(dtype=np.int64)
    begins = (ends - lengths.ravel()).reshape(lengths.shape)
    total = int(ends[-1]) if len(ends) else 0
    of_visit = lengths.sum(axis=1)
    found = {
        name: np.empty(total, np.result_type(*{part.columns[name].dtype for part in parts}))
        for name in parts[0].columns
    }

    def put(n: int) -> None:
        part = parts[n]
        begin = begins[np.searchsorted(visits, part.visits), n]
        own = np.cumsum(part.lengths) - part.lengths
        into = np.repeat(begin - own, part.lengths) + np.arange(int(part.lengths.sum()))
        for name, values in part.columns.items():
            found[name][into] = values

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(put, range(width)))
    ranks = _numbers(processes)
    return found | {
        "engine": np.repeat((visits >> 32).astype(np.int16), of_visit),
        "step": np.repeat((visits & _STEPS).astype(np.int32), of_visit),
        "rank": np.repeat(np.tile(ranks, len(visits)), lengths.ravel()),
    }


class _Meanings:
    """Names and classes of words: 2 x path for a span, one more for a call."""

    def __init__(self, words: Sequence[_Word], holding: set[str]) -> None:
        self.paths = [word.path for word in words for _ in range(2)]
        self.names, self.classes = [], []
        for word in words:
            held = word.path in holding and word.class_ == Class.COMPUTE
            moves = Class.WAIT if word.name in P2P else Class.COMMUNICATION
            self.names += [word.name, spans.inside_of(word.path)]
            self.classes += [str(Class.OTHER if held else word.class_), str(moves)]
        self.held = np.array(
            [call == 0 and word.path in holding and word.class_ == Class.COMPUTE
             for word in words for call in range(2)], bool)  # fmt: skip

    def frame(self, rows: Columns, files: Sequence[str]) -> pd.DataFrame:
        word, parent = rows.pop("word"), rows.pop("parent")
        found = {
            **rows,
            "rank": _ranks(rows["rank"]),
            "name": _words(word, self.names),
            "raw": _words(word, self.paths),
            "parent": _words(parent, self.names),
            "class": _words(word, self.classes),
            "mixed": self.held[word],
            "source": _words(rows["file"], files),
        }
        return pd.DataFrame({name: found[name] for name in COLUMNS}, copy=False)


def _words(codes: Array, words: Sequence[str]) -> pd.Categorical:
    """The words of codes, as categories in order; -1 is none."""
    met = np.flatnonzero(np.bincount(codes + 1, minlength=len(words) + 1)[1:]).tolist()
    names = sorted({words[code] for code in met})
    into = np.full(len(words) + 1, -1, np.int8 if len(names) < 1 << 7 else np.int32)
    into[met] = [names.index(words[code]) for code in met]
    of_words: Any = into[codes]
    return pd.Categorical.from_codes(of_words, pd.Index(names, dtype="str"))
