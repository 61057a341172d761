"""Open-ended `key: value | key: value` text, thousands of records at a time.

The bulk path looks at delimiters only and must prove that a record has the shape it
assumes; a record that does not goes to the strict path, one pair at a time. Both give
the same pairs (a property test holds them to it).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dsprof.grammar import Pairs
from dsprof.logs.columns import arrow, literals

_TRIM: Final = b" \t'\""
_NUMBER: Final = re.compile(rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf|NaN|Infinity)")
#: A timer and what is glued to it: DeepSpeed prints two decimals (utils/timer.py), behind them a
#: number is over.
GLUED: Final = re.compile(rb"[ \t]*(\d{1,15}\.\d\d)[^\d.]")
_BAR: Final = re.compile(rb"\d{1,3}%\|[^|]{0,300}\| *\d")
_NUMPY: Final = re.compile(rb"np\.float\d{2}\(([^()\s]{1,40})\)")  #: how numpy 2 prints a number
_NEWLINE: Final = 10
_FEW: Final = 64  # records below which arrow's start-up costs more than it saves


@dataclass(slots=True)
class Found:
    """Pairs of many records: parallel arrays, in order."""

    record: np.ndarray  # int64, index into the records given
    key: list[bytes]  # distinct keys
    code: np.ndarray  # int32, into `key`
    value: list[bytes] | pa.Array  # the text of each value


def pairs_of(bodies: Sequence[bytes], pairs: Pairs) -> Found:
    """The pairs of each record's text. A part without a key or value gives none."""
    text = b"\n".join([*bodies, b""])
    # Looking for one byte first is many times faster than looking for both.
    if b"%" in text and b"%|" in text:  # marks of a progress bar behind them are no pairs
        bodies = [_BAR.split(body, maxsplit=1)[0] for body in bodies]
        text = b"\n".join([*bodies, b""])
    if b"np.float" in text:
        bodies = [_NUMPY.sub(rb"\1", body) for body in bodies]
        text = b"\n".join([*bodies, b""])
    if b"**" in text:  # what somebody made bold before asking about it
        bodies = [body.replace(b"**", b"") for body in bodies]
        text = b"\n".join([*bodies, b""])
    is_plain = len(pairs.separator) == 1 == len(pairs.assign) and not pairs.literals
    if len(bodies) >= _FEW and is_plain:
        return _bulk(text, bodies, pairs)
    return _strict(range(len(bodies)), bodies, pairs)


def _strict(numbers: Sequence[int], bodies: Sequence[bytes], pairs: Pairs) -> Found:
    codes: dict[bytes, int] = {}
    record: list[int] = []
    code: list[int] = []
    value: list[bytes] = []
    for number, body in zip(numbers, bodies, strict=True):
        parts = literals.split(body) if pairs.literals else body.split(pairs.separator)
        for part in parts:
            key, text = _split(part, pairs)
            if key and text:
                record.append(number)
                code.append(codes.setdefault(key, len(codes)))
                value.append(text)
    return Found(np.array(record, np.int64), list(codes), np.array(code, np.int32), value)


def _split(part: bytes, pairs: Pairs) -> tuple[bytes, bytes]:
    """Key and value. A value may hold the assignment sign if it is a literal, or if its key is
    listed (a clock), and what is glued to a timer, too."""
    if pairs.literals:
        key, _, text = part.partition(pairs.assign)
        return key.strip(_TRIM), text.strip(_TRIM)
    key, _, text = part.rpartition(pairs.assign)
    if pairs.assign in key:
        first, _, rest = part.partition(pairs.assign)
        if first.strip(_TRIM).decode("utf-8", "replace") in pairs.keys:
            key, text = first, rest
        elif pairs.timers and (glued := GLUED.match(rest)):
            key, text = first, glued[1]
    return key.strip(_TRIM), text.strip(_TRIM)


