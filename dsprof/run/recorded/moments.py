"""When the phases and calls of single steps were, as recordings know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsprof.events import Class, Kind
from dsprof.recording.bulk import FORGOTTEN, Process, seconds_of
from dsprof.recording.layout import ASYNC, ON_DEVICE, SUFFIX, THINNED, RowKind
from dsprof.recording.moments import whole_rows
from dsprof.recording.table import Names
from dsprof.run.steps.classes import P2P
from dsprof.run.table import STEP as KEY
from dsprof.run.table import Codes, positions, where, whole

COLUMNS: Final = (
    "segment", "engine", "step", "rank", "what", "path", "class", "begin", "seconds", "issued",
    "bytes", "count", "group", "gpu_seconds", "behind", "source", "line",
)  # fmt: skip
UNKNOWN: Final = -1  # moment, or rank
_ORDER: Final = ["segment", "engine", "step", "rank", "begin"]

STEP, PHASE, CALL = "step", "phase", "call"  #: values of `what`

Rows = npt.NDArray[Any]
Utc = Callable[[Rows], Rows]


def moments(
    processes: Iterable[Process],
    steps: pd.DataFrame,
    ahead: Mapping[str, float],
    *,
    outer: bool = False,
) -> pd.DataFrame:
    """`COLUMNS` of each phase and call of `steps`, and of each step as a whole, per rank in order
    of time. No row at all if some of them were deleted.

    Moments are nanoseconds since 1970 by the first host's clock; they and ranks are -1 if unknown.

    - `begin`: when the step or phase began, or the host began to wait for the call.
    - `issued`: when the call was issued.
    - `seconds`: of the step or phase, or those for which the call held up the host; NaN if unknown.
    - `class`: of the phase's own time.
    - `gpu_seconds`: what the phase took on the device; NaN if unknown.
    - `behind`: seconds by which the device came to the end of the phase after the host, at least;
      NaN if unknown.

    Of a process that computes on a GPU, steps, phases and calls are those of its compute stream:
    when the device came to them, and for how long.

    Args:
        processes: what was recorded.
        steps: `segment`, `engine` and `step` of those that are wanted.
        ahead: seconds by which the clocks of hosts are ahead of the first one's.
        outer: leave out what lies inside phases.
    """
    parts = []
    engines = steps[["segment", "engine"]].drop_duplicates().astype(int).itertuples(index=False)
    groups = [
        (segment, engine, steps[(steps["segment"] == segment) & (steps["engine"] == engine)])
        for segment, engine in engines
    ]
    for process in processes:
        utc = _clock(process, ahead)
        for segment, engine, wanted in groups:
            if segment != process.segment:
                continue
            part = _of_process(process, engine, whole(wanted["step"]), utc, outer=outer)
            if part is None:
                return pd.DataFrame(columns=list(COLUMNS))
            parts += [one.assign(segment=segment, engine=engine) for one in part]
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
    found = pd.concat(parts, ignore_index=True)[list(COLUMNS)]
    return found.sort_values(_ORDER, kind="stable", ignore_index=True)


def told_moments(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The same without what lies inside phases, of the events of recordings: by the clock of each
    host, to a microsecond, and as if each call was waited for as soon as it was issued. When calls
    were that share a row is unknown.
    """
    table = steps[[*KEY]].drop_duplicates().sort_values([*KEY])
    rows = where(events, positions(table, events, *KEY) >= 0)
    path = rows["raw"].astype("str").fillna("")
    outer = rows["source"].astype("str").str.endswith(SUFFIX) & ~path.str.contains("/")
    kind = rows["kind"].astype("str")
    what = {
        STEP: (kind == Kind.METRIC) & (rows["name"] == "step_seconds"),
        PHASE: (kind == Kind.PHASE) & rows["count"].notna(),  # not what is left of deleted ones
        CALL: kind == Kind.COMM,
    }
    rows = rows.assign(path=path, what="")
    for name, mine in what.items():
        rows.loc[mine & outer, "what"] = name
    rows = where(rows, rows["what"] != "")
    timed = rows["what"].eq(PHASE) & rows["value"].notna()
    on_device = timed.groupby([rows["segment"], rows["rank"]], dropna=False).transform("any")
    instead = rows["what"].eq(CALL) | (rows["what"].eq(PHASE) & on_device)
    taken = rows["seconds"].mask(instead, rows["value"]).to_numpy(float)
    begin = rows["at"].to_numpy("datetime64[ns]").astype(np.int64)
    ended = rows["what"].eq(STEP).to_numpy(bool)
    length = np.round(np.nan_to_num(taken) * 1e9).astype(np.int64) + 1_000  # the end was rounded
    begin -= np.where(ended, length, 0)  # not after its first phase
    together = rows["what"].eq(CALL) & rows["count"].gt(1).fillna(value=False)  # in a step, mostly
    begin[together.to_numpy(bool)] = UNKNOWN
    told = rows.assign(
        rank=rows["rank"].fillna(UNKNOWN).astype(np.int64),
        step=rows["step"].astype(np.int64),
        begin=begin,
        seconds=taken,
        path=rows["path"].mask(ended, ""),
    )
    call = rows["what"].eq(CALL)
    moves = rows["name"].isin(P2P).map({True: str(Class.WAIT), False: str(Class.COMMUNICATION)})
    class_ = rows["text"].astype("str").mask(ended, "").mask(call, moves)
    found = told.assign(**{"class": class_}).reindex(columns=list(COLUMNS))
    return found.sort_values(_ORDER, kind="stable", ignore_index=True)


