"""Views of rows that recordings have by the million, without a table of all events.

Makes what `dsprof.run.recorded.spans`, `dsprof.run.comm` and `dsprof.run.steps` make from events,
but from the narrow columns of each process, one process after the other, and then puts the results
in order of steps and ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pandas as pd

from dsprof.events import CLASSES, Kind
from dsprof.recording.bulk import FORGOTTEN, Bulk, Process, seconds_of
from dsprof.recording.table import distinct
from dsprof.recording.told import Columns
from dsprof.run.recorded import spans
from dsprof.run.recorded.meanings import Meanings, Word, coded, frame_of, met
from dsprof.run.recorded.nested import alike, summed
from dsprof.run.recorded.woven import STEPS, THREADS, Array, Part, Source, rows_of, visits_of
from dsprof.run.steps.phases import CLOSING, COLUMNS
from dsprof.run.table import known_rank, of_kind, runs


class Recorded:
    """Phases, calls and step times of a `Bulk`.

    Args:
        bulk: what was recorded.
        told: the tidy events of `Bulk.told`, repaired.
    """

    def __init__(self, bulk: Bulk, told: pd.DataFrame) -> None:
        self.processes = bulk.processes
        self._told = told
        self._words: list[Word] = []
        self._code_of: dict[str, int] = {}
        self._codes = [self._codes_of(process) for process in self.processes]
        self.files = list(dict.fromkeys(file for one in self.processes for file in one.files))
        self._file_of = {file: number for number, file in enumerate(self.files)}

    def _codes_of(self, process: Process) -> Array:
        """For each id of a process the index of its word; after the ids come the classes."""
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
            self._words.append(Word(path, name, class_))
        return code

    def words(self, number: int, ids: Array) -> Array:
        """Word indices for ids of a process; -1 for an undefined id."""
        codes = self._codes[number]
        first = len(codes) - 1 - len(CLASSES)
        if len(ids) and int(ids.max()) >= first:
            forgotten = (ids >= FORGOTTEN) & (ids < FORGOTTEN + len(CLASSES))
            ids = np.where(forgotten, ids.astype(np.int64) - FORGOTTEN + first, ids)
            ids[~forgotten & (ids >= first)] = len(codes) - 1
        return codes[ids]

    @cached_property
    def phases(self) -> pd.DataFrame:
        """The same as `spans.phases` makes from events, in narrow columns."""
        with ThreadPoolExecutor(THREADS) as pool:
            parts = list(pool.map(self._part, range(len(self.processes))))
        means = Meanings(self._words, self._holding)
        word, above = (_met(parts, name, len(means.names)) for name in ("word", "parent"))
        words = {
            "name": ("word", coded(means.names, word)),
            "raw": ("word", coded(means.paths, word)),
            "parent": ("parent", coded(means.names, above)),
            "class": ("word", coded(means.classes, word)),
            "source": ("file", coded(self.files, _met(parts, "file", len(self.files)))),
        }
        mixed = {"mixed": Source("word", means.mixed)}
        return frame_of(self.processes, parts, words, mixed, COLUMNS)

    @cached_property
    def _blind(self) -> set[tuple[int, int, int]]:
        """Segment, engine and word of calls whose exposed time was not measured."""
        found = set()
        for number, process in enumerate(self.processes):
            unknown = process.calls["blocked"] < 0
            if self._is_on_device(process) or not unknown.any():
                continue
            calls = process.calls
            unknown &= self._finished(process, calls)
            pair = np.unique(
                calls["engine"][unknown].astype(np.int64) << 32 | calls["name"][unknown]
            )
            words = self.words(number, pair & STEPS)
            found |= {
                (process.segment, int(one >> 32), int(word))
                for one, word in zip(pair, words, strict=True)
            }
        return found

    @cached_property
    def _holding(self) -> set[str]:
        """Paths of the phases that contain such calls."""
        paths = [self._words[word].path for _, _, word in self._blind if word >= 0]
        return {above for path in paths for above in spans.above(path)}

    @cached_property
    def _on_device(self) -> set[tuple[int, int]]:
        """Segment and rank of the processes whose phases are timed on a GPU."""
        told = known_rank(of_kind(self._told, Kind.CONFIG))
        told = told[(told["name"] == "phases_on") & (told["text"] == "gpu")]
        return set(zip(told["segment"].astype(int), told["rank"].astype(int), strict=True))

    def _is_on_device(self, process: Process) -> bool:
        return (process.segment, process.rank or 0) in self._on_device

    @cached_property
    def _until(self) -> dict[tuple[int, int], int]:
        """The last finished step of each segment and engine."""
        ends = self._told[self._told["name"].isin(CLOSING) & self._told["step"].notna()]
        last = ends.groupby(["segment", "engine"], as_index=False)["step"].max()
        until = {
            (int(segment), int(engine)): int(step)
            for segment, engine, step in last.itertuples(index=False)
        }
        for key, step in self._end.items():
            until[key] = max(until.get(key, step), step)
        return until

    @cached_property
    def _ended(self) -> dict[tuple[int, int, int], int]:
        """The last step that each process has ended: its segment, engine and rank."""
        ended: dict[tuple[int, int, int], int] = {}
        for process in self.processes:
            for engine, step in _last_steps(process.steps):
                key = process.segment, engine, process.rank or 0
                ended[key] = max(ended.get(key, step), step)
        return ended

    @cached_property
    def _end(self) -> dict[tuple[int, int], int]:
        """The last step of each segment and engine that any process has ended."""
        end: dict[tuple[int, int], int] = {}
        for (segment, engine, _), step in self._ended.items():
            end[segment, engine] = max(end.get((segment, engine), step), step)
        return end

    @cached_property
    def calls(self) -> pd.DataFrame:
        """Calls inside steps, ordered by step and rank, in the first columns of `comm`."""
        groups = _Names()
        of_id = [groups.codes(process.recording.names.text) for process in self.processes]
        with ThreadPoolExecutor(THREADS) as pool:
            parts = list(pool.map(self._calls_part, range(len(of_id)), of_id))
        op, above = _met(parts, "op", len(self._words)), [one.phase for one in self._words]
        words = {
            "op": ("op", coded([one.name for one in self._words], op)),
            "phase": ("op", coded(above, op & np.array([bool(path) for path in above], bool))),
            "group": ("group", coded(groups.words, _met(parts, "group", len(groups.words)))),
            "source": ("file", coded(self.files, _met(parts, "file", len(self.files)))),
        }
        return frame_of(self.processes, parts, words, {}, _CALLS)

    def _calls_part(self, number: int, groups: Array) -> Part:
        """The calls of a process; `groups` is the word index of each id."""
        process = self.processes[number]
        kept = ~self._ended_by_others(process, process.calls)
        calls = process.calls if kept.all() else _where(process.calls, kept)
        visit = visits_of(calls)
        columns = {
            "op": self.words(number, calls["name"]),
            "group": np.take(groups, calls["group"], mode="clip"),
            "bytes": calls["size"].astype(np.float64),
            "count": calls["count"],
            "seconds": seconds_of(calls["duration"]),
            "exposed_seconds": seconds_of(calls["blocked"]),
            "file": self._file(process, calls["file"]),
            "line": calls["line"],
        }
        if (visit[1:] < visit[:-1]).any():
            order = np.argsort(visit, kind="stable")
            visit, columns = visit[order], {name: one[order] for name, one in columns.items()}
        heads = runs(visit)
        return Part(visit[heads], np.diff(heads, append=len(visit)), columns)

    @cached_property
    def times(self) -> pd.DataFrame:
        """One row per step that a process ended: `segment`, `engine`, `step`, `seconds` (mean over
        the ranks of each one's last row), `at` (the latest end), `rank`, `source` and `line` (the
        first).
        """
        frames = [
            self._times([one for one in self.processes if one.segment == segment], segment)
            for segment in sorted({one.segment for one in self.processes})
        ]
        return pd.concat(frames, ignore_index=True)

    def _times(self, processes: Sequence[Process], segment: int) -> pd.DataFrame:
        each = [visits_of(one.steps) for one in processes]
        visits = distinct(np.concatenate(each))
        total, known, at = (np.zeros(len(visits), kind) for kind in (float, int, np.int64))
        rank, file, line = (np.full(len(visits), -1) for _ in range(3))
        for process, visit in reversed(list(zip(processes, each, strict=True))):
            steps, place = process.steps, rows_of(visits, visit)
            seconds = seconds_of(steps["duration"])
            timed = np.flatnonzero(seconds > 0)
            own = np.full(len(visits), np.nan)
            own[place[timed]] = seconds[timed]
            total += np.nan_to_num(own)
            known += np.isfinite(own)
            end = process.recording.clock.utc(steps["begin"] + steps["duration"]) // 1000
            np.maximum.at(at, place, end)
            rank[place] = process.rank or 0
            file[place[::-1]] = self._file(process, steps["file"])[::-1]
            line[place[::-1]] = steps["line"][::-1]
        known_by = np.where(known > 0, known, np.nan)
        source = coded(self.files, met([file], len(self.files)))
        return pd.DataFrame(
            {
                "segment": segment,
                "engine": visits >> 32,
                "step": visits & STEPS,
                "seconds": total / known_by,
                "at": at.astype("datetime64[us]"),
                "rank": rank,
                "source": source.column(source.codes[file]),
                "line": line,
            }
        )

    def _file(self, process: Process, number: Array) -> Array:
        """For files of a process, their indices among all files."""
        files = [self._file_of[file] for file in process.files] or [0]
        return np.array(files, np.int16 if len(self.files) < 1 << 15 else np.int32)[number]

    def _part(self, number: int) -> Part:
        process = self.processes[number]
        rows = (
            self._spans(number, process, process.spans),
            self._calls(number, process, process.calls),
        )
        kept = [found if mask.all() else _where(found, mask) for found, mask in rows]
        paths = [word.path for word in self._words]
        return alike(kept, paths) or summed(kept, paths)

    def _spans(self, number: int, process: Process, columns: Columns) -> tuple[Columns, Array]:
        seconds = seconds_of(columns["duration"])
        forgotten = columns["name"] >= FORGOTTEN
        count = np.broadcast_to(1.0, len(seconds))
        if forgotten.any():
            count = np.where(forgotten, np.nan, 1.0)
        kept = self._finished(process, columns)
        if self._is_on_device(process):
            gpu = columns["gpu"] if "gpu" in columns else np.full(len(seconds), -1)
            seconds = np.where(gpu >= 0, gpu * 1e-9, seconds)
            kept &= (gpu >= 0) | forgotten
        word = self.words(number, columns["name"]) * 2
        found = {"word": word, "seconds": seconds, "count": count}
        return found | self._places(process, columns), kept & (word >= 0)

    def _calls(self, number: int, process: Process, columns: Columns) -> tuple[Columns, Array]:
        seconds = seconds_of(columns["blocked"])
        kept = self._finished(process, columns)
        blind = [engine for segment, engine, _ in self._blind if segment == process.segment]
        if blind:
            kept &= ~np.isin(columns["engine"], blind)
        if self._is_on_device(process):
            kept &= ~np.isnan(seconds)
        word = self.words(number, columns["name"]) * 2 + 1
        found = {"word": word, "seconds": seconds, "count": columns["count"]}
        return found | self._places(process, columns), kept & (word >= 0)

    def _finished(self, process: Process, columns: Columns) -> Array:
        """Rows of steps that the end of the recording did not cut off.

        An engine that ends no step has none: its model is only used for inference, or what steps
        was not found. Nor has a process steps that it did not end while others did.
        """
        kept = np.ones(len(columns["step"]), bool)
        for engine in distinct(columns["engine"]):
            until = self._own_end(process, int(engine))
            if until is None:
                until = self._until.get((process.segment, int(engine)), 0)
            if columns["step"].max() > until:
                kept &= (columns["step"] <= until) | (columns["engine"] != engine)
        return kept

    def _own_end(self, process: Process, engine: int) -> int | None:
        """The last step of an engine that this process has ended; None where none has any."""
        if (process.segment, engine) not in self._end:
            return None
        return self._ended.get((process.segment, engine, process.rank or 0), 0)

    def _ended_by_others(self, process: Process, columns: Columns) -> Array:
        """Rows of steps that other processes have ended, and this one has not."""
        found = np.zeros(len(columns["step"]), bool)
        for engine in distinct(columns["engine"]):
            until = self._own_end(process, int(engine))
            if until is not None and columns["step"].max() > until:
                later = (columns["step"] > until) & (columns["engine"] == engine)
                found |= later & (columns["step"] <= self._end[process.segment, int(engine)])
        return found

    def _places(self, process: Process, columns: Columns) -> Columns:
        file = self._file(process, columns["file"])
        return {name: columns[name] for name in ("engine", "step", "line")} | {"file": file}


#: Columns of calls, in order.
_CALLS = (
    "segment", "engine", "step", "rank", "op", "phase", "group", "bytes", "count", "seconds",
    "exposed_seconds", "source", "line",
)  # fmt: skip


class _Names:
    """The words of several processes, each once."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def codes(self, meaning: Mapping[int, str]) -> Array:
        """The word index of each id; -1 (the last element, too) for an undefined id."""
        known = {word: code for code, word in enumerate(self.words)}
        of_id = np.full(max(meaning, default=0) + 2, -1, np.int32)
        for number, word in meaning.items():
            of_id[number] = known.setdefault(word, len(known))
        self.words = list(known)
        return of_id


def _met(parts: Sequence[Part], column: str, size: int) -> Array:
    """Which of `size` words occur in a column."""
    return met([part.among(column) for part in parts], size)


def _where(columns: Columns, mask: Array) -> Columns:
    return {name: values[mask] for name, values in columns.items()}


def _last_steps(columns: Columns) -> Iterator[tuple[int, int]]:
    for engine in distinct(columns["engine"]):
        yield int(engine), int(columns["step"][columns["engine"] == engine].max())
