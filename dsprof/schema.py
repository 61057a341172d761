"""The columns of the table of events, as Arrow types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        ("segment", pa.int32()),
        ("engine", pa.int16()),
        ("step", pa.int64()),
        ("steps", pa.int32()),
        ("rank", pa.int32()),
        ("host", _WORDS),
        ("at", pa.timestamp("us")),
        ("kind", _WORDS),
        ("name", _WORDS),
        ("raw", _WORDS),
        ("seconds", pa.float64()),
        ("bytes", pa.float64()),
        ("count", pa.float64()),
        ("value", pa.float64()),
        ("text", _WORDS),
        ("source", _WORDS),
        ("line", pa.int64()),
        ("pattern", _WORDS),
        ("timers", _WORDS),
        ("record", pa.int32()),
    ]
)