def _bulk(text: bytes, bodies: Sequence[bytes], pairs: Pairs) -> Found:
    flat = np.frombuffer(text, np.uint8)
    newline, assign = flat == _NEWLINE, flat == pairs.assign[0]
    at = np.flatnonzero(newline | assign | (flat == pairs.separator[0]))
    line = np.cumsum(newline[at]) - newline[at]
    if line[-1] + 1 != len(bodies):  # a body holds a newline itself
        return _strict(range(len(bodies)), bodies, pairs)
    begins = np.empty_like(at)
    begins[0], begins[1:] = 0, at[:-1] + 1
    # Where keys and values alternate, every other mark is an assignment.
    assigns = assign[at]
    odd = np.zeros(len(bodies), bool)
    odd[line[1:][assigns[1:] == assigns[:-1]]] = True
    odd[0] |= not assigns[0]
    if odd.any():
        at, begins, line = (marks[~odd[line]] for marks in (at, begins, line))
    begins, ends = _trim(flat, begins, at)
    told = np.flatnonzero((begins < ends)[0::2] & (begins < ends)[1::2])
    # An array of all text between the bounds: keys and values at its odd places.
    bounds = np.empty(2 * len(ends) + 1, np.int32)
    bounds[0], bounds[1::2], bounds[2::2] = 0, begins, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    tokens = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    keys = tokens.take(arrow.numbers(told * 4 + 1)).dictionary_encode()
    values = tokens.take(arrow.numbers(told * 4 + 3))
    codes, _ = arrow.numpy_of(keys.indices)
    found = Found(line[0::2][told], keys.dictionary.to_pylist(), codes, values)
    if not odd.any():
        return found
    numbers = np.flatnonzero(odd).tolist()
    return _merge(found, _strict(numbers, [bodies[i] for i in numbers], pairs))


def _merge(one: Found, two: Found) -> Found:
    keys = dict.fromkeys(one.key)
    for key in two.key:
        keys.setdefault(key)
    number = {key: i for i, key in enumerate(keys)}
    moved = np.array([number[key] for key in two.key] or [0], np.int32)
    record = np.concatenate([one.record, two.record])
    order = np.argsort(record, kind="stable")
    assert isinstance(two.value, list)
    value = pa.concat_arrays([one.value, arrow.binaries(two.value)])
    return Found(
        record[order],
        list(keys),
        np.concatenate([one.code, moved[two.code]]).astype(np.int32)[order],
        value.take(arrow.numbers(order)),
    )


def _trim(flat: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spans without the blanks and quotes around them; a blank span becomes empty."""
    start = start + (_is_blank(flat[start]) & (start < end))
    some = np.flatnonzero(_is_blank(flat[start]) & (start < end))
    while len(some):
        start[some] += 1
        some = some[_is_blank(flat[start[some]]) & (start[some] < end[some])]
    end = end - (_is_blank(flat[end - 1]) & (start < end))
    some = np.flatnonzero(_is_blank(flat[end - 1]) & (start < end))
    while len(some):
        end[some] -= 1
        some = some[_is_blank(flat[end[some] - 1]) & (start[some] < end[some])]
    return start, end


def _is_blank(text: np.ndarray) -> np.ndarray:
    """Which bytes are of `_TRIM`: a few comparisons are quicker than a table."""
    blank: np.ndarray = text == _TRIM[0]
    for byte in _TRIM[1:]:
        blank |= text == byte
    return blank


def end_of_pairs(text: bytes, pairs: Pairs) -> int:
    """Where pairs without a closing mark end in `text`, if something else may follow on the line.

    Behind the last separator a value is a number; what follows it is another record's.
    """
    last = text.rfind(pairs.separator) + 1
    assign = text.find(pairs.assign, last)
    if assign < 0:
        return max(last - 1, 0)
    start = assign + 1
    while start < len(text) and text[start] in _TRIM:
        start += 1
    match = _NUMBER.match(text, start)
    return match.end() if match else len(text)
