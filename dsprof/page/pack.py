"""Data of a page, small: JSON and columns of numbers, compressed, as text."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FULL = 23  #: bits of a float32 mantissa
SHORT = 13  #: enough for four digits, which is more than a page shows


def pack_text(words: str, level: int = 6) -> str:
    """Gzip as base64: letters that mean nothing to HTML."""
    return base64.b64encode(gzip.compress(words.encode(), level, mtime=0)).decode("ascii")


def pack_json(value: Any) -> str:
    return pack_text(json.dumps(value, allow_nan=False, separators=(",", ":"), default=str))


def safe_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    dumped = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for letter in "<>&":
        dumped = dumped.replace(letter, f"\\u{ord(letter):04x}")
    return dumped


def pack_columns(
    columns: Mapping[str, npt.ArrayLike], bits: int
) -> tuple[str, list[dict[str, Any]]]:
    """Columns of numbers as one text, and the list that says how to read it.

    Whole numbers are stored as differences in 32 bits, others as float32 whose
    mantissa is rounded to `bits`; the bytes of all values that matter equally
    stand together, which is what gzip likes.
    """
    parts, index = [], []
    for name, values in columns.items():
        array = np.asarray(values)
        whole = np.issubdtype(array.dtype, np.integer)
        words = _differences(array) if whole else _rounded(array, bits)
        parts.append(words.view(np.uint8).reshape(-1, 4).T.tobytes())
        index.append({"name": name, "size": int(array.size), "type": "i" if whole else "f"})
    packed = gzip.compress(b"".join(parts), 5, mtime=0)
    return base64.b64encode(packed).decode("ascii"), index


def _differences(array: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    whole = array.ravel().astype(np.int64)
    return np.ascontiguousarray(np.diff(whole, prepend=0).astype("<i4"))


def _rounded(array: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint32]:
    floats = np.ascontiguousarray(array.ravel().astype("<f4"))
    words = floats.view("<u4")
    if bits >= FULL:
        return words
    drop = FULL - bits
    half, mask = np.uint32(1 << (drop - 1)), np.uint32(0xFFFFFFFF ^ ((1 << drop) - 1))
    return np.where(np.isfinite(floats), (words + half) & mask, words).astype("<u4")
