"""Large files in ranges of their bytes, for processes to share.

A line belongs to the range in which it begins, so ranges may be cut anywhere; joined in
order they give what one process finds that reads the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from dsprof.grammar import Grammar
from dsprof.logs.scanning.bars import LOOK_BACK
from dsprof.logs.scanning.scan import Scanner
from dsprof.logs.sources.lines import PORTION

_SIZE: Final = 8 << 20  # of a range: much more than its overhead, much less than a file
_MOST: Final = 256  # ranges of a file
_FOLLOWED: Final = 4 << 20  # behind a range, for the sake of blocks that it opened


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes `start` to `end` of a file."""

    name: str
    start: int
    end: int


def ranges_of(name: str) -> list[Range]:
    """Equal ranges; a single one if the file is not worth splitting."""
    size = Path(name).stat().st_size
    count = max(min(size // _SIZE, _MOST), 1)
    cuts = [size * i // count for i in range(count + 1)]
    return [Range(name, start, end) for start, end in pairwise(cuts)]


def scan_range(part: Range, grammar: Grammar, *, last: bool) -> Scanner:
    """What one range holds, read to the end of its last line and of the blocks it opened."""
    scanner = Scanner(grammar, month=None if part.start else 0)
    with Path(part.name).open("rb") as file:
        if part.start:
            file.seek(part.start - 1)
            for _ in _line_in_parts(file):  # the rest of a line that began before
                pass
            scanner.begins = False
            scanner.look_at(_before(file, file.tell()))
            scanner.unread.skip(part.start, part.start // PORTION)
        position = file.tell()
        while position < part.end:
            data = file.read(min(PORTION, part.end - position))
            if not data:
                break
            scanner.feed(data)
            position = file.tell()
        if not last:
            file.seek(position - 1)
            if file.read(1) != b"\n":
                for part_of_line in _line_in_parts(file):
                    scanner.feed(part_of_line)
            scanner.finish(is_end=False)
            scanner.follow(_lines_behind(file))
            return scanner
    scanner.finish()
    return scanner


def _before(file: BinaryIO, start: int) -> bytes:
    """Enough bytes in front of `start`, colours included; the file stands at `start` again."""
    begin = max(0, start - 2 * LOOK_BACK)
    file.seek(begin)
    return file.read(start - begin)


def _line_in_parts(file: BinaryIO) -> Iterator[bytes]:
    """One line, however long, in bounded memory."""
    while part := file.readline(PORTION):
        yield part
        if part.endswith(b"\n"):
            return


def _lines_behind(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines from where the file stands, as many as a block may have."""
    begin = file.tell()
    while file.tell() - begin < _FOLLOWED and (lines := file.readlines(1 << 16)):
        yield b"".join(lines)
