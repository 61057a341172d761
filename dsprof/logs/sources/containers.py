"""Container logs, exports, numbered and wrapped listings, back to the lines the process wrote.

docker's json-file driver writes one JSON object a line and splits what the process
wrote at 16 KiB; containerd marks such parts with `P`. Both, and the records of collectors
(`exports`), are turned into `TIME STREAM F text` lines, which the wrappers read. The parts of a
split line become one line, followed by as many empty ones, so that line numbers stay those of the
file.

`grep -n ''` and editors write `N:` before line N, or draw a line behind the N. That looks like
the label that srun puts before the lines of task N, but tasks are few and repeat: lines that
count themselves from the first one on are numbered. So is an excerpt, where each of very many
goes on from the one before it. Where they write `LN:`, which might be a host, all lines must.

Of lines as they were printed more must be seen to tell whether they were wrapped (`hard_wraps`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from dsprof.logs.sources.encodings import Encoding, is_utf_16
from dsprof.logs.sources.exports import (
    LINE_READERS,
    MADE_READERS,
    History,
    Objects,
    Record,
    document_kind,
    lines_of,
    record_of,
)
from dsprof.logs.sources.hard_wraps import HEAD, Unwrapped, wrap_of

#: With a launcher's label before it, where it collects such files of several hosts.
_PARTIAL: Final = re.compile(
    rb" {0,16}([\w.-]{1,64}: )?(\d{4}-\d\d-\d\dT\S{8,40}) (stdout|stderr) ([FP]) "
)
_NUMBER: Final = re.compile(
    rb" {0,9}(?:(?P<lettered>L)(?=\d+:))?(?P<number>\d{1,9})(?::| {0,9}(?:\||%s))" % "│".encode()
)
_COUNTED: Final = 16  # lines that count themselves are no coincidence, in a longer source
_FEWEST: Final = 3  # in one that has no more
_LONG: Final = 4096  # bytes of a first line without an end that tell
_LONGEST: Final = 1 << 20
_LONGEST_DOCUMENT: Final = 1 << 26
_LONG_LINED: Final = ("notebook", "loki", "state")  # which may be one line
_UNDECIDED: Final = ("", "text")  # text may be wrapped


class Containers:
    """Turns portions of a container log into portions of plain lines; leaves others alone.

    What the source is, is decided by its first lines, and the same however they come.

    Attributes:
        held: what is held back until that is decided.
    """

    def __init__(self) -> None:
        self.held = b""
        self._encoding = Encoding()
        self._kind = ""
        self._number: re.Pattern[bytes] = _NUMBER  # of a line, to take off
        self._unwrapped: Unwrapped | None = None
        self._objects = Objects()
        self._reader: Callable[[bytes], bytes] | None = None  # of a line, where no parts are joined
        self._rest = b""
        self._parts: dict[bytes, list[bytes]] = {}
        self._owed = 0  # line ends owed for parts that were held back

    def feed(self, data: bytes) -> bytes:
        data = self._encoding.feed(data)
        if self._kind == "plain":
            return data
        if self._kind in _UNDECIDED:
            self.held += data
            self._decide()
            if self._kind in _UNDECIDED:
                return b""
            data, self.held = self.held, b""
            if self._kind == "plain":
                return data
        data = self._rest + data.replace(b"\0", b"")  # what a crash left unwritten
        cut = data.rfind(b"\n") + 1
        self._rest = data[cut:]
        if len(self._rest) > (_LONGEST_DOCUMENT if self._kind in _LONG_LINED else _LONGEST):
            cut, self._rest = len(data), b""
        return b"".join(map(self._line, _lines(data[:cut])))

    def finish(self) -> bytes:
        """The rest, as lines."""
        return b"\n".join(self.unfinished())

    def unfinished(self) -> list[bytes]:
        """Lines that had no end yet: the last one, and those of which parts never came."""
        if self._kind in _UNDECIDED:
            self.held += self._encoding.rest()
            self._decide(is_whole=True)
            self._rest, self.held = self.held, b""
        rest, self._rest = self._rest, b""
        if self._kind != "plain":
            rest = b"".join(map(self._line, _lines(rest.replace(b"\0", b""))))
        if self._unwrapped is not None:
            rest += self._unwrapped.rest()
        rest += self._objects.rest()
        parts, self._parts = self._parts, {}
        return [line for line in (rest, *(b"".join(held) for held in parts.values())) if line]

    @property
    def unwrapped(self) -> Unwrapped | None:
        """Of a log that was wrapped at a width: how."""
        return self._unwrapped

    def _decide(self, *, is_whole: bool = False) -> None:
        is_whole = is_whole or len(self.held) >= HEAD
        head = self.held[:HEAD].replace(b"\0", b"")
        if not self._kind:
            self._kind = _kind(head, is_whole=is_whole)
        if self._kind == "text" and is_whole:
            self._kind = document_kind(head) or "text"
        if self._kind == "numbered":  # the blank behind all numbers is none of the text's
            texts = (_NUMBER.sub(b"", line, count=1) for line in _lines(head)[:_FEWEST])
            blank = b"" if any(text[:1] not in b" \n" for text in texts) else b" ?"
            self._number = re.compile(_NUMBER.pattern + blank)
        elif self._kind == "text" and is_whole:
            wrap = wrap_of(head)
            self._kind = "plain" if wrap is None else "wrapped"
            self._unwrapped = None if wrap is None else Unwrapped(wrap)
            self._reader = None if self._unwrapped is None else self._unwrapped.line
        elif self._kind in MADE_READERS:
            self._reader = MADE_READERS[self._kind](head)
        elif self._kind in ("objects", "history"):
            self._objects = History() if self._kind == "history" else self._objects
            self._reader = self._objects.line
        else:
            self._reader = LINE_READERS.get(self._kind)

    def _line(self, line: bytes) -> bytes:
        if self._reader is not None:
            return self._reader(line)
        if self._kind == "numbered":
            number = self._number.match(line)
            return line[number.end() :] if number else line
        read = record_of(line) if self._kind == "records" else _cri_line(line)
        if read is None:
            return line
        head, stream, text, whole = read
        held = self._parts.setdefault(stream, [])
        if not whole and sum(map(len, held)) < _LONGEST:
            held.append(text if held else head + text)
            self._owed += 1
            return b""
        start = b"".join(held) or head
        held.clear()
        owed, self._owed = self._owed, 0
        return lines_of(start, text) + b"\n" * owed


def is_plain_text(head: bytes) -> bool:
    """Whether a source that begins so holds the process's own lines; `HEAD` bytes tell."""
    encoded = is_utf_16(head)
    head = head.replace(b"\0", b"")
    if encoded or _kind(head, is_whole=True) != "text" or document_kind(head):
        return False
    return wrap_of(head) is None


