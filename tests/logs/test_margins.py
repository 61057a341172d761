"""Blocks of lines behind quotes, indentation, line numbers and labels."""

# ruff: noqa: ARG005, ISC004
from __future__ import annotations

from collections.abc import Callable

import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.source import Source

HEADER = "Comm. Op            Message Size        Count               Total Latency(ms)   "
TABLE = [
    HEADER + "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)    ",
    "all_reduce",
    "                    1.52 MB             40                  2055.10             "
    "51.38               0.50                0.25                ",
    "broadcast",
    "                    8.0 KB              6                   1.85                "
    "0.31                0.43                0.41                ",
]

MARGINS: dict[str, Callable[[int, str], str]] = {
    "plain": lambda n, line: line,
    "quoted mail": lambda n, line: f"> {line}",
    "quoted twice": lambda n, line: f"> > {line}",
    "indented": lambda n, line: f"    {line}",
    "editor line numbers": lambda n, line: f"{n + 97} {line}",
    "numbered dump": lambda n, line: f"[{n + 1743}] {line}",
    "srun label": lambda n, line: f"12: {line}",
    "padded srun label": lambda n, line: f"  0: {line}",
    "platform and srun": lambda n, line: f"2023-03-15 13:21:52.800 [INFO] 10.42.3.208:  0: {line}",
    "pdsh": lambda n, line: f"worker-1: {line}",
}


@pytest.mark.parametrize("margin", MARGINS.values(), ids=MARGINS)
def test_a_table_is_read_behind_any_margin(margin: Callable[[int, str], str]) -> None:
    reader = Reader(grammar.builtin(), Source("margin.log"))
    text = "\n".join(margin(n, line) for n, line in enumerate(TABLE))
    reader.feed(text.encode() + b"\n")
    reader.finish()
    rows = [row for row in reader.log().events.to_pylist() if row["kind"] == "comm"]
    assert [(row["name"], row["count"], row["line"]) for row in rows] == [
        ("all_reduce", 40.0, 3),
        ("broadcast", 6.0, 5),
    ]
