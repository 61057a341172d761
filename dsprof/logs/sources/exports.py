"""Logs inside documents: collectors' records, notebooks and web pages, back to printed lines.

A record is a JSON object that keeps a line under one key, and mostly its time and its host under
others: docker, fluentd, Loki, CloudWatch, Google Cloud, Kaggle and journald export such, a line
each, in a list, or laid out over several lines; or tables of comma-separated values. Loki itself
answers with pairs of time and line; asciinema records what a terminal printed, piece by piece;
Hugging Face's Trainer keeps what it logged in its state.
What was printed takes the place of what held it. Where a pager, syslog or a clipboard wrote control
characters out or lost them, colours are left out and carriage returns put back; Ray's mark behind
repeated lines is left out, too; signs that other copies change are put back (`pastes`). Line
numbers are those of the file where a line of it holds one that was printed, else those of what was
printed.
"""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from dsprof.logs.sources.pastes import pasted_reader

_TEXT: Final = ("log", "message", "MESSAGE", "msg", "line", "textPayload", "@message", "_raw")
_TIME: Final = ("time", "timestamp", "@timestamp", "ts", "asctime", "date", "__REALTIME_TIMESTAMP")
_HOST: Final = (
    ("kubernetes", "pod_name"),
    ("labels", "pod"),
    ("resource", "labels", "pod_name"),
    ("fields", "pod"),
    ("_HOSTNAME",),
)
#: docker's json-file driver and Kaggle keep what a process wrote: that may be a part of a line.
_DOCKER: Final = frozenset({"log", "stream", "time"})
_KAGGLE: Final = "stream_name"
#: What stands before a record: a list's comma, a launcher's label, fluentd's time and tag.
_BEFORE: Final = re.compile(
    rb"[ \t,\[]{0,64}(?P<label>[\w.-]{1,64}: )?"
    rb'(?:(?P<at>\d{4}-\d\d-\d\d[ T]\S{8,30}(?: [+-]\d{4})?)\s[\w./*-]{1,200}: )?(?=\{")'
)
_STAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|[+-]\d\d:?\d\d)?"
)
_UNITS: Final = (1, 10**3, 10**6, 10**9)  # of a second, in which times since 1970 are told
_OUR_DAYS: Final = (10**9, 10**10)  # seconds since then
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_MARK: Final = b"\xef\xbb\xbf"  # of UTF-8
#: No opening quote is escaped: else each of many in one that never ends would be tried for one.
_STRING: Final = rb'(?<!\\)"((?:[^"\\]|\\.)*+)"'
_ONE_STRING: Final = re.compile(
    rb'\s*(?:"[\w/]{1,40}": ?)?\[?\s*' + _STRING + rb"\s*\]?,?\s*", re.DOTALL
)
#: An event of asciinema's: when, what it is, its text. Its first line says the version.
_CAST: Final = re.compile(rb'\{[^\n]{0,200}?"version": ?[23]\b[^\n]*\n\[\d')
_OUTPUT: Final = re.compile(rb"\s*\[[\d.e+-]{1,32}, *\"o\", *%s\]\s*" % _STRING, re.DOTALL)
#: A line of Loki's: its time, its text.
_LOKI: Final = re.compile(rb'\[\s*"(\d{19})", ?%s\s*\]' % _STRING, re.DOTALL)
#: Where HTML ends a line, which may also end there.
_BREAK: Final = re.compile(rb"<br ?/?>([ \t\r]*\n)?", re.IGNORECASE)
_HISTORY: Final = re.compile(rb'"log_history": \[\s{1,80}\{[ \t\r]*\n')
#: The same written without line breaks, and an entry of it.
_STATE: Final = re.compile(rb'\{[^\n]*?"log_history": ?\[ ?\{"')
_ENTRY: Final = re.compile(rb"\{[^{}\n]*+\}")
#: What the Trainer prints first of a record; in its state, names are sorted.
_LOGGED_FIRST: Final = ("loss", "eval_loss", "train_runtime", "step")
_FEW: Final = 3
_JSON: Final = (b"{", b"[")
_TAG: Final = re.compile(rb"<[A-Za-z/!][^<>]{0,4000}+>")
#: Colours as `less`, syslog, Python and JSON write their first sign, or with a mark in its place.
_COLOUR: Final = rb"(?:ESC|#033|\\x1b|\\033|\\u001b|\xef\xbf\xbd)\[\d{0,3}(?:;\d{1,3}){0,4}m"
_LOST_COLOUR: Final = rb"(?<![\x1b\[])\[(?:0|1|\d\d)(?:;\d{1,3}){0,4}m"  # without it
_RETURN: Final = rb"#015|\^M(?![a-z])"
#: What Ray says behind a line that stands for those of other workers, too.
_REPEATED: Final = (
    rb" \[repeated \d{1,9}x across cluster\](?:\x1b\[0m)?"
    rb"(?: \(Ray deduplicates logs by default\.[^()\r\n]{1,400}\))?"
)
_WRITTEN: Final = re.compile(rb"%s|(?<![\x1b\[])\[0m|%s|%s" % (_COLOUR, _RETURN, _REPEATED))
_ADDED: Final = re.compile(rb"%s|%s|%s" % (_COLOUR, _LOST_COLOUR, _REPEATED))
_RETURNS: Final = re.compile(_RETURN)
#: The second line of a table in Markdown, which may have no bars at its edges.
_RULE: Final = re.compile(rb"[ \t]*\|?(?:[ \t]*:?-{2,}+:?[ \t]*\|)+(?:[ \t]*:?-{2,}+:?)?[ \t\r]*")
#: Empty cells before and behind what was printed.
_CELLS: Final = re.compile(
    rb"^(?:[ \t]{0,16}\|){1,8}[ \t]?|(?:[ \t]{0,16}\|){1,8}[ \t]*(?=\r?\n?$)"
)
_LONGEST: Final = 1 << 16  # of a record that is laid out over lines

