"""Logs and recordings, or events, to a `Run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dsprof import grammar as dialects
from dsprof import units
from dsprof.errors import DsprofError
from dsprof.run.nothing import nothing_read
from dsprof.run.run import Run
from dsprof.run.table import frame_of

if TYPE_CHECKING:
    from dsprof.grammar import Grammar


def from_events(
    events: pd.DataFrame,
    *,
    coverage: Any = None,
    meta: Mapping[str, Any] | None = None,
    grammar: Grammar | None = None,
) -> Run:
    """A Run of hand-made or recorded events; columns that are not there are missing."""
    return _settled(Run(events, coverage=coverage, meta=meta, grammar=grammar))


def load(
    paths: str | Path | Iterable[str | Path],
    *,
    parsers: Iterable[str | Path] = (),
    processes: int | None = None,
    link: str | float | None = None,
    grammar: Grammar | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Read logs or recordings: a file, a folder, several, or "-" for standard input.

    Args:
        paths: what to read, all of it one run.
        parsers: folders of dialect files to read with, besides the built-in ones.
        processes: how many may share large or many files; None: as many as there are cores.
        link: speed of one node's network, "100Gb" or bytes per second.
        grammar: dialects to read with, instead of the built-in ones and `parsers`.
        progress: called with the number of plain bytes just read.

    Raises:
        DsprofError: there is no such file, nothing in it is understood, a dialect file or
            the link's speed cannot be meant.
        TypeError: `paths` are no paths.
    """
    from dsprof.run.inputs import events_of, names_of

    facts = {} if link is None else {"link_bytes_per_second": _speed(link)}
    grammar = grammar or dialects.load([Path(folder) for folder in parsers])
    names = names_of(paths)
    processes = processes or os.cpu_count() or 1
    read = events_of(names, grammar, processes, progress)
    if not read.events.num_rows:
        raise nothing_read(names, read.coverage, read.facts.get("faults", ()))
    return _settled(
        Run(
            frame_of(read.events),
            coverage=read.coverage,
            meta={**read.facts, **facts},
            grammar=grammar,
            bulk=read.bulk,
            whole=read.whole,
        )
    )


def _settled(run: Run) -> Run:
    """The same. What is read to tell of which launch its settings are, is then there: a view that
    asked for them first would make it twice."""
    _ = run.config
    return run


def _speed(link: str | float) -> float:
    speed = units.bandwidth(link) if isinstance(link, str) else link
    if speed is None or not speed > 0:
        raise DsprofError(
            f"{link!r} is not a link speed", "link", "write 100Gb, 25Gbps or 12.5GB/s"
        )
    return speed
