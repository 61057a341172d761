"""Bytes to events: any DeepSpeed-family log in, one tidy table out.

    source ─ bytes ─► containers ─► scan ─ records ─► place ─► table

`read` takes whole sources, `Reader` a source that is still growing; both give the same
table for the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from dsprof import grammar as grammars
from dsprof.errors import DsprofError
from dsprof.events import Kind
from dsprof.grammar import Grammar
from dsprof.logs.joining.mingled import unreadable
from dsprof.logs.joining.sheet import Sheet
from dsprof.logs.joining.table import events_table
from dsprof.logs.placing.alike import with_steps_of_others
from dsprof.logs.placing.monitors import monitors_of
from dsprof.logs.scanning.coverage import Unread
from dsprof.logs.scanning.ranges import Range, ranges_of, scan_range
from dsprof.logs.scanning.records import without_cycle_collection
from dsprof.logs.scanning.scan import Scanner
from dsprof.logs.sources.containers import Containers
from dsprof.logs.sources.csv_monitor import is_scalar_file
from dsprof.logs.sources.hard_wraps import Unwrapped
from dsprof.logs.sources.source import Source, bytes_of, is_plain, sources_of
from dsprof.logs.workers import shared

#: Bytes that are worth a process of their own.
_SHARE: Final = 16 << 20

_Job = tuple[Source, Range | None, bool]  # the whole if no range is told; the last of a file

__all__ = ["Coverage", "Log", "Reader", "read"]


@dataclass(frozen=True)
class Coverage:
    """What was read and what was understood.

    Attributes:
        lines: lines of all sources.
        bytes: plain bytes of all sources.
        patterns: records per `dialect.pattern`.
        metric_lines: lines that look like metrics among those looked at.
        read_lines: those of them that a pattern read.
        shapes: (how often, shape, source, line, example) of lines that look like metrics
            and that nothing read, most frequent first.
        sampled: whether only a sample of the lines was looked at for `shapes`.
    """

    lines: int
    bytes: int
    patterns: dict[str, int]
    metric_lines: int
    read_lines: int
    shapes: tuple[tuple[int, str, str, int, str], ...]
    sampled: bool


@dataclass(frozen=True)
class Log:
    """What the sources said.

    Attributes:
        events: the table of `dsprof.events`, shape (rows, 20).
        meta: `sources`, `fingerprints` (how often each `file:line` of a logger header was
            seen), `counted_steps` (no line told step numbers), `grammar`, `faults` (source,
            last line that was read and why it was not read to its end, for each that was not),
            `jobs` (the sources of each job where they are of several: the events are those of
            the first alone), `jobs_differ` (what shows that), `clashes` (pairs of sources of
            the job that may tell the same steps of one rank),
            `strangers` (sources whose steps no other tells, see `dsprof.logs.placing.alike`),
            `doubled` (source and lines that said again what others did, and were left out),
            `wrapped` (source, columns it was wrapped at, rests joined, first line with one).
    """

    events: pa.Table
    coverage: Coverage
    meta: dict[str, Any] = field(default_factory=dict)


class Reader:
    """Reads one growing source: feed what came, ask for the table when wanted.

    Attributes:
        bytes: plain bytes read.
        fault: why the source was not read to its end.
        broken: one of its ranges could not be read.
    """

    def __init__(
        self,
        grammar: Grammar,
        source: Source,
        scanner: Scanner | None = None,
        read: int = 0,
        *,
        broken: bool = False,
    ) -> None:
        self.source = source
        self.bytes = read
        self.fault: DsprofError | None = None
        self.broken = broken
        self.grammar = grammar
        self.scanner = Scanner(grammar) if scanner is None else scanner
        self.unwrapped: Unwrapped | None = None
        self._containers = Containers()

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: what was found, not the means of finding."""
        kept = ("source", "bytes", "fault", "broken", "scanner", "unwrapped")
        return {name: getattr(self, name) for name in kept}

    def join(self, later: Reader) -> None:
        """Add what was found in the range that follows directly."""
        self.broken |= later.broken
        self.bytes += later.bytes
        self.scanner.join(later.scanner)

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        self.scanner.feed(self._containers.feed(data))
        self.unwrapped = self._containers.unwrapped

    def finish(self) -> None:
        """Nothing more will come: of a last line without a line break, what is complete counts."""
        for line in self._containers.unfinished():
            self.scanner.feed(line)
            self.scanner.finish(is_end=False)
        self.scanner.finish()
        self.unwrapped = self._containers.unwrapped

    def log(self) -> Log:
        """What was read so far."""
        held = self._containers.held
        return _log([self._with(held) if held else self], self.grammar)

    def _with(self, held: bytes) -> Reader:
        """Another one that has read what this one holds back until it knows what it is."""
        scanner = Scanner(self.grammar, first_line=self.scanner.lines, month=self.scanner.month)
        containers = Containers()
        containers.feed(held)
        scanner.feed(containers.finish())
        whole = Reader(self.grammar, self.source, scanner, self.bytes)
        whole.unwrapped = containers.unwrapped
        return whole