#: What goes in front of a record's text, the stream it is of, the text, and whether its line ends.
Record = tuple[bytes, bytes, bytes, bool]


def document_kind(head: bytes) -> str:
    """What a source is that begins so: a key of `_DOCUMENTS`; "" if none of them."""
    start = head.removeprefix(_MARK).lstrip()
    return next((kind for kind, is_one in _DOCUMENTS.items() if is_one(start)), "")


def _is_page(head: bytes) -> bool:
    return head[:15].lower().startswith((b"<!doctype html", b"<html"))


def _is_markdown(head: bytes) -> bool:
    """Its second line rules off the first."""
    return bool(_RULE.fullmatch(head.split(b"\n", 2)[1] if head.count(b"\n") > 1 else b""))


def _is_notebook(head: bytes) -> bool:
    told = b'"cell_type"' in head or (b'"cells"' in head and b'"nbformat' in head)
    return told and head.startswith(_JSON)


def _is_history(head: bytes) -> bool:
    return head.startswith(b"{") and _HISTORY.search(head) is not None


def _is_state(head: bytes) -> bool:
    return _STATE.match(head) is not None


def _is_objects(head: bytes) -> bool:
    """Records are laid out over lines."""
    holds = any(b'"%s": "' % key.encode() in head for key in _TEXT)
    return holds and head.split(b"\n", 1)[0].strip() in _JSON


def _is_loki(head: bytes) -> bool:
    return head.startswith(_JSON) and _LOKI.search(head) is not None


def _is_broken(head: bytes) -> bool:
    """Whether lines end by a mark of HTML, as in a copy of a comment's source."""
    lines, breaks = head.count(b"\n"), _BREAK.findall(head)
    return sum(map(bool, breaks)) * 2 > max(lines, _FEW) or lines < _FEW < len(breaks)


def record_of(line: bytes) -> Record | None:
    """The record that a line holds; None if it is none."""
    before = _BEFORE.match(line)
    if before is None:
        return None
    entry = _json(line[before.end() :].rstrip(b" \t\r\n,]"))
    return _read(entry, before["label"] or b"", before["at"])


