"""Arrow arrays from numpy's and Python's memory, and back.

`pa.array` and `Array.to_numpy` import pandas to see whether they were given some of its
objects. Reading needs no pandas: importing it takes longer than reading most logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

_MOST_BYTES: Final = np.iinfo(np.int32).max


def numbers(values: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    """An array of the same type over the same memory; null where `missing` is true."""
    valid = None
    if missing is not None and missing.any():
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def strings(texts: Sequence[str]) -> pa.Array:
    return _joined(pa.string(), [text.encode("utf-8", "replace") for text in texts])


def binaries(texts: Sequence[bytes | None]) -> pa.Array:
    """An array of bytes; null where there is None."""
    if None not in texts:
        return _joined(pa.binary(), texts)  # type: ignore[arg-type]
    missing = np.fromiter((text is None for text in texts), bool, len(texts))
    return _joined(pa.binary(), [text or b"" for text in texts], missing)


def _joined(
    kind: pa.DataType, texts: Sequence[bytes], missing: np.ndarray | None = None
) -> pa.Array:
    ends = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=ends[1:])
    if ends[-1] > _MOST_BYTES:
        raise pa.ArrowInvalid("too much text for one array")
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(texts), buffers)


def numpy_of(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values of an array of numbers, and where they are null: what stands there is no value."""
    valid, data = array.buffers()
    begin, end = array.offset, array.offset + len(array)
    missing = np.zeros(len(array), bool)
    if valid is not None and array.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=end, bitorder="little")
        missing = bits[begin:] == 0
    return np.frombuffer(data, array.type.to_pandas_dtype(), end)[begin:], missing
