"""Through which line of a job an exception passed, and what the lines behind its first say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from dsprof.quotes import quoted
from dsprof.run.table import among, where

if TYPE_CHECKING:
    from dsprof.run import Run

_FRAME: Final = re.compile(
    r'File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,9}), in (?P<inside>.+)'
)
_BEHIND: Final = 6  #: lines of a message
_ROW: Final = 1  #: of a recording, where the place is a row of its own
_DETAIL: Final = 200  #: letters that a title has room for
_LONG: Final = 60  #: of the names of a file and a function
_INPUT: Final = re.compile(r" \[type=.*")  #: what pydantic adds of the value


def detail_of(run: Run, row: pd.Series[Any]) -> str:
    """What is wrong, of a message that names only what it was found in: `key: Input should be a
    valid integer`; "" of any other."""
    behind = _told(run, row, "exception_detail", _BEHIND)
    if behind.empty:
        return ""
    detail = behind.iloc[0]
    field = _told(run, detail, "exception_field", 0)["text"].tolist()
    said = [*field, _INPUT.sub("", str(detail["text"]))]
    return quoted(": ".join(map(str, said)), _DETAIL)


def said_of_place(run: Run, row: pd.Series[Any]) -> str:
    """A sentence behind a blank; "" where no line of the job is in a traceback of it."""
    frames = _told(run, row, "raised_at", _ROW)["text"].tolist()
    frame = _FRAME.match(str(frames[0])) if frames else None
    if frame is None:
        return ""
    file = quoted(re.split(r"[/\\]", frame["path"])[-1], _LONG)
    inside = frame["inside"].strip()
    place = f"line {frame['line']} of {file}"
    place += "" if inside == "<module>" else f", in {quoted(inside, _LONG)}"
    return f" The last line in its traceback that is of no installed package is {place}."


def _told(run: Run, row: pd.Series[Any], name: str, behind: int) -> pd.DataFrame:
    """What the same process says of that name on the line of a row, or so many lines behind it."""
    rows = run.told
    rows = where(rows, among(rows["name"], [name]))
    apart = rows["line"] - row["line"]
    same = rows["rank"].isna() if pd.isna(row["rank"]) else rows["rank"] == row["rank"]
    near = (rows["source"] == row["source"]) & apart.between(0, behind)
    return where(rows, (near & same).fillna(value=False))