def _read(entry: Any, label: bytes = b"", before: bytes | None = None) -> Record | None:
    if not isinstance(entry, dict) or _has_measures(entry):
        return None
    keys = ("data",) if _KAGGLE in entry else _TEXT
    text = next((entry[key] for key in keys if isinstance(entry.get(key), str)), None)
    if text is None:
        return None
    is_part = _KAGGLE in entry or entry.keys() - {"attrs"} == _DOCKER
    stream = "stderr" if "stderr" in (entry.get("stream"), entry.get(_KAGGLE)) else "stdout"
    times = [entry[key] for key in _TIME if key in entry]
    times += [before.decode("ascii", "replace")] if before is not None else []
    at = next(filter(None, map(_stamp, times)), "")
    host = next(filter(None, (_name(entry, path) for path in _HOST)), "")
    head = f"[pod/{host}/-] " * bool(host) + f"{at} {stream} F " * bool(at)
    told = _bytes(text)
    whole = told.endswith(b"\n") or not is_part
    return label + head.encode(), label + stream.encode(), told.rstrip(b"\n"), whole


def _json(text: bytes) -> Any:
    """None if it is no JSON, or lies too deep in itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_measures(entry: dict[str, Any]) -> bool:
    """Whether numbers stand beside the text: then the line is the program's own."""
    return any(isinstance(value, float) and key not in _TIME for key, value in entry.items())


def _name(entry: Any, path: Sequence[str]) -> str:
    for key in path:
        entry = entry.get(key) if isinstance(entry, dict) else None
    return entry if isinstance(entry, str) and re.fullmatch(r"[\w.-]{1,253}", entry) else ""


def _stamp(value: object) -> str:
    """A time as containers write it; "" if it is none, or counts from the job's start."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, int | float):
        units = _UNITS if 0 < value < _OUR_DAYS[1] * _UNITS[-1] else ()
        told = [value / unit for unit in units if _OUR_DAYS[0] <= value / unit < _OUR_DAYS[1]]
        return f"{datetime.fromtimestamp(told[0], UTC):%Y-%m-%dT%H:%M:%S.%fZ}" if told else ""
    read = _STAMP.match(value) if isinstance(value, str) else None
    if read is None:
        return ""
    day, time, fraction, zone = read.groups()
    return f"{day}T{time}{'.' * bool(fraction)}{fraction or ''}{zone or 'Z'}"


class Objects:
    """Records that are laid out over several lines, each in braces that stand alone."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._indent = b""

    def line(self, line: bytes) -> bytes:
        text = line.strip(b" \t\r\n,")
        indent = line[: len(line) - len(line.lstrip(b" \t"))]
        if text == b"{":
            told = self.rest()
            self._held, self._indent = [line], indent
            return told
        if not self._held:
            return line
        self._held.append(line)
        if text == b"}" and indent == self._indent:
            return self._record()
        return self.rest() if len(self._held) > _LONGEST else b""

    def rest(self) -> bytes:
        """What began no record, as it stands."""
        held, self._held = self._held, []
        return b"".join(held)

    def _record(self) -> bytes:
        whole = self.rest()
        read = _read(_json(whole.strip(b" \t\r\n,")))
        return whole if read is None else lines_of(read[0], read[2])


class History(Objects):
    """What Hugging Face's Trainer logged, in its trainer_state.json: a line each, as it prints it.
    Empty lines take the place of the others, so that lines are numbered as they are there."""

    def _record(self) -> bytes:
        whole = self.rest()
        entry = _json(whole.strip(b" \t\r\n,"))
        return _logged(entry) + b"\n" * whole.count(b"\n") if isinstance(entry, dict) else whole


def state_line(line: bytes) -> bytes:
    """The same of a state that is written in one line; where that was cut, of what is whole."""
    state = _json(line)
    entries = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(entries, list):
        entries = [_json(text) for text in _ENTRY.findall(line)]
    return b"".join(_logged(entry) + b"\n" for entry in entries if isinstance(entry, dict)) or line


def _logged(entry: dict[str, Any]) -> bytes:
    """What the Trainer printed of an entry of its history."""
    entry = {key: told for key, told in entry.items() if not isinstance(told, dict | list)}
    told = {key: entry[key] for key in _LOGGED_FIRST if key in entry} | entry
    return str(told).encode("utf-8", "backslashreplace")


def lines_of(head: bytes, text: bytes) -> bytes:
    """A record's text, which may have several lines, each behind what goes in front."""
    return b"".join(head + line + b"\n" for line in text.split(b"\n"))


