"""What a run is read from: logs, recordings, or both together."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dsprof.errors import DsprofError
from dsprof.logs import Coverage, read
from dsprof.logs.sources.source import sources_of
from dsprof.recording import is_recording, read_folder
from dsprof.recording.bulk import Bulk, read_bulk

if TYPE_CHECKING:
    from dsprof.grammar import Grammar


@dataclass(frozen=True)
class Read:
    """What the inputs of a run hold.

    Attributes:
        events: of recordings those that are told one by one.
        coverage: how well the logs among them were understood; None if there is none.
        facts: of all inputs.
        bulk: what recordings hold besides.
        whole: reads all events; None where `events` are all.
    """

    events: pa.Table
    coverage: Coverage | None
    facts: dict[str, Any]
    bulk: Bulk | None = None
    whole: Callable[[], pa.Table] | None = None


def names_of(paths: str | Path | Iterable[str | Path]) -> list[str]:
    """One path or several, as they are typed.

    Raises:
        DsprofError: there is none.
        TypeError: they are something else.
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    given = list(several) if isinstance(several, Iterable) else [several]
    for one in given:
        if not isinstance(one, str | Path):
            raise TypeError(f"paths must be a str, a Path, or several of them, not {paths!r}")
    if not given:
        raise DsprofError("no path is given", "", "name a log, a recording, or a folder of them")
    return [str(path) for path in given]


def events_of(
    names: Sequence[str],
    grammar: Grammar,
    processes: int,
    progress: Callable[[int], None] | None = None,
) -> Read:
    """All inputs, read.

    Raises:
        DsprofError: an input does not exist, cannot be read, or holds nothing.
    """
    recordings, logs = divided(names)
    log = None
    if logs or not recordings:
        log = read(logs, grammar=grammar, processes=processes, progress=progress)
    if log and not recordings:
        return Read(log.events, log.coverage, dict(log.meta))
    bulk = read_bulk(recordings)
    if log is None:
        return Read(bulk.told, None, bulk.facts, bulk, partial(read_folder, *recordings))
    launches = _launches(log.events, bulk.told)
    for process in bulk.processes:
        process.recording.launched(process.segment + launches[1])
    recorded = bulk.facts["recordings"]
    told = {
        "sources": [*log.meta["sources"], *bulk.facts["sources"]],
        "recordings": [{**one, "segment": one["segment"] + launches[1]} for one in recorded],
        "counted_steps": False,
    }
    return Read(
        _joined(log.events, bulk.told, launches),
        log.coverage,
        {**log.meta, **bulk.facts, **told},
        bulk,
        lambda: _joined(log.events, read_folder(*recordings), launches),
    )


def divided(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Recordings and logs; a folder that holds both is in both."""
    recordings, logs = [], []
    for name in names:
        there = [name] if Path(name).exists() else sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - as typed
        recorded = [path for path in there if is_recording(path)]
        recordings += recorded
        if not recorded:
            logs.append(name)
        else:
            logs += [path for path in there if path not in recorded or _holds_logs(path)]
    return recordings, logs


def _holds_logs(path: str) -> bool:
    try:
        return Path(path).is_dir() and bool(sources_of([path]))
    except DsprofError:
        return False


def _launches(logged: pa.Table, recorded: pa.Table) -> tuple[int, int]:
    """What is added to the numbers of logged and of recorded launches, for each counts its own:
    those that ran at the same time are the same; where no clock tells, the last ones are."""
    log, recording = _times(logged), _times(recorded)
    if not log or not recording:
        return 0, 0
    last = max(recording) - max(log)

    def met(more: int) -> tuple[int, int]:
        pairs = [(log[one], recording.get(one + more)) for one in log]
        return sum(_overlap(one, other) for one, other in pairs), -abs(more - last)

    more = max(range(-max(log), max(recording) + 1), key=met)
    return max(more, 0), max(-more, 0)


_Span = tuple[Any, Any]


def _times(table: pa.Table) -> dict[int, _Span]:
    """Launch → its first and last time stamp, None where it has none."""
    spans = table.group_by("segment").aggregate([("at", "min"), ("at", "max")])
    return {row["segment"]: (row["at_min"], row["at_max"]) for row in spans.to_pylist()}


def _overlap(one: _Span, other: _Span | None) -> bool:
    if other is None or None in one or None in other:
        return False
    return bool(one[0] <= other[1] and other[0] <= one[1])


def _joined(logged: pa.Table, recorded: pa.Table, launches: tuple[int, int]) -> pa.Table:
    """One table; records stay apart, and launches meet."""
    last = int(logged["record"].to_numpy().max(initial=-1))
    logged = _added(logged, "segment", launches[0])
    recorded = _added(_added(recorded, "segment", launches[1]), "record", last + 1)
    return pa.concat_tables([logged, recorded]).unify_dictionaries()


def _added(table: pa.Table, column: str, more: int) -> pa.Table:
    place = table.schema.get_field_index(column)
    field = table.schema.field(place)
    return table.set_column(place, field, pc.add(table[column], pa.scalar(more, field.type)))
