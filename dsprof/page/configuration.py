"""The configuration as its source writes it, each key with the line that sets it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from dsprof.events import COUNTED
from dsprof.page.model import Place

if TYPE_CHECKING:
    from dsprof.findings import Advice, Finding
    from dsprof.run import Run

SETTINGS: Final = 2000  #: keys shown
LONGEST: Final = 200  #: letters of a printed value: whole objects are printed, too
_KEY: Final = re.compile(r"[a-z][a-z0-9_.]*")  #: of a configuration, not a call or a command
_JOB: Final = "the job's JSON"
_READ: Final = frozenset({"dtype"})  #: its value is read out of a line, under another word for it
_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:\n]', re.DOTALL)


class Setting(NamedTuple):
    """One key of the configuration.

    Attributes:
        advised: what a finding wants it to be, else "".
        told: who writes the key: the job's own JSON, or the program that prints it.
        until: last line of the block of lines that the key stands in.
    """

    key: str
    value: str
    advised: str
    place: Place | None
    told: str = ""
    until: int = 0


def settings(run: Run) -> list[Setting]:
    """Keys as the source writes them, those that the advice names first.

    What only follows from other keys is none; what both the job's JSON and DeepSpeed's own
    list of it say stands here once, as the JSON has it.
    """
    advice = _advised(run.findings)
    rows = run.told[(run.told["kind"] == "config") & ~run.told["name"].isin(COUNTED)]
    rows = rows.drop_duplicates("name", keep="last")
    job = list(_of_job(rows, run.config.get("ds_config")))
    own = {setting.key for setting in job}
    printed = [s for s in _printed(rows) if s.key not in own]
    found = [
        s._replace(advised=advice[s.key].to if s.key in advice else "")
        for s in (job + printed)[:SETTINGS]
    ]
    named = {setting.key for setting in found}
    unset = [
        Setting(key, _unset(change), change.to, None)
        for key, change in advice.items()
        if key not in named and _KEY.fullmatch(key)
    ]
    return sorted(found + unset, key=lambda s: (not s.advised, s.told != _JOB, s.key))


def settled(found: list[Setting], lines: Mapping[str, Mapping[int, str]]) -> list[Setting]:
    """Keys of a block that other lines cut through, on the line that really writes them."""
    return [
        s._replace(place=_real(s, lines.get(s.place.source, {}))) if s.place and s.until else s
        for s in found
    ]


def _real(setting: Setting, lines: Mapping[int, str]) -> Place | None:
    assert setting.place is not None
    word = f'"{setting.key.rsplit(".", 1)[-1]}"'
    source, line = setting.place
    if word in lines.get(line, word):
        return setting.place
    above = (n for n, text in lines.items() if n < line and word in text)
    return Place(source, max(above, default=setting.until))


def _unset(change: Advice) -> str:
    """The value of a key that no line sets, as the finding knows it from what the run did."""
    return f"{change.now}; no line sets it" if change.now else "not set, as far as the source shows"


def _advised(findings: list[Finding]) -> dict[str, Advice]:
    return {a.setting: a for f in reversed(findings) for a in f.advice if a.setting}


def _printed(rows: pd.DataFrame) -> Iterator[Setting]:
    """Keys that a program prints one by one, under its own words for them."""
    columns = ("name", "raw", "value", "text", "pattern", "source", "line")
    for name, raw, value, text, pattern, source, line in zip(
        *(rows[column] for column in columns), strict=True
    ):
        said = f"{value:.15g}" if pd.notna(value) else text
        if name != "ds_config" and pd.notna(said):
            key = str(raw) if pd.notna(raw) and name not in _READ else str(name)
            teller = str(pattern).partition(".")[0] if pd.notna(pattern) else ""
            yield Setting(key, _short(str(said)), "", Place.of(str(source), line), teller)


def _short(value: str) -> str:
    """The value as far as a table has room; its line has all of it."""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"


def _of_job(rows: pd.DataFrame, config: Any) -> Iterator[Setting]:
    """Keys of the job's JSON; a block of lines ends on the line of its event."""
    block = rows[rows["name"] == "ds_config"]
    if block.empty or not isinstance(config, Mapping):
        return
    text = str(block["text"].iloc[-1])
    end = Place.of(str(block["source"].iloc[-1]), block["line"].iloc[-1])
    offsets, height = key_lines(text), text.count("\n")
    for key, value in _flat(config):
        place = end and Place(end.source, max(1, end.line - height + offsets.get(key, height)))
        yield Setting(key, value, "", place, _JOB, end.line if end else 0)


def key_lines(text: str) -> dict[str, int]:
    """On which line of a JSON text each dotted key stands, counted from 0."""
    found: dict[str, int] = {}
    path: list[str] = []
    line, word, at = 0, "", 0
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in "{[":
            path.append("")
        elif piece in "}]":
            path = path[:-1]
        elif piece == ":" and path:
            path[-1] = word
            found.setdefault(".".join(path), at)
        elif piece != "\n":
            word, at = piece[1:-1], line
        line += piece.count("\n")
    return found


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, default=str)
