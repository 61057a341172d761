"""Of which jobs growing logs are: one is watched, that which was written last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof.events import Kind
from dsprof.logs.columns.clocks import UNKNOWN
from dsprof.logs.placing.jobs import SETTINGS, Told, jobs_of
from dsprof.logs.placing.several import Extent
from dsprof.logs.sources.source import named

_NO_STEPS = np.zeros(0, np.int64)


class Jobs:
    """What logs tell of their jobs, and which were left as those of others.

    Attributes:
        left: names of the logs that are watched no more, by job.
        why: what shows that they are of others.
    """

    def __init__(self) -> None:
        self.left: list[tuple[str, ...]] = []
        self.why = ""
        self._settings: defaultdict[str, dict[str, frozenset[float]]] = defaultdict(dict)
        self._times: defaultdict[str, list[int]] = defaultdict(list)

    def __contains__(self, name: str) -> bool:
        """Whether a log was left."""
        return any(name in job for job in self.left)

    def facts(self, logs: Iterable[str]) -> dict[str, Any]:
        """What `Run.meta` is told of them; `logs` are watched."""
        return {"jobs": (tuple(logs), *self.left), "jobs_differ": self.why} if self.left else {}

    def hear(self, name: str, table: pa.Table) -> None:
        """Rows of a log."""
        config = pc.is_in(table["kind"].cast(pa.string()), pa.array([str(Kind.CONFIG)]))
        rows = table.filter(config).select(["name", "value"]).drop_null()
        for setting, value in zip(*rows.to_pydict().values(), strict=True):
            if setting in SETTINGS:
                known = self._settings[name].get(setting, frozenset())
                self._settings[name][setting] = known | {value}
        times = pc.min_max(table["at"].cast(pa.int64())).as_py()
        if times["min"] is not None:
            known_times = [*self._times[name], *times.values()]
            self._times[name] = [min(known_times), max(known_times)]

    def leave(self, logs: Iterable[str], written: Mapping[str, float]) -> list[str]:
        """Leave those of these logs that are not of the job that was written last."""
        names = list(logs)
        found = jobs_of([self._told(name) for name in names])
        if not found.why:
            return []
        jobs = [tuple(names[place] for place in job) for job in found.files]
        jobs.sort(key=lambda job: -max(written[name] for name in job))
        self.why = found.why
        self.left += jobs[1:]
        return [name for job in jobs[1:] for name in job]

    def _told(self, name: str) -> Told:
        begin, end = self._times[name] or (UNKNOWN, UNKNOWN)
        none = _NO_STEPS, _NO_STEPS
        extent = Extent(begin, end, *none, starts=False, who=frozenset(), by=frozenset())
        return Told(named(name).family, self._settings[name], extent, 0)
