"""Lines that follow an opening line and belong to it: tables, dumps, tracebacks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

from dsprof.grammar.model import Block
from dsprof.logs.prefixes import wrappers
from dsprof.logs.prefixes.senders import Sender
from dsprof.logs.scanning.records import Records, shape_of_record
from dsprof.logs.scanning.torn import whole_groups

#: DeepSpeed's encoder writes infinite numbers so: steps_per_print under accelerate and the Trainer.
_INFINITE: Final = re.compile(rb"(?m)(: -?)inf(?=,?\s*$)")
#: As PyTorch prints the errors of ranks: of a block whose lines are not so, none of its own.
_OF_ANOTHER: Final = re.compile(rb"\[rank\d{1,6}\]:")
_LONGEST_JSON: Final = 1 << 18
_LONGEST_LINE: Final = 1 << 14
_MOST_OPEN: Final = 32

Found = tuple[int, tuple[bytes | None, ...]]
#: Who printed the line that begins there, wrapped so, and its own text.
_Texts = dict[tuple[int, wrappers.Wrapping], tuple[int, bytes]]


@dataclass(slots=True)
class OpenBlock:
    """A block that is being read.

    `wrapping` is what the opening line had in front of its text, if anything: its lines have
    it too, or the outer part of it. `sender` is whose lines they are: several ranks print at
    once. `records` takes what they say.
    """

    pattern: int
    block: Block
    opened_at: int  # where in the piece its opening line ends; -1 once that lies behind
    wrapping: wrappers.Wrapping | None
    sender: Sender
    opening: bytes
    records: Records
    until: int = -1  # where in the piece another opening ended it
    seen: int = 0
    missed: int = 0
    done: bool = False
    reached: tuple[int, int] | None = None  # place and number of its last line so far
    beyond: bool = False  # lines that may be its own, and are of no shape of it, stand behind that
    kept: dict[str, bytes | None] = field(default_factory=dict)
    _json: list[bytes] | None = None
    _length: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        if self.block.json is not None and b"{" in self.opening:
            self._json = []
            self._collect(self.opening[self.opening.index(b"{") :])

    def read(self, text: bytes, *, is_open: bool = False) -> Found | None:
        """One line of the block: which of its shapes it has and what its groups are.

        Args:
            text: the line without what stood in front of it.
            is_open: its end is missing.
        """
        self.seen += 1
        if self.seen >= self.block.limit:
            self.done = True
        if self._json is not None:
            return self._collect(text)
        if self.block.end is not None and self.block.end.match(text):
            self.done = True
            return None
        beginning = text[:_LONGEST_LINE]
        for number, line in enumerate(self.block.lines):
            match = line.regex.match(beginning)
            if match is not None:
                self.missed = 0
                for name in line.keep:
                    self.kept[name] = match[name]
                self.done = self.done or line.last
                groups = match.groups()
                if is_open and match.end() == len(text):
                    groups = whole_groups(match, line.rows) or (None,) * len(groups)
                return (number, (*groups, *self._kept())) if line.rows else None
        self.miss()
        return None

    def cut_off(self) -> Found | None:
        """What is told of it if its source ends right behind its last line."""
        if self.beyond or self._json is not None:
            return None
        numbers = (number for number, line in enumerate(self.block.lines) if line.cut)
        return next(((number, self._kept()) for number in numbers), None)

    def _kept(self) -> tuple[bytes | None, ...]:
        names = dict.fromkeys(name for line in self.block.lines for name in line.keep)
        return tuple(self.kept.get(name) for name in names)

    def miss(self) -> None:
        """A line that fits nothing: other ranks print in between, but not for ever."""
        self.missed += 1
        if self.missed > self.block.gap:
            self.done = True

    def _collect(self, text: bytes) -> Found | None:
        assert self._json is not None
        self._json.append(text)
        self._length += len(text)
        self._depth += text.count(b"{") - text.count(b"}")
        if self._length > _LONGEST_JSON:
            self.done = True
        if self._depth > 0 or self.done:
            return None
        whole = b"\n".join(self._json)
        self._json = None
        self.missed = 0
        whole = _INFINITE.sub(rb"\1Infinity", whole[: whole.rfind(b"}") + 1])
        return (len(self.block.lines), (whole,)) if _is_json(whole) else None


class Blocks:
    """The open blocks of a source. A few can be open at once: several ranks print tables
    and tracebacks side by side."""

    def __init__(self) -> None:
        self._open: list[OpenBlock] = []  # in the order they were opened in
        self._rivals: list[OpenBlock] = []  # those of them that no other opening ended
        self._had: set[tuple[int, int]] = set()  # patterns of all so far, and their senders

    def __len__(self) -> int:
        return len(self._open)

    def of(self, records: Records) -> bool:
        """Whether some of them are to go to these records."""
        return any(block.records is records for block in self._open)

    def had(self, pattern: int, sender: Sender) -> bool:
        """Whether this sender opened such a block before."""
        return (pattern, sender[0]) in self._had

    def open(self, block: OpenBlock, low: int) -> None:
        """Whoever opens a block again, on the line at `low`, has ended the one before."""
        who = (block.pattern, block.sender[0])
        self._had.add(who)
        same = [b for b in self._rivals if (b.pattern, b.sender[0]) == who]
        for ended in same or self._rivals[:-_MOST_OPEN]:
            ended.until = low
        self._rivals = [b for b in self._rivals if b.until < 0]
        self._rivals.append(block)
        self._open.append(block)

    def close(self) -> None:
        """Nothing more will come: the source ends."""
        for block in self._open:
            if block.reached is not None and (found := block.cut_off()) is not None:
                _add(block, *block.reached, found)
        self._open, self._rivals = [], []

    def feed(
        self, piece: bytes, offset: int, before: int, taken: set[int], *, unended: bool = False
    ) -> None:
        """Gives open blocks the lines of a piece that stand behind their opening one.

        Args:
            offset: place of the piece in the source.
            before: lines that went before it.
            taken: where the lines begin that hold a record; those of blocks are added.
            unended: it is a last line without its end.
        """
        texts: _Texts = {}  # several blocks read the same line
        counted, first = 0, before + 1
        for block in self._open:
            low = block.opened_at + 1
            until = len(piece) if block.until < 0 else block.until
            if low >= until:
                continue  # the next opening stands on the same line, or on the one behind it
            first += piece.count(b"\n", counted, low)
            counted, number = low, first
            while low < until and not block.done:
                high = piece.find(b"\n", low)
                high = len(piece) if high < 0 else high
                missed = block.missed
                is_open = unended and high == len(piece)
                found = self._read_line(block, piece[low:high], low, texts, is_open=is_open)
                if block.missed <= missed:
                    taken.add(low)  # understood, whether or not it says anything
                    block.reached, block.beyond = (offset + low, number), False
                elif not piece[low:high].isspace() and not _OF_ANOTHER.match(piece, low):
                    block.beyond |= low < high
                if found is not None:
                    _add(block, offset + low, number, found)
                elif low in taken and block.missed > missed:
                    block.missed -= 1  # another pattern's line is no gap
                low, number = high + 1, number + 1
        self._open = [block for block in self._open if not block.done and block.until < 0]
        for block in self._open:
            block.opened_at = -1
        self._rivals = self._open.copy()

    def _read_line(
        self,
        block: OpenBlock,
        line: bytes,
        low: int,
        texts: _Texts,
        *,
        is_open: bool,
    ) -> Found | None:
        text = line.rstrip(b"\r")
        if block.wrapping is not None:
            senders = block.records.senders
            if (low, block.wrapping) not in texts:
                plan = block.wrapping.read(text)
                texts[low, block.wrapping] = senders.identify(text, plan), text[plan.end :]
            who, text = texts[low, block.wrapping]
            if not senders.may_be(who, block.sender[0]):
                block.miss()
                return None
        return block.read(text, is_open=is_open)


def _add(block: OpenBlock, place: int, number: int, found: Found) -> None:
    line, groups = found
    alike = block.records.new[shape_of_record(block.pattern, line)]
    alike.add(place, number, block.sender, groups, None)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
