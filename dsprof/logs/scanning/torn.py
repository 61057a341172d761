"""What a record proves that lost its end: the job was killed, or another process wrote into it.

A number that nothing follows may be the beginning of a longer one, so it is left out
unless its line shows that it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from dsprof.events import Kind
from dsprof.grammar import Pairs, Row
from dsprof.logs.columns.measures import Groups

#: `text` of rows whose record lost its end: what else it held is unknown.
CUT_SHORT: Final = "cut short"

_CLOSED: Final = b")]}'\""
_DECIMALS: Final = re.compile(rb"\s*[-+]?\d{1,60}\.(\d{1,60})")


def whole_groups(match: re.Match[bytes], rows: Sequence[Row]) -> Groups | None:
    """Groups of a match at the very end of the text, without those that may go on.

    None if the step's number may: the record then belongs nowhere. A message is kept: it
    tells of its problem as far as it goes.
    """
    groups = list(match.groups())
    for name, number in match.re.groupindex.items():
        text = match[number]
        if not text or match.end(number) < match.end() or text[-1] in _CLOSED:
            continue
        if name == "step":
            return None
        if not _only_said(name, rows):
            groups[number - 1] = None
    return tuple(groups)


def may_lack_timers(
    torn: np.ndarray, signature: np.ndarray, sets: Sequence[frozenset[str]]
) -> np.ndarray:
    """Which of the torn records are not known to hold all that they were printed with.

    One that holds the timers of another line, and no line holds more, is whole.

    Args:
        torn: mask over the records of a source.
        signature: their numbers in `sets`, -1 for records without timers.
        sets: names of timers that a line holds.
    """
    torn = torn.astype(bool)
    codes, counts = np.unique(signature[signature >= 0], return_counts=True)
    held = dict(zip(codes.tolist(), counts.tolist(), strict=True))
    for record in np.flatnonzero(torn & (signature >= 0)).tolist():
        code = int(signature[record])
        torn[record] = held[code] < 2 or any(sets[code] < sets[other] for other in held)
    return torn


def _only_said(name: str, rows: Sequence[Row]) -> bool:
    """Whether a group is shown to people and used for nothing else."""
    word = "{" + name + "}"
    uses = [
        measure.column == "text" and row.kind != Kind.CONFIG
        for row in rows
        for measure in row.measures
        if measure.group == name or word in measure.constant
    ]
    return bool(uses) and all(uses) and not any(word in row.name + row.raw for row in rows)


def whole_pairs(body: bytes, pairs: Pairs) -> bytes:
    """The pairs of a record without the last one, if that may go on."""
    before, _, last = body.rpartition(pairs.separator)
    text = last.rstrip()
    if pairs.assign not in text:
        return before if text else body
    if text != last or _is_quoted(text, pairs) or (pairs.timers and _as_precise(before, text)):
        return body
    return before


def stops_short(body: bytes, pairs: Pairs) -> bool:
    """Whether a line of timers, though it has an end, stops before the value of its last one or
    within it: all numbers of such lines have decimals, or none has. A line of which another one is
    whole without any, as in verl's, does not tell."""
    last = body.rfind(pairs.separator) + 1
    sign = body.find(pairs.assign, last)
    if sign < 0:
        return bool(body[last:].strip())
    value = body[sign + 1 :].strip()
    if not value:
        return True
    return value.isdigit() and b"." in body and not _counts(body[:last], pairs)


def _counts(body: bytes, pairs: Pairs) -> bool:
    """Whether one of these pairs has a number without decimals."""
    parts = (part.rpartition(pairs.assign) for part in body.split(pairs.separator))
    return any(value.strip().isdigit() for _, sign, value in parts if sign)


def stop_short(bodies: Sequence[bytes], pairs: Pairs) -> np.ndarray:
    """`stops_short` of many: hardly one does, as a point stands behind its last sign."""
    text = np.frombuffer(b"\n".join([*bodies, b""]), np.uint8)
    ends = np.cumsum([len(body) + 1 for body in bodies])
    point, sign, mark = (_last(text, byte, ends) for byte in (b".", pairs.assign, pairs.separator))
    short = (point < sign) | (sign < mark) | (sign < np.append(0, ends[:-1]))
    short |= len(pairs.assign) > 1
    left = np.flatnonzero(short).tolist()
    short[left] = [stops_short(bodies[i], pairs) for i in left]
    return short


def _last(text: np.ndarray, byte: bytes, ends: np.ndarray) -> np.ndarray:
    """Where the last such byte in front of each end stands, -1 for none."""
    at = np.append(-1, np.flatnonzero(text == byte[0]))
    found: np.ndarray = at[np.searchsorted(at, ends) - 1]
    return found


def _is_quoted(pair: bytes, pairs: Pairs) -> bool:
    value = pair.rpartition(pairs.assign)[2].strip()
    return len(value) > 1 and value[:1] in b"'\"" and value[-1:] == value[:1]


def _as_precise(before: bytes, last: bytes) -> bool:
    """Timers of a line are printed with one and the same number of decimals."""
    told = [_decimals(part) for part in re.split(rb"[|,]", before) if b":" in part]
    return bool(told) and len(set(told)) == 1 and told[0] == _decimals(last) != 0


def _decimals(pair: bytes) -> int:
    match = _DECIMALS.fullmatch(pair.rpartition(b":")[2].rstrip())
    return len(match[1]) if match else 0
