"""A run's tables as files for other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from dsprof.errors import DsprofError
from dsprof.export.timeline import recorded
from dsprof.export.trace import trace
from dsprof.output import refused, spare
from dsprof.text.document import to_json

if TYPE_CHECKING:
    from dsprof.run import Run

__all__ = ["TABLES", "export", "trace"]

TABLES: Final = ("events", "steps", "phases", "comm", "memory", "gpu", "problems", "repairs")


def export(
    run: Run, path: str | Path, table: str = "events", steps: tuple[int, int] | None = None
) -> None:
    """Write one of `TABLES`, or the run as a trace; the ending of `path` says how.

    With `steps`, only the rows of the steps from the first to the last of the two.

    `.parquet`, `.csv`, `.json` (a list of objects) and `.jsonl` (one a line) hold the table as
    it is: seconds, bytes, empty or null for unknown. `.perfetto.json` is for ui.perfetto.dev: of
    recordings alone with each phase and call at its moment.

    Raises:
        DsprofError: the ending or the table is unknown, or the file cannot be written, or is what
            the run was read from.
    """
    name = str(path)
    write = next((write for ending, write in _WRITERS.items() if name.endswith(ending)), None)
    if write is None:
        endings = ", ".join(_WRITERS)
        raise DsprofError("has no ending that says what to write", name, f"one of {endings}")
    if table not in TABLES:
        raise DsprofError("no such table", table, f"one of {', '.join(TABLES)}")
    spare(path, run.inputs)
    try:
        if write is _perfetto:
            _perfetto(run, _within(run.steps, steps), Path(path))
        else:
            write(_within(getattr(run, table), steps, table), Path(path))
    except OSError as error:
        raise refused(error, name) from None


def _within(frame: pd.DataFrame, steps: tuple[int, int] | None, name: str = "") -> pd.DataFrame:
    """The rows of some steps."""
    if steps is None:
        return frame
    if "step" not in frame:
        raise DsprofError("has no steps to choose from", f"table {name}", "leave out --steps")
    return frame[frame["step"].between(*steps).fillna(value=False).to_numpy(bool)]


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _json(frame: pd.DataFrame, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for index, row in enumerate(_rows(frame)):
            file.write(f"{',' if index else '['}\n{row}")
        file.write("\n]\n" if len(frame) else "[]\n")


def _jsonl(frame: pd.DataFrame, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in _rows(frame))


def _rows(frame: pd.DataFrame) -> Iterator[str]:
    names = [str(name) for name in frame.columns]
    for row in frame.itertuples(index=False, name=None):
        yield json.dumps(to_json(dict(zip(names, row, strict=True))), allow_nan=False)


def _perfetto(run: Run, steps: pd.DataFrame, path: Path) -> None:
    events, note = trace(run, steps), _IN_A_ROW
    if run.is_recorded_alone:
        events = recorded(run, steps)
        note = _ON_DEVICE if run.config.get("phases_on") == "gpu" else _RECORDED
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"otherData": {json.dumps({"note": note})}, "traceEvents": [')
        for index, event in enumerate(events):
            file.write(f"{',' if index else ''}\n{json.dumps(event, allow_nan=False)}")
        file.write("\n]}\n")


_IN_A_ROW: Final = (
    "Steps end where the source says, or follow each other unless it says so of all. Where in a "
    "step a phase began is not shown: phases stand one after another, as long as they lasted."
)
_RECORDED: Final = (
    "Phases and calls stand where they were, by the clock of the first host. A call is shown for "
    "as long as it held its rank up; one that was issued earlier also from then on, as under way. "
    "Calls that share a row of the recording are left out."
)
_ON_DEVICE: Final = (
    "Steps, phases and calls stand where a GPU's compute stream came to them, a call for as long "
    "as the stream waited for it. Within a rank these times are exact; a rank as a whole may stand "
    "too early, by as much as its host was ahead of its GPU. Calls that share a row of the "
    "recording are left out."
)

#: Endings, the longest of those that end alike first.
_WRITERS: Final[Mapping[str, Callable[..., None]]] = {
    ".perfetto.json": _perfetto,
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".json": _json,
}
