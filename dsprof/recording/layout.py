"""The bytes of a recording: header, rows and file names, as documented in docs/recording.md.

Every row is 64 bytes at a multiple of 64, so it never spans two pages or sectors. Files only grow,
and whatever truncates one cuts at most its last row; that is why rows have no checksum. A row of
zeros (a disk that lost power) is not a row: kinds begin at 1.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.events import CLASSES

MAGIC: Final = b"\x89DSPROF\n"  # no text file begins like this, and it shows newline translation
VERSION: Final = 1
ROW: Final = 64
PAGE: Final = 4096  # the header fills whole pages

#: magic, version, bytes of a row, where rows begin, bytes of JSON.
HEAD: Final = struct.Struct("<8sHHII")
CELL: Final = 32  # offset of the in-flight cell: three 8-byte words
CELL_SIZE: Final = 24
JSON: Final = 64  # offset of the JSON


class RowKind(IntEnum):
    TEXT = 1  # a piece of a name
    SPAN = 2
    COLLECTIVE = 3
    STEP = 4
    METRIC = 5
    MEMORY = 6
    GPU = 7
    PROBLEM = 8
    CONFIG = 9
    CLOCK = 10  # both clocks, read at the same time
    END = 11  # the writer was closed; nothing follows
    KEPT = 12  # in a `kept` file: the rows before it are those of one part


class Unit(IntEnum):
    """The column of the events table that a value goes into."""

    VALUE = 0
    SECONDS = 1
    BYTES = 2
    COUNT = 3


#: A stack is told as one name: its calls, the innermost first.
BETWEEN_CALLS: Final = " < "
CALLS: Final = 8  # at most

#: The name of METRIC rows that tell where training stands still: no sign that it goes on.
STANDING: Final = "standing"


def until_next_stand(lasted: float) -> int:
    """From a row of where training has stood for so long until the next one; both in ns. Where none
    comes, it may stand elsewhere by then."""
    return int(min(max(5e9, lasted / 5), 60e9))


#: Flags of a collective.
ASYNC: Final = 1  # issued first and waited for later
THINNED: Final = 2  # sums the calls of one kind in a step
ON_DEVICE: Final = 4  # `wait` is when the compute stream began to wait

UNKNOWN: Final = (math.nan,) * len(CLASSES)  # seconds per class if they are unknown

# Common fields are at the same offset in all rows: kind 0, flags or unit 1, engine 2, name 4, step
# 8, time 16. Times are nanoseconds of `perf_counter_ns`.
SPAN: Final = struct.Struct("<BxBxIiiqqqI4xq8x")
COLLECTIVE: Final = struct.Struct("<BBBxIiIqqqqQIHh")
STEP: Final = struct.Struct("<BxB5xiIqq8f")
VALUE: Final = struct.Struct("<BBBxIiIqd32x")  # METRIC, MEMORY, GPU, PROBLEM, CONFIG
TEXT: Final = struct.Struct("<BBBxIIHH48s")
STAND: Final = struct.Struct("<BBBxIiIqd3QB7x")  # such a METRIC row with a copy of the cell
CLOCK: Final = struct.Struct("<B15xqqq24x")
MARK: Final = struct.Struct("<B15xq40x")  # END: time; KEPT: number of the part

_VALUE: Final = ("kind", "unit", "engine", "name", "step", "text", "at", "value")

#: The fields of each kind of row, in order.
ROWS: Final[dict[RowKind, tuple[struct.Struct, tuple[str, ...]]]] = {
    RowKind.TEXT: (TEXT, ("kind", "used", "class", "id", "parent", "piece", "pieces", "bytes")),
    RowKind.SPAN: (
        SPAN,
        ("kind", "engine", "name", "step", "micro", "begin", "duration", "gpu", "thread",
         "gpu_begin"),
    ),
    RowKind.COLLECTIVE: (
        COLLECTIVE,
        ("kind", "flags", "engine", "name", "step", "seq", "begin", "wait", "blocked", "duration",
         "size", "group", "count", "micro"),
    ),
    RowKind.STEP: (
        STEP, ("kind", "engine", "step", "micros", "begin", "duration", *CLASSES)
    ),
    RowKind.METRIC: (VALUE, _VALUE),
    RowKind.MEMORY: (VALUE, _VALUE),
    RowKind.GPU: (VALUE, _VALUE),
    RowKind.PROBLEM: (VALUE, _VALUE),
    RowKind.CONFIG: (VALUE, _VALUE),
    RowKind.CLOCK: (CLOCK, ("kind", "perf", "wall", "error")),
    RowKind.END: (MARK, ("kind", "number")),
    RowKind.KEPT: (MARK, ("kind", "number")),
}  # fmt: skip

PIECE: Final = 48  # bytes of text in one row
NAME_BITS: Final = 20  # of the in-flight cell's first word; above them is the sequence number

# The third word of the cell is the outermost phase: its name, whether it is over, and in the bits
# above, in units of 2 ms, since when. One word, because a kill may come between two stores.
PHASE: Final = 2  # its place in the cell
OVER: Final = 1 << NAME_BITS
SINCE: Final = -(OVER << 1)  # mask for ns

#: ns; no clock shows that, so what says so is damaged. The sum of two still fits into 64 bits.
LATE: Final = 1 << 62

SUFFIX: Final = ".dsprof"
_FILE: Final = re.compile(r"(?P<stem>rank-\d+\.\d+(?:-\d+)?)(?:\.(?P<part>\d+|kept))?\.dsprof")


def file_name(stem: str, part: int | str) -> str:
    """`rank-00003.4242.dsprof`, then `.1.dsprof`, `.2.dsprof`; `part` may be "kept"."""
    return f"{stem}{'' if part == 0 else f'.{part}'}{SUFFIX}"


def stem_of(name: str) -> str | None:
    """The part of the name that all files of a process share; None for a foreign name."""
    match = _FILE.fullmatch(name)
    return match["stem"] if match else None


def part_of(name: str) -> int:
    """The number of the part; -1 for a `kept` file and for foreign names."""
    match = _FILE.fullmatch(name)
    if match is None or match["part"] == "kept":
        return -1
    return int(match["part"] or 0)


def pack_header(meta: dict[str, Any]) -> bytes:
    """A header with an empty in-flight cell, padded with zeros to whole pages."""
    text = json.dumps(meta, separators=(",", ":"), default=str).encode()
    rows = -(-(JSON + len(text)) // PAGE) * PAGE
    return (HEAD.pack(MAGIC, VERSION, ROW, rows, len(text)).ljust(JSON, b"\0") + text).ljust(
        rows, b"\0"
    )


class Header(NamedTuple):
    """`rows` is the offset of the first row in bytes, `meta` the JSON."""

    rows: int
    meta: dict[str, Any]


def header_size(head: bytes, where: str) -> int:
    """Bytes of the header that begins with `head` (at least `JSON` bytes).

    Raises:
        DsprofError: it is truncated, foreign, damaged, or of a newer format.
    """
    if not head.startswith(MAGIC[: len(head)]) or not head:
        raise DsprofError("is no dsprof recording", where, "recordings end in .dsprof")
    if len(head) < JSON:
        raise DsprofError("is cut inside its header: nothing was recorded", where)
    _, version, row, rows, _ = HEAD.unpack_from(head)
    if version > VERSION:
        raise DsprofError(
            f"was written by a newer dsprof (format {version}; this one reads up to {VERSION})",
            where,
            "update dsprof where you read it",
        )
    if row != ROW or rows < PAGE or rows % PAGE:
        raise DsprofError("has a damaged header", where)
    return int(rows)


def _whole(digits: str) -> float:
    """A JSON integer, as a float if it does not fit into 64 bits."""
    number = float(digits)
    return int(digits) if abs(number) < 2.0**63 else number


def rank_of(meta: Mapping[str, Any]) -> int | None:
    """The rank in a header; None if it has none, or not a valid one."""
    rank = meta.get("rank")
    return rank if isinstance(rank, int) and 0 <= rank < 1 << 31 else None


def parse_header(data: bytes, where: str) -> Header:
    """The header at the beginning of `data`.

    Raises:
        DsprofError: it is truncated, foreign, damaged, or of a newer format.
    """
    rows = header_size(data[:JSON], where)
    size = HEAD.unpack_from(data)[4]
    if len(data) < rows:
        raise DsprofError("is cut inside its header: nothing was recorded", where)
    try:
        meta = json.loads(data[JSON : JSON + size], parse_int=_whole)
        clean = json.dumps(meta, ensure_ascii=False).encode("utf-8", "replace")
        meta = json.loads(clean)  # replaces lone surrogates, which no table can hold
    except (ValueError, RecursionError):
        meta = None
    if not isinstance(meta, dict) or JSON + size > rows:
        raise DsprofError("has a damaged header", where)
    return Header(rows, meta)
