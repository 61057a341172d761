"""The text of a record's pairs: where it ends, and whether it tells anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import repeat
from operator import contains
from typing import Final

import numpy as np

from dsprof.grammar import Pairs, Pattern
from dsprof.logs.columns import literals
from dsprof.logs.columns.pairs import end_of_pairs
from dsprof.logs.prefixes import wrappers
from dsprof.logs.scanning.torn import whole_pairs

_LONGEST_RECORD: Final = 1 << 14
_COMMA_NUMBER: Final = re.compile(rb"[:=] ?[-+]?\d[\d.]{0,20},\d{1,9}(?: *\||\s*$)")
_NUMBER: Final = re.compile(
    rb"[:=] ?'?[-+]?(?:\d[\d.]{0,60}(?:[eE][-+]?\d{1,9})?|nan|inf)(?![\d,.])"
)


def body_of(pairs: Pairs, piece: bytes, start: int, high: int, *, alone: bool) -> tuple[bytes, int]:
    """The text of a record's pairs and where it ends; another record may follow on the line,
    unless it is alone there."""
    limit = min(high, start + _LONGEST_RECORD)
    if pairs.literals:
        stop = literals.closing(piece, start, limit)
        if stop < 0:  # the last one may go on
            return whole_pairs(piece[start:limit], pairs), limit
        return piece[start:stop], stop
    if pairs.end:
        stop = piece.find(pairs.end, start, limit)
        stop = stop if stop >= 0 else limit
        return piece[start:stop], stop
    if alone:
        return piece[start:high], high
    body = piece[start:limit]
    body = body[: wrappers.header_start(body, 0, len(body))]
    body = body[: end_of_pairs(body, pairs)]
    return body, start + len(body)


def closes(piece: bytes, start: int, high: int) -> bool:
    """Whether literals that begin at `start` end before `high`."""
    return literals.closing(piece, start, min(high, start + _LONGEST_RECORD)) >= 0


def bodies_of(
    pairs: Pairs, piece: bytes, starts: Sequence[int], highs: Sequence[int]
) -> list[bytes]:
    """The texts of the pairs of records that are alone on their lines."""
    bounds = zip(starts, highs, strict=True)
    if pairs.end:
        return [body_of(pairs, piece, start, high, alone=True)[0] for start, high in bounds]
    return [piece[start:high] for start, high in bounds]


def whole_body(body: bytes, pairs: Pairs, behind: bytes) -> bytes:
    """What is whole of pairs that may have lost their end."""
    is_whole = pairs.literals or (pairs.end and behind.startswith(pairs.end))
    return body if is_whole else whole_pairs(body, pairs)


def tells(body: bytes, pattern: Pattern) -> bool:
    """Whether a record's pairs make it one: a head may have been torn off, or be prose."""
    assert pattern.pairs is not None
    if pattern.pairs.assign not in body and _is_bare(pattern):
        return False
    return b"," not in body or not _has_foreign_numbers(body)


def tells_of(bodies: Sequence[bytes], pattern: Pattern) -> np.ndarray:
    """`tells` of many."""
    assert pattern.pairs is not None
    assign = pattern.pairs.assign
    if any(map(contains, bodies, repeat(b","))):
        text = b"\n".join(bodies)
        if text.count(b",") != text.count(b", "):
            return np.fromiter((tells(body, pattern) for body in bodies), bool, len(bodies))
    if not _is_bare(pattern):
        return np.ones(len(bodies), bool)
    return np.fromiter(map(contains, bodies, repeat(assign)), bool, len(bodies))


def _has_foreign_numbers(body: bytes) -> bool:
    """Whether pairs write their numbers another way, `12,3`: none of them would be read."""
    if body.count(b",") == body.count(b", "):  # none stands before a digit: much the quickest
        return False
    return _COMMA_NUMBER.search(body) is not None and _NUMBER.search(body) is None


def _is_bare(pattern: Pattern) -> bool:
    """Whether a record of the pattern says nothing without its pairs."""
    assert pattern.pairs is not None
    return not pattern.pairs.end and pattern.place in ("own", "timer")
