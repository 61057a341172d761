"""What a run is read from: logs, recordings, or both together."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dsprof.errors import DsprofError
from dsprof.logs import Coverage, read
from dsprof.logs.source import sources_of
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
    sources = [*log.meta["sources"], *bulk.facts["sources"]]
    return Read(
        _joined(log.events, bulk.told),
        log.coverage,
        {**log.meta, **bulk.facts, "sources": sources, "counted_steps": False},
        bulk,
        lambda: _joined(log.events, read_folder(*recordings)),
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


def _joined(logged: pa.Table, recorded: pa.Table) -> pa.Table:
    """One table; records stay apart."""
    place = recorded.schema.get_field_index("record")
    last = int(logged["record"].to_numpy().max(initial=-1))
    numbers = recorded["record"].to_numpy() + np.int32(last + 1)
    recorded = recorded.set_column(place, recorded.schema.field(place), pa.array(numbers))
    return pa.concat_tables([logged, recorded]).unify_dictionaries()