def _lines(data: bytes) -> list[bytes]:
    r"""A `\r` ends no line: bars overwrite themselves."""
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + [last] * bool(last)


def _kind(head: bytes, *, is_whole: bool) -> str:
    """What the source is that begins so; "" if that is too little to tell."""
    numbers = [_NUMBER.match(line) for line in head.split(b"\n", _COUNTED)[:-1]]
    if not (numbers or is_whole or len(head) >= _LONG):
        return ""
    numbered = _are_numbered(head, numbers, is_whole=is_whole)
    if numbered is not False:
        return "numbered" if numbered else ""
    first = head[: head.find(b"\n") + 1 or len(head)]
    if record_of(first) is not None:
        return "records"
    return "cri" if _PARTIAL.match(first) else "text"


def _are_numbered(
    head: bytes, numbers: Sequence[re.Match[bytes] | None], *, is_whole: bool
) -> bool | None:
    """Whether lines count themselves that begin with these numbers; None if too few tell."""
    is_lettered = bool(numbers and numbers[0] and numbers[0]["lettered"])
    if numbers and not is_lettered and _go_on(numbers, 1):
        return len(numbers) >= _FEWEST if is_whole or len(numbers) == _COUNTED else None
    if not (is_lettered or len(numbers) == _COUNTED) or not _go_on(numbers):
        return False
    every = [_NUMBER.match(line) for line in head.split(b"\n")[:-1]]
    return len(every) >= _FEWEST and _go_on(every) if is_whole else None


def _go_on(numbers: Sequence[re.Match[bytes] | None], first: int = 0) -> bool:
    """Each is one more than the one before; tasks would begin with 0."""
    told = [int(number["number"]) for number in numbers if number]
    begin = first or next(iter(told), 0) or 1
    return len(told) == len(numbers) and told == [*range(begin, begin + len(told))]


def _cri_line(line: bytes) -> Record | None:
    match = _PARTIAL.match(line)
    if match is None:
        return None
    label, time, stream, part = match.groups(b"")
    head = b"%s%s %s F " % (label, time, stream)
    return head, label + stream, line[match.end() :].rstrip(b"\r\n"), part == b"F"