def table_reader(head: bytes) -> Callable[[bytes], bytes] | None:
    """Reads the lines of a table whose first line names a column of printed lines."""
    names = [name.lower() for name in _row(head.removeprefix(_MARK).split(b"\n", 1)[0])]
    texts = [names.index(key.lower()) for key in _TEXT if key.lower() in names]
    times = [names.index(key.lower()) for key in _TIME if key.lower() in names]
    if not texts or not times:
        return None

    def read(line: bytes) -> bytes:
        row = _row(line)
        if len(row) != len(names):
            return line
        told = _read({"message": row[texts[0]], "time": row[times[0]]})
        return line if told is None else lines_of(told[0], told[2])

    return read


def _row(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", "surrogateescape").rstrip("\r\n")]), [])
    except csv.Error:
        return []


def notebook_line(line: bytes) -> bytes:
    """What the strings of a line of a notebook print: one that is alone, or all with line ends."""
    alone = _ONE_STRING.fullmatch(line)
    strings = [alone[1]] if alone else [s for s in re.findall(_STRING, line) if b"\\n" in s]
    try:
        texts = [json.loads(b'"%s"' % string) for string in strings]
    except ValueError:
        return line
    if not texts:
        return line
    printed = _bytes("".join(texts))
    return printed if printed.endswith(b"\n") else printed + b"\n"


def written_line(line: bytes) -> bytes:
    """A line without colours, with carriage returns, that were written out, and without what Ray
    adds."""
    return _RETURNS.sub(b"\r", _ADDED.sub(b"", line))


def cast_line(line: bytes) -> bytes:
    """What an event of asciinema's recording printed, which may be a part of a line."""
    printed = _OUTPUT.fullmatch(line)
    text = _json(b'"%s"' % printed[1]) if printed else ""
    return _bytes(text.replace("\r\n", "\n")) if isinstance(text, str) else b""


def loki_line(line: bytes) -> bytes:
    """The lines that Loki lists in a line of its answer, the oldest first."""
    told = _LOKI.findall(line)
    if told and told[0][0] > told[-1][0]:  # as Loki answers where it is not asked for another order
        told.reverse()
    told.sort(key=lambda one: one[0])  # of several streams
    read = [_read({"time": int(at), "line": _json(b'"%s"' % text)}) for at, text in told]
    return b"".join(lines_of(one[0], one[2]) for one in read if one) if told else line


def broken_line(line: bytes) -> bytes:
    """The lines that a line of HTML shows, with what it has in angle brackets."""
    return _unescaped(_BREAK.sub(b"\n", line))


def page_line(line: bytes) -> bytes:
    """The text of a line of HTML."""
    return _unescaped(_TAG.sub(b"", _BREAK.sub(b"\n", line)))


def _unescaped(text: bytes) -> bytes:
    told = html.unescape(text.decode("utf-8", "surrogateescape"))
    return told.encode("utf-8", "surrogateescape")


def markdown_line(line: bytes) -> bytes:
    """A row of a table in Markdown without the empty cells at its edges."""
    return _CELLS.sub(b"", line)


#: Kinds of sources that are no lines as they were printed, and whether one that begins so is.
_DOCUMENTS: Final[dict[str, Callable[[bytes], object]]] = {
    "history": _is_history,
    "state": _is_state,
    "page": _is_page,
    "broken": _is_broken,
    "cast": _CAST.match,
    "table": table_reader,
    "markdown": _is_markdown,
    "notebook": _is_notebook,
    "objects": _is_objects,
    "loki": _is_loki,
    "written out": _WRITTEN.search,
    "pasted": pasted_reader,
}

#: Of kinds of sources whose beginning tells how a line is read.
MADE_READERS: Final = {"table": table_reader, "pasted": pasted_reader}

#: Of kinds of sources that are read a line at a time.
LINE_READERS: Final = {
    "state": state_line,
    "notebook": notebook_line,
    "page": page_line,
    "broken": broken_line,
    "cast": cast_line,
    "loki": loki_line,
    "written out": written_line,
    "markdown": markdown_line,
}


def _bytes(text: str) -> bytes:
    """JSON may hold halves of a letter, and a table bytes that are none."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
