"""One large file read by several processes, each a range of its bytes.

A line belongs to the range in which it begins, so ranges may be cut anywhere. A process
leaves what it found in a file, and the ranges are joined in order; the result is that of
one process reading the whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from dsprof.grammar import Grammar
from dsprof.logs.bars import LOOK_BACK
from dsprof.logs.records import without_cycle_collection
from dsprof.logs.scan import Scanner

_SMALLEST: Final = 32 << 20  # a smaller range does not pay for its process
_PORTION: Final = 1 << 18
_HEAD: Final = 1 << 20  # a year, if there is one, is told by then
_FOLLOWED: Final = 4 << 20  # behind a range, for the sake of blocks that it opened


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes `start` to `end` of a file; the year is what the file's head told, 0 if nothing."""

    name: str
    start: int
    end: int
    year: int


def ranges_of(name: str, processes: int, grammar: Grammar) -> list[Range]:
    """Equal ranges, none too small; a single one if the file is not worth splitting."""
    size = Path(name).stat().st_size
    count = max(1, min(processes, size // _SMALLEST))
    if count == 1:
        return [Range(name, 0, size, 0)]
    with Path(name).open("rb") as file:
        head = Scanner(grammar)
        head.feed(file.read(_HEAD))
        head.finish()
    cuts = [size * i // count for i in range(count + 1)]
    year = head.records.senders.year
    return [Range(name, start, end, year if start else 0) for start, end in pairwise(cuts)]


def scan_ranges(
    ranges: list[Range], grammar: Grammar, progress: Callable[[int], None] | None = None
) -> Scanner:
    """Reads the ranges at once, one process each, and joins what they found."""
    with TemporaryDirectory(prefix="dsprof-") as folder:
        files = [str(Path(folder) / str(i)) for i in range(len(ranges))]
        with ProcessPoolExecutor(len(ranges), get_context("spawn")) as pool:
            work = [
                pool.submit(_scan_to_file, part, grammar, file, last=part is ranges[-1])
                for part, file in zip(ranges, files, strict=True)
            ]
            whole: Scanner | None = None
            for part, done, file in zip(ranges, work, files, strict=True):
                done.result()
                with Path(file).open("rb") as stream:
                    scanner: Scanner = pickle.load(stream)  # noqa: S301  # written by us just now
                if whole is None:
                    whole = scanner
                else:
                    whole.join(scanner)
                if progress is not None:
                    progress(part.end - part.start)
    assert whole is not None
    return whole


def _scan_to_file(part: Range, grammar: Grammar, file: str, *, last: bool) -> None:
    with without_cycle_collection():
        scanner = scan_range(part, grammar, last=last)
    with Path(file).open("wb") as stream:
        pickle.dump(scanner, stream, protocol=5)


def scan_range(part: Range, grammar: Grammar, *, last: bool) -> Scanner:
    """What one range holds, read to the end of its last line and of the blocks it opened."""
    scanner = Scanner(grammar, year=part.year)
    with Path(part.name).open("rb") as file:
        if part.start:
            file.seek(part.start - 1)
            for _ in _line_in_parts(file):  # the rest of a line that began before
                pass
            scanner.look_at(_before(file, file.tell()))
        position = file.tell()
        while position < part.end:
            data = file.read(min(_PORTION, part.end - position))
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
            _follow(scanner, file)
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
    while part := file.readline(_PORTION):
        yield part
        if part.endswith(b"\n"):
            return


def _follow(scanner: Scanner, file: BinaryIO) -> None:
    followed = 0
    while scanner.waiting and followed < _FOLLOWED:
        lines = file.readlines(1 << 16)
        if not lines:
            break
        data = b"".join(lines)
        followed += len(data)
        scanner.follow_blocks(data)
    scanner.records.flush()
