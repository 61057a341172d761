"""Logs that a terminal or a ticket system wrapped at a width, back to the lines that were printed.

Such a log shows it: no line is longer than the width, some are exactly as long, and what stands
behind those begins in the middle of a word, as no other line does. A log whose lines merely
are of one length, as those of a table, goes on behind them as it does elsewhere.

`fold -s` and mails wrap at blanks: a line that was cut ends with one, and the next word would have
made it longer than the width. Where that blank was taken away, many such ends and rests must tell.

A copy of a terminal's screen may have each line filled up with blanks: these are taken away first.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

#: Bytes of a source that tell: its verdict is the same however its bytes come.
HEAD: Final = 1 << 16

_NARROWEST, _WIDEST = 64, 512  # columns
_MANY: Final = 8  # different cuts, where no blank shows them
_FEWEST: Final = 3  # different cuts: text that people wrapped is repeated, too
_REPEATED: Final = 6  # the same few cuts, of which one begins as no line does
_SURE: Final = 2  # cuts through the key of a pair, whose value follows
_NEAR: Final = 4  # columns: lines that end by themselves end there as often
_LONGEST: Final = 1 << 14  # of a line that is made whole
_BEGINNING: Final = 12  # bytes that tell how a line begins
_SHORT: Final = 4  # bytes that tell nothing of it
_DIGITS: Final = re.compile(rb"\d+")
_STAMP: Final = re.compile(rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")  # with it a line begins
_CLOCK: Final = re.compile(rb"\[?\d\d:\d\d:\d\d[\s.,\]]")  # and with it, where others do
_VALUE: Final = re.compile(rb"[:=] [-+]?\d+(?:\.\d+)?(?:[\s,|]|$)")  # behind the end of its key
_REST_OF_A_KEY: Final = re.compile(rb"[\w/-]*: [-+]?\d[\d.]*(?: \||\s*$)")
_OPEN: Final = (b": ", b"= ")  # no line ends so: a value is to follow
_PADDING: Final = b"    "  # between the columns of a table
_FILLED: Final = b"  "  # up to the width, at the end of a line
_REST_OF_A_LETTER: Final = bytes(range(0x80, 0xC0))  # of UTF-8
#: The last byte in front of a cut and the first one behind it, inside a word or a pair.
_INSIDE: Final = re.compile(
    rb"\d[\d.%,e]|[.,:=(\[|]\S|[A-Za-z_-][a-z_]|[A-Z][A-Z]|\S[|,:;=.)\]}]|\S | \S"
)
#: Nobody begins a line with these.
_NO_BEGINNING: Final = re.compile(rb"[:;,)\]}]")

Cut = tuple[bytes, bytes]  #: a line that was cut, and its rest


@dataclass(frozen=True, slots=True)
class Wrap:
    """How a log was wrapped.

    Attributes:
        width: columns of its longest lines.
        beginnings: how lines begin there that go on with none.
        widest: columns that a line may have; more than the width where lines were cut at blanks.
        at_blanks: whether lines were cut at blanks.
        blank: the one that was taken away where a line was cut; where lines were cut at the width,
            only of those that it ended.
        is_filled: whether lines were filled up with blanks to the width.
    """

    width: int
    beginnings: frozenset[bytes]
    widest: int
    at_blanks: bool = False
    blank: bytes = b""
    is_filled: bool = False

    def may_go_on(self, line: bytes) -> bool:
        """Whether a line ends as those do that were cut."""
        if not self.at_blanks:
            return self._is_full(line) or (bool(self.blank) and _columns(line) == self.width - 1)
        return line.endswith(b" ") or self._is_long_word(line) or bool(line and self.blank)

    def goes_on(self, line: bytes, behind: bytes) -> bool:
        """Whether the line behind one that may go on is its rest."""
        if not self.at_blanks:
            return not self.begins_anew(behind)
        whole = line + self.between(line)
        fits = self.with_first_word(line, behind) <= self.width
        if fits or not behind or _STAMP.match(behind) or _ends_row(line, behind):
            return False
        return whole.endswith(_OPEN) or not self.begins_anew(behind)

    def with_first_word(self, line: bytes, behind: bytes) -> int:
        """Bytes of a line with the first word of the one behind it, and the blank behind that:
        it, too, must have room."""
        word = behind.find(b" ") + 1 or len(behind) + len(self.blank)
        return len(line) + len(self.between(line)) + word

    def between(self, line: bytes) -> bytes:
        """What stood between a line and its rest."""
        is_whole = self._is_long_word(line) if self.at_blanks else self._is_full(line)
        return b"" if is_whole else self.blank

    def begins_anew(self, line: bytes) -> bool:
        stamped = _STAMP.match(line) is not None or self._has_clock(line)
        return not line or stamped or _beginning(line) in self.beginnings

    def _has_clock(self, line: bytes) -> bool:
        """Whether a line begins with the time of day, as lines do there that go on with none."""
        found = _CLOCK.match(line)
        if found is None:
            return False
        clock = _DIGITS.sub(b"0", found[0])
        return any(one.startswith(clock) for one in self.beginnings)

    def _is_long_word(self, line: bytes) -> bool:
        """Whether a line was cut within a word, having no blank."""
        return len(line) >= self.width and b" " not in line

    def _is_full(self, line: bytes) -> bool:
        """Whether a line reaches the width, in columns or, as `fold -b` counts, in bytes."""
        return len(line) == self.width or _columns(line) == self.width


def wrap_of(head: bytes) -> Wrap | None:
    """How the log was wrapped whose first `HEAD` bytes these are; None if it was not."""
    lines = [line.removesuffix(b"\r") for line in head.split(b"\n")[:-1]]
    columns = [*map(_columns, lines)]
    width = max(columns, default=0)
    if not _NARROWEST <= width <= _WIDEST:
        return None
    if _are_filled(lines, columns):
        lines = [*map(_unfilled, lines)]
        wrap = _through_words(lines, [*map(_columns, lines)], width)
        return None if wrap is None else replace(wrap, is_filled=True)
    if any(line.endswith(b" ") for line in lines):
        at_blanks = _at_blanks(lines, Wrap(width, frozenset(), width, at_blanks=True))
    else:
        at_blanks = _at_blanks(lines, Wrap(width, frozenset(), width, at_blanks=True, blank=b" "))
    return at_blanks or _through_words(lines, columns, width)


def _are_filled(lines: Sequence[bytes], columns: Sequence[int]) -> bool:
    """Whether all lines with text are of one length, many of them by blanks alone."""
    told = [i for i, line in enumerate(lines) if line]
    filled = sum(lines[i].endswith(_FILLED) for i in told)
    return 2 * filled >= len(told) and len({columns[i] for i in told}) == 1 and filled >= _FEWEST


def _unfilled(line: bytes) -> bytes:
    """A line without what fills it up; a single blank may be the one that it was cut behind."""
    return line.rstrip(b" ") if line.endswith(_FILLED) else line


def _through_words(lines: Sequence[bytes], columns: Sequence[int], width: int) -> Wrap | None:
    full = [width in (length, len(line)) for length, line in zip(columns, lines, strict=True)]
    blank = b"" if any(line.endswith(b" ") for line in lines) else b" "
    may_go_on = Wrap(width, frozenset(), width, blank=blank).may_go_on
    as_many = sum(2 * columns.count(width - less) >= sum(full) for less in range(1, 1 + _NEAR))
    behind = [False, *full[:-1]]
    beginnings = _beginnings(lines, [False, *map(may_go_on, lines[:-1])])
    rests = [i for i, goes_on in enumerate(behind) if goes_on and not full[i]]
    rests = [i for i in rests if not _are_rows(lines[i - 1], lines[i])]
    cuts = [(lines[i - 1][-_BEGINNING:], lines[i]) for i in rests]
    keys = sum(_goes_through_key(lines[i - 1], lines[i]) for i in rests)
    wrap = Wrap(width, beginnings, width, blank=blank)
    return wrap if as_many <= 1 and (keys >= _SURE or _are_cuts(cuts, wrap)) else None


def _goes_through_key(line: bytes, rest: bytes) -> bool:
    """Whether the last of several pairs lost a part of its key, with which the rest begins."""
    *pairs, key = line.split(b" | ")
    cut = len(pairs) > 1 and b": " in pairs[-1] and bool(key) and b":" not in key
    return cut and _REST_OF_A_KEY.match(rest) is not None


def _at_blanks(lines: Sequence[bytes], bare: Wrap) -> Wrap | None:
    """Lines that end with a blank are often as long as they can be, and end and go on in several
    ways, or go on with the value of the key that they end with; hardly one of the width ends
    within a word: none, where all that were cut are that long."""
    pairs = [*itertools.pairwise(lines)]
    cut = [bare.may_go_on(line) and bare.goes_on(line, rest) for line, rest in pairs]
    wrap = replace(bare, beginnings=_beginnings(lines, [False, *cut]))
    cuts = [
        (line, rest)
        for (line, rest), is_cut in zip(pairs, cut, strict=True)
        if is_cut and (line + bare.between(line)).endswith(b" ") and not wrap.begins_anew(rest)
    ]
    if bare.blank:
        is_wrapped = _lost_their_blanks(cuts, bare.width)
    else:
        is_wrapped = _end_with_blanks(lines, cuts, bare.width)
    if not is_wrapped:
        return None
    return replace(wrap, widest=min(bare.with_first_word(*one) for one in cuts) - 1)


def _lost_their_blanks(cuts: Sequence[Cut], width: int) -> bool:
    """Whether these are cuts at blanks of which none is left.

    Where lines are cut at the width, one that lost a blank there is shorter by that alone.
    """
    shorter = [cut for cut in cuts if len(cut[0]) < width - 1]
    return min(_ways(cuts), 2 * _ways(shorter)) >= _MANY and 2 * _shorter(cuts, width) >= len(cuts)


def _end_with_blanks(lines: Sequence[bytes], cuts: Sequence[Cut], width: int) -> bool:
    """Whether these are cuts behind blanks, and not the lines of a program that ends some so."""
    long = sum(line.endswith(b" ") and 2 * len(line) > width for line in lines)
    through = sum(len(line) == width and b" " in line and line[-1:] != b" " for line in lines)
    values = sum(_VALUE.match(line[-2:] + rest) is not None for line, rest in cuts)
    if len(cuts) < max(_FEWEST, long / 4, 2 * through) or max(_ways(cuts), values) < _FEWEST:
        return False
    return not through or 4 * _shorter(cuts, width) >= len(cuts)


def _ways(cuts: Sequence[Cut]) -> int:
    """In how many ways lines that were cut end, and go on."""
    ends = {_DIGITS.sub(b"0", line[-_BEGINNING:]) for line, _ in cuts}
    return min(len(ends), len({_beginning(rest) for _, rest in cuts}))


def _shorter(cuts: Sequence[Cut], width: int) -> int:
    return sum(len(line) < width for line, _ in cuts)


class Unwrapped:
    """Joins the lines of a wrapped log, with as many empty lines behind them as were taken from
    it, so that line numbers stay those of the source.

    Attributes:
        width: columns of the log's longest lines.
        joined: how many lines went on with the one before them.
        first: number of the first line that had such a rest.
    """

    def __init__(self, wrap: Wrap) -> None:
        self.width, self.joined, self.first = wrap.width, 0, 0
        self._wrap: Wrap | None = wrap
        self._lines = 0
        self._parts: list[bytes] = []
        self._length = 0
        self._is_whole = False

    def line(self, line: bytes) -> bytes:
        """What is whole by now. A line that is longer shows that what follows was not wrapped."""
        if self._wrap is None:
            return line
        text = line.rstrip(b"\r\n")
        text = _unfilled(text) if self._wrap.is_filled else text
        told = b""
        self._lines += 1
        if self._parts and (
            self._length > _LONGEST or not self._wrap.goes_on(self._parts[-1], text)
        ):
            told = self._take()
        if _columns(text) > self._wrap.widest:
            told, self._wrap = told + self._take(), None
            return told + line
        if self._parts:
            self.joined += 1
            self.first = self.first or self._lines - 1
            self._parts[-1] += self._wrap.between(self._parts[-1])
        self._parts.append(text)
        self._length += len(text)
        self._is_whole = bool(self._wrap.between(text)) and line.endswith(b"\n")
        if self._wrap.may_go_on(text):
            return told
        return told + (self._take() if line.endswith(b"\n") else self._joined())

    def rest(self) -> bytes:
        """A last line that may go on; where a blank was to follow, it has its end."""
        return self._take() if self._is_whole else self._joined()

    def _joined(self) -> bytes:
        parts, self._parts, self._length = self._parts, [], 0
        return b"".join(parts)

    def _take(self) -> bytes:
        ends = b"\n" * len(self._parts)
        return self._joined() + ends


def _are_cuts(cuts: Sequence[Cut], wrap: Wrap) -> bool:
    """Whether these ends of lines and beginnings of those behind them belong together.

    Cuts at several places tell, or the same one through a number each time; a number alone may
    be a line of its own. Two places do where many were cut, and a rest begins as no line does.
    """
    different = {
        (_DIGITS.sub(b"0", end)[-4:], _beginning(begin)): (end, begin) for end, begin in cuts
    }
    alike = sum(wrap.begins_anew(begin) for _, begin in different.values())
    inside = sum(_is_inside(*cut) for cut in different.values())
    in_number = sum(
        end[-1:].isdigit() and begin[:1].isdigit() and not begin.isdigit() for end, begin in cuts
    )
    many = max(len(different), in_number) >= _FEWEST
    torn = any(_NO_BEGINNING.match(begin) for _, begin in different.values())
    many |= torn and len(different) > 1 and len(cuts) >= _REPEATED
    many &= any(not end.endswith(b" ") for end, _ in cuts)  # lines may all end with a blank
    return many and 3 * alike <= len(different) <= 2 * inside


def _is_inside(end: bytes, begin: bytes) -> bool:
    """Whether a cut went through a word or a pair, and not along a rule or a column's blanks."""
    is_filled = end[-2:-1] == end[-1:] and not end[-1:].isalnum()
    is_filled |= begin.startswith(b"  ")
    return not is_filled and _INSIDE.match(end[-1:] + begin[:1]) is not None