def at_unknown_times(moments: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are phases, or calls that held up their rank, or may have, nobody knows when."""
    parts, seconds = moments["what"] != STEP, moments["seconds"]
    return parts & (seconds.isna() | (moments["begin"].eq(UNKNOWN) & seconds.gt(0)))


def ends(rows: pd.DataFrame) -> Rows:
    """When each of these rows of one rank ended, ns like `begin`.

    A call at the latest where the wait for the next one began: what it took to issue a call may
    count as held up by it, and lies before `begin`.
    """
    begin = rows["begin"].to_numpy(np.int64)
    found = begin + np.round(rows["seconds"].fillna(0.0).to_numpy(float) * 1e9).astype(np.int64)
    held = rows["what"].eq(CALL) & rows["seconds"].gt(0) & rows["begin"].ne(UNKNOWN)
    calls = np.flatnonzero(held.to_numpy())
    calls = calls[np.argsort(begin[calls], kind="stable")]
    found[calls[:-1]] = np.minimum(found[calls[:-1]], begin[calls[1:]])
    return found


def _clock(process: Process, ahead: Mapping[str, float]) -> Utc:
    """Converts a process's moments to those of the first host's clock; unknown if before 1970, as
    in damaged rows.
    """
    late = round(ahead.get(str(process.recording.header.get("host")), 0.0) * 1e9)
    return lambda perf: np.maximum(process.recording.clock.utc(perf) - late, UNKNOWN)


def _of_process(
    process: Process, engine: int, steps: Codes, utc: Utc, *, outer: bool
) -> list[pd.DataFrame] | None:
    names = process.recording.names
    inner = [number for number, path in names.path.items() if "/" in path] if outer else []

    def wanted(columns: Mapping[str, Rows]) -> Codes:
        kept = np.isin(columns["step"], steps) & (columns["engine"] == engine)
        if "name" in columns:
            kept &= (columns["name"] < FORGOTTEN) & ~np.isin(columns["name"], inner)
        return np.flatnonzero(kept)

    which = wanted(process.steps)
    whole_ones = _frame(process, process.steps, which, _steps(process.steps, which, utc), STEP)
    found = [whole_ones[whole_ones["seconds"].gt(0) & whole_ones["begin"].ne(UNKNOWN)]]
    for kind, columns, tell, what in (
        (RowKind.SPAN, process.spans, _phases, PHASE),
        (RowKind.COLLECTIVE, process.calls, _calls, CALL),
    ):
        which = wanted(columns)
        rows = whole_rows(process, kind, which)
        if rows is None:
            return None
        told = tell(rows, names, utc, on_device="gpu" in process.spans)
        found.append(_frame(process, columns, which, told, what))
    return found


def _frame(
    process: Process, columns: Mapping[str, Rows], which: Codes, told: dict[str, Any], what: str
) -> pd.DataFrame:
    """The rows with what they all have; what they have not is missing."""
    common: dict[str, Any] = {
        "step": columns["step"][which].astype(np.int64),
        "rank": UNKNOWN if process.rank is None else process.rank,
        "what": what,
        "source": [process.files[number] for number in columns["file"][which]],
        "line": columns["line"][which].astype(np.int64),
        "class": "",
        "path": "",
        "issued": UNKNOWN,
        "bytes": np.nan,
        "count": 1,
        "group": "",
        "gpu_seconds": np.nan,
        "behind": np.nan,
    }
    return pd.DataFrame(common | told)


def _steps(columns: Mapping[str, Rows], which: Codes, utc: Utc) -> dict[str, Any]:
    begin, seconds = columns["begin"][which], seconds_of(columns["duration"][which])
    return {"begin": utc(begin), "seconds": seconds}


def _phases(rows: Rows, names: Names, utc: Utc, *, on_device: bool) -> dict[str, Any]:
    gpu_seconds = seconds_of(rows["gpu"])
    begin, seconds = utc(rows["begin"]), seconds_of(rows["duration"])
    behind = np.full(len(seconds), np.nan)
    if on_device:
        known = rows["gpu_begin"] > 0
        later = np.where(known, rows["gpu_begin"], 0).astype(np.int64) - rows["begin"]
        behind = np.where(known, later * 1e-9 + gpu_seconds - seconds, np.nan)
        begin, seconds = np.where(known, utc(rows["gpu_begin"]), UNKNOWN), gpu_seconds
    return {
        "path": [names.path.get(int(number), "") for number in rows["name"]],
        "class": [str(names.class_.get(int(number), Class.OTHER)) for number in rows["name"]],
        "begin": begin,
        "seconds": seconds,
        "gpu_seconds": gpu_seconds,
        "behind": behind,
    }


def _calls(rows: Rows, names: Names, utc: Utc, *, on_device: bool) -> dict[str, Any]:
    unknown = rows["flags"] & (THINNED | ASYNC) == THINNED  # calls of a step that share a row
    issued = rows["begin"]
    if on_device:
        unknown |= rows["flags"] & ON_DEVICE == 0
        issued = rows["wait"]  # when a stream of its own came to it is unknown
    moves = [names.text.get(int(number)) in P2P for number in rows["name"]]
    return {
        "path": [names.path.get(int(number), "") for number in rows["name"]],
        "class": np.where(moves, str(Class.WAIT), str(Class.COMMUNICATION)),
        "begin": np.where(unknown, UNKNOWN, utc(rows["wait"])),
        "seconds": seconds_of(rows["blocked"]),
        "issued": np.where(unknown, UNKNOWN, utc(issued)),
        "bytes": rows["size"].astype(float),
        "count": rows["count"].astype(np.int64),
        "group": [names.text.get(int(number), "") for number in rows["group"]],
    }
