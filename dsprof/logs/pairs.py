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
import pyarrow.compute as pc

from dsprof.grammar import Pairs

_TRIM: Final = b" \t'\""
_TRIMMED: Final = np.zeros(256, dtype=bool)
_TRIMMED[list(_TRIM)] = True
_NUMBER: Final = re.compile(rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf|NaN|Infinity)")
_NUMERIC: Final = r"^[-+]?(\d{1,60}(\.\d{0,60})?([eE][-+]?\d{1,9})?|\.\d{1,60}|nan|inf|NaN|Infinity)$"
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
    if len(bodies) >= _FEW and len(pairs.separator) == 1 and len(pairs.assign) == 1:
        return _bulk(bodies, pairs)
    return _strict(range(len(bodies)), bodies, pairs)


def _strict(numbers: Sequence[int], bodies: Sequence[bytes], pairs: Pairs) -> Found:
    codes: dict[bytes, int] = {}
    record: list[int] = []
    code: list[int] = []
    value: list[bytes] = []
    for number, body in zip(numbers, bodies, strict=True):
        for part in body.split(pairs.separator):
            key, text = _split(part, pairs)
            if key and text:
                record.append(number)
                code.append(codes.setdefault(key, len(codes)))
                value.append(text)
    return Found(np.array(record, np.int64), list(codes), np.array(code, np.int32), value)


def _split(part: bytes, pairs: Pairs) -> tuple[bytes, bytes]:
    """Key and value. A value may hold the assignment sign (a clock) if its key is listed."""
    key, _, text = part.rpartition(pairs.assign)
    if pairs.assign in key:
        first, _, rest = part.partition(pairs.assign)
        if first.strip(_TRIM).decode("utf-8", "replace") in pairs.keys:
            key, text = first, rest
    return key.strip(_TRIM), text.strip(_TRIM)


def _bulk(bodies: Sequence[bytes], pairs: Pairs) -> Found:
    data = b"\n".join(bodies)
    flat = np.frombuffer(data, np.uint8)
    line_ends = np.append(np.flatnonzero(flat == _NEWLINE), len(flat))
    if len(line_ends) != len(bodies):  # a body holds a newline itself
        return _strict(range(len(bodies)), bodies, pairs)
    ends = np.flatnonzero((flat == pairs.separator[0]) | (flat == _NEWLINE))
    ends = np.append(ends, len(flat))
    assigns = np.flatnonzero(flat == pairs.assign[0])
    odd = _odd_lines(line_ends, ends, assigns)
    if odd.any():
        return _mixed(bodies, odd, pairs)
    begins = np.empty_like(ends)
    begins[0] = 0
    begins[1:] = ends[:-1] + 1
    key_from, key_to = _trim(flat, begins, assigns)
    text_from, text_to = _trim(flat, assigns + 1, ends)
    if (key_from >= key_to).any() or (text_from >= text_to).any():
        return _strict(range(len(bodies)), bodies, pairs)
    bounds = np.empty(4 * len(ends) + 1, np.int32)
    bounds[0] = 0
    bounds[1::4], bounds[2::4] = key_from, key_to
    bounds[3::4], bounds[4::4] = text_from, text_to
    tokens = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    places = np.arange(len(ends), dtype=np.int32) * 4
    keys = tokens.take(pa.array(places + 1)).dictionary_encode()
    return Found(
        np.searchsorted(line_ends, begins, side="left").astype(np.int64),
        keys.dictionary.to_pylist(),
        keys.indices.to_numpy(),
        tokens.take(pa.array(places + 3)),
    )


def _odd_lines(line_ends: np.ndarray, ends: np.ndarray, assigns: np.ndarray) -> np.ndarray:
    """Lines in which keys and values do not simply alternate."""
    lines = len(line_ends)
    parts = np.bincount(np.searchsorted(line_ends, ends), minlength=lines)
    keys = np.bincount(np.searchsorted(line_ends, assigns), minlength=lines)
    odd: np.ndarray = parts != keys
    if len(assigns) == len(ends):
        begins = np.append(0, ends[:-1] + 1)
        wrong = (assigns < begins) | (assigns >= ends)
        odd[np.searchsorted(line_ends, ends[wrong])] = True
    return odd


def _mixed(bodies: Sequence[bytes], odd: np.ndarray, pairs: Pairs) -> Found:
    plain_at, odd_at = np.flatnonzero(~odd), np.flatnonzero(odd)
    strict = _strict(odd_at.tolist(), [bodies[i] for i in odd_at], pairs)
    if len(plain_at) < _FEW:
        rest = _strict(plain_at.tolist(), [bodies[i] for i in plain_at], pairs)
    else:
        rest = _bulk([bodies[i] for i in plain_at], pairs)
        rest.record = plain_at[rest.record]
    return _merge(rest, strict)


def _merge(one: Found, two: Found) -> Found:
    keys = dict.fromkeys(one.key)
    for key in two.key:
        keys.setdefault(key)
    number = {key: i for i, key in enumerate(keys)}
    moved = np.array([number[key] for key in two.key] or [0], np.int32)
    record = np.concatenate([one.record, two.record])
    order = np.argsort(record, kind="stable")
    value = pa.chunked_array(
        [pa.array(one.value, pa.binary()), pa.array(two.value, pa.binary())]
    ).combine_chunks()
    return Found(
        record[order],
        list(keys),
        np.concatenate([one.code, moved[two.code]]).astype(np.int32)[order],
        value.take(pa.array(order)),
    )


def _trim(flat: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spans without the blanks and quotes around them."""
    start, end = start.copy(), end.copy()
    open_ = np.flatnonzero(start < end)
    while len(open_ := open_[_TRIMMED[flat[start[open_]]]]):
        start[open_] += 1
        open_ = open_[start[open_] < end[open_]]
    open_ = np.flatnonzero(start < end)
    while len(open_ := open_[_TRIMMED[flat[end[open_] - 1]]]):
        end[open_] -= 1
        open_ = open_[start[open_] < end[open_]]
    return start, end


def numbers_of(texts: list[bytes] | pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64, and where the text was no number (the value there is NaN)."""
    array = pa.array(texts, pa.binary()) if isinstance(texts, list) else texts
    try:
        values = array.cast(pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        numeric = pc.match_substring_regex(array, _NUMERIC)
        values = pc.if_else(numeric, array, None).cast(pa.string()).cast(pa.float64())
    return np.asarray(values.fill_null(np.nan)), np.asarray(pc.is_null(values))


def end_of_pairs(text: bytes, pairs: Pairs) -> int:
    """Where the pairs in `text` end, if something else may follow on the line.

    Behind the last separator a value is a number; what follows it is another record's.
    """
    if pairs.end:
        stop = text.find(pairs.end)
        return stop if stop >= 0 else len(text)
    last = text.rfind(pairs.separator) + 1
    assign = text.find(pairs.assign, last)
    if assign < 0:
        return max(last - 1, 0)
    start = assign + 1
    while start < len(text) and text[start] in _TRIM:
        start += 1
    match = _NUMBER.match(text, start)
    return match.end() if match else len(text)