def read(
    paths: Sequence[str | Path],
    *,
    grammar: Grammar | None = None,
    processes: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Reads files, folders, globs, URLs or `-`, all as one run.

    Args:
        paths: where the logs are.
        grammar: dialects to read with; the built-in ones if None.
        processes: how many may share the work, this one among them.
        progress: called with the number of plain bytes just read.

    Raises:
        DsprofError: a path cannot be read, is no log, or one of which nothing true can
            be said as it is.
    """
    grammar = grammars.builtin() if grammar is None else grammar
    report = progress or (lambda _: None)
    sources = sources_of(paths)
    texts = [source for source in sources if not is_scalar_file(source.name)]
    with without_cycle_collection():
        readers = _read_all(texts, grammar, processes, report)
    faults = [reader.fault for reader in readers if reader.fault is not None]
    if faults and not any(reader.bytes for reader in readers):
        raise faults[0]
    scalar_files = [s.name for s in sources if is_scalar_file(s.name)]
    return _log(readers, grammar, scalar_files, threads=processes, last=True)


def _read_all(
    sources: Sequence[Source], grammar: Grammar, processes: int, progress: Callable[[int], None]
) -> list[Reader]:
    """A reader of each source that has read it; files are shared among processes."""
    files = [Path(source.name) for source in sources if Path(source.name).is_file()]
    sizes = {str(file): file.stat().st_size for file in files}
    processes = min(processes, sum(sizes.values()) // _SHARE)
    if processes < 2:
        return [_read_source(source, grammar, progress) for source in sources]
    jobs = [job for source in sources if source.name in sizes for job in _jobs_of(source)]
    done: dict[str, Reader] = {}
    for part in shared(jobs, partial(_read_job, grammar), processes):
        progress(part.bytes)
        if part.source.name in done:
            done[part.source.name].join(part)
        else:
            done[part.source.name] = part
    return [
        done[source.name]
        if source.name in done and not done[source.name].broken
        else _read_source(source, grammar, progress)
        for source in sources
    ]


def _jobs_of(source: Source) -> list[_Job]:
    """Ranges of a large plain file, another one as a whole."""
    parts = ranges_of(source.name) if is_plain(source.name) else []
    if len(parts) < 2:
        return [(source, None, True)]
    return [(source, part, part is parts[-1]) for part in parts]


def _read_job(grammar: Grammar, job: _Job) -> Reader:
    source, part, last = job
    with without_cycle_collection():
        if part is None:
            return _read_source(source, grammar, lambda _: None)
        try:
            scanner = scan_range(part, grammar, last=last)
        except OSError:  # one reader stops where the fault is, and says so
            return Reader(grammar, source, broken=True)
    return Reader(grammar, source, scanner, part.end - part.start)


def _read_source(source: Source, grammar: Grammar, progress: Callable[[int], None]) -> Reader:
    reader = Reader(grammar, source)
    try:
        for data in bytes_of(source.name):
            reader.feed(data)
            progress(len(data))
    except DsprofError as error:
        reader.fault = error
    reader.finish()
    return reader


def _log(
    readers: Sequence[Reader],
    grammar: Grammar,
    scalar_files: Sequence[str] = (),
    *,
    threads: int = 1,
    last: bool = False,
) -> Log:
    for reader in readers:
        reader.scanner.records.flush()
        reader.scanner.records.settle()
    sheets = [
        Sheet(s.name, s.rank, s.host, r.scanner.records, last=last, family=s.family, local=s.local)
        for r in readers
        for s in (r.source,)
    ]
    for error in (unreadable(sheet, grammar) for sheet in sheets if last):
        if error is not None:
            raise error
    made = events_table(sheets, grammar, threads)
    faults = _faults(readers)
    read = set(made.jobs[0])
    readers = [reader for reader in readers if reader.source.name in read]
    events, counted, strangers = with_steps_of_others(made.table, grammar, counted=made.counted)
    coverage = _coverage(readers, grammar)
    jobs, why = made.jobs, made.why
    if scalar_files:
        first = sum(s.records.count for s in made.sheets)
        scalars = monitors_of(scalar_files, events, grammar, first, counted=made.counted)
        events = pa.concat_tables([events, scalars.table]).unify_dictionaries()
        coverage = _with_scalars(coverage, scalars.files, scalars.table)
        jobs = (jobs[0] + scalars.files, *jobs[1:], *scalars.others)
        why, scalar_files = why or scalars.why, scalars.files
    fingerprints: Counter[str] = Counter()
    for reader in readers:
        for header, count in reader.scanner.headers.items():
            fingerprints[header.decode("ascii", "replace")] += count
    meta = {
        "sources": [*(r.source.name for r in readers), *scalar_files],
        "fingerprints": dict(sorted(fingerprints.items())),
        "counted_steps": counted,
        "grammar": grammar,
        "faults": faults,
        "jobs": jobs if len(jobs) > 1 else (),
        "jobs_differ": why,
        "clashes": made.clashes,
        "strangers": strangers,
        "doubled": tuple((s.name, s.repeated) for s in made.sheets if len(s.repeated)),
        "wrapped": tuple(
            (r.source.name, r.unwrapped.width, r.unwrapped.joined, r.unwrapped.first)
            for r in readers
            if r.unwrapped is not None
        ),
    }
    return Log(events, coverage, meta)


def _faults(readers: Sequence[Reader]) -> tuple[tuple[str, int, str], ...]:
    return tuple(
        (reader.source.name, reader.scanner.all_lines, reader.fault.what)
        for reader in readers
        if reader.fault is not None
    )


def _coverage(readers: Sequence[Reader], grammar: Grammar) -> Coverage:
    per_pattern: Counter[str] = Counter()
    shapes = []
    for reader in readers:
        for pattern, count in zip(
            grammar.patterns, reader.scanner.records.per_pattern, strict=True
        ):
            if count:
                per_pattern[pattern.id] += int(count)
        shapes += _shapes(reader.source.name, reader.scanner.unread)
    unread = [reader.scanner.unread for reader in readers]
    return Coverage(
        lines=sum(reader.scanner.all_lines for reader in readers),
        bytes=sum(reader.bytes for reader in readers),
        patterns=dict(per_pattern.most_common()),
        metric_lines=sum(u.metric_lines for u in unread),
        read_lines=sum(u.read_lines for u in unread),
        shapes=tuple(sorted(shapes, key=lambda shape: -shape[0])),
        sampled=any(u.sampled for u in unread),
    )


def _with_scalars(coverage: Coverage, names: Sequence[str], scalars: pa.Table) -> Coverage:
    """With the lines of the csv monitor's files, of which `scalars` was read."""
    texts = [Path(name).read_bytes() for name in names]
    values = sum(kind != Kind.CONFIG for kind in scalars["kind"].to_pylist())
    return replace(
        coverage,
        lines=coverage.lines + sum(text.count(b"\n") for text in texts),
        bytes=coverage.bytes + sum(map(len, texts)),
        metric_lines=coverage.metric_lines + values,
        read_lines=coverage.read_lines + values,
    )


def _shapes(source: str, unread: Unread) -> list[tuple[int, str, str, int, str]]:
    return [
        (count, shape, source, *unread.example[shape]) for shape, count in unread.shapes.items()
    ]