def _beginnings(lines: Sequence[bytes], behind: Sequence[bool]) -> frozenset[bytes]:
    """How lines begin that do not stand behind a cut."""
    return frozenset(
        _beginning(line)
        for line, goes_on in zip(lines, behind, strict=True)
        if len(line) >= _SHORT and not goes_on
    )


def _ends_row(line: bytes, behind: bytes) -> bool:
    """Whether a line is a whole row of a table: what is behind it is no column of one, or a row
    of the same columns."""
    if behind[:1] in b" |0123456789":
        return False
    is_filled = line.endswith(_PADDING) and not behind.endswith(b" ")
    return (is_filled and line.count(_PADDING) >= _FEWEST) or _are_rows(line, behind)


def _are_rows(line: bytes, behind: bytes) -> bool:
    """Whether the last columns of two lines begin at the same place, behind blanks."""
    column, other = (one.rstrip(b" ").rfind(_PADDING) for one in (line, behind))
    return line.count(_PADDING) >= _FEWEST and column == other


def _beginning(line: bytes) -> bytes:
    return _DIGITS.sub(b"0", line[: 2 * _BEGINNING])[:_BEGINNING]


def _columns(line: bytes) -> int:
    return len(line) if line.isascii() else len(line.translate(None, _REST_OF_A_LETTER))
