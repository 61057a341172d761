"""Launches of logs beside those of recordings: each counts its own, and they must meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof.live.log import added
from dsprof.live.processes import Process


class Beside:
    """Where one log's launches stand among the recorded ones.

    Its last launch, when its first rows are seen, is the last one that had begun to record when
    the log was last written. Later it may be one ahead of the recordings, once all those of
    the last launch are over: the launcher prints before the ranks record.
    """

    def __init__(self) -> None:
        self._more: int | None = None

    @property
    def more(self) -> int:
        """What is added to the log's own numbers."""
        return self._more or 0

    def placed(self, table: pa.Table, processes: Sequence[Process], written: float) -> pa.Table:
        """The log's rows in the launches of the recordings; as they are if there are none."""
        if not processes or not len(table):
            return table
        own = int(pc.max(table["segment"]).as_py())
        last = max(process.segment for process in processes)
        if self._more is None:
            first = min(process.segment for process in processes)
            begun = [p.segment for p in processes if p.begun <= written]
            self._more = max(begun, default=first - 1) - own
        over = all(p.state in {"ended", "died"} for p in processes if p.segment == last)
        self._more = min(self._more, last + over - own)
        return added(table, "segment", self._more)


def in_a_row(table: pa.Table, facts: Mapping[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    """Events, and what `Run.meta` is told, with launches numbered from 0: among those of a watch
    there is room for launches of a past that has not been read.
    """
    own, recordings = table["segment"].to_numpy(), facts["recordings"]
    there = np.unique([*own, *(one["segment"] for one in recordings)])
    place = table.schema.get_field_index("segment")
    field = table.schema.field(place)
    numbers = pa.array(np.searchsorted(there, own), field.type)
    told = [one | {"segment": int(np.searchsorted(there, one["segment"]))} for one in recordings]
    return table.set_column(place, field, numbers), {**facts, "recordings": told}
