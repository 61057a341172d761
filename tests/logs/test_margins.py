"""Blocks of lines behind quotes, indentation, line numbers and labels."""

# ruff: noqa: ARG005, ISC004
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP, TIMERS

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
    "cat -n": lambda n, line: f"{n + 97:6d}\t{line}",
    "grep -n": lambda n, line: f"{n + 97}:{line}",
    "grep -Hn": lambda n, line: f"run.log:{n + 97}:{line}",
    "grep -n with lines around": lambda n, line: f"{n + 97}{'-' if n else ':'}{line}",
    "less -N": lambda n, line: f"{n + 97:7d} {line}",
    "numbers before a bar": lambda n, line: f"{n + 97} | {line}",
    "numbers before a drawn line": lambda n, line: f"{n + 97:4d}   │ {line}",
    "numbers and two blanks": lambda n, line: f"{n + 97:5d}  {line}",
    "numbers before a comma": lambda n, line: f"{n + 97},{line}",
    "numbers in round brackets": lambda n, line: f"({n + 97}) {line}",
    "syslog": lambda n, line: f"Nov {9 + n // 9:2d} 10:00:{n:02d} host prog[123]: {line}",
    "journald": lambda n, line: f"2026-11-22T10:00:{n:02d}+0000 host prog[123]: {line}",
    "a clock": lambda n, line: f"10:00:{n:02d} {line}",
    "stern": lambda n, line: f"train-0 pytorch {line}",
    "Ray": lambda n, line: f"(RayTrainWorker pid=1234, ip=10.0.0.2) {line}",
    "pdsh and syslog": lambda n, line: f"worker-1: Nov 22 10:00:{n:02d} host prog[123]: {line}",
    "quoted syslog": lambda n, line: f"> Nov 22 10:00:{n:02d} host prog[123]: {line}",
    "srun label": lambda n, line: f"12: {line}",
    "padded srun label": lambda n, line: f"  0: {line}",
    "platform and srun": lambda n, line: f"2023-03-15 13:21:52.800 [INFO] 10.42.3.208:  0: {line}",
    "pdsh": lambda n, line: f"worker-1: {line}",
}


DUMP = [
    "DeepSpeedEngine configuration:",
    "  activation_checkpointing_config  {",
    '    "partition_activations": false, ',
    "}",
    "  gradient_accumulation_steps .. 4",
    "  zero_optimization_stage ...... 2",
    "  json = { ",
    '    "train_batch_size": 64, ',
    '    "zero_optimization": {',
    '        "stage": 2',
    "    }",
    "}",
]
HEADER_OF_DUMP = "[2024-03-15 13:21:52,800] [INFO] [config.py:957:print] "


def _read(lines: list[str]) -> list[dict[str, Any]]:
    reader = Reader(grammar.builtin(), Source("margin.log"))
    reader.feed("\n".join(lines).encode() + b"\n")
    reader.finish()
    found: list[dict[str, Any]] = reader.log().events.to_pylist()
    return found


@pytest.mark.parametrize("margin", MARGINS.values(), ids=MARGINS)
def test_a_configuration_is_read_behind_any_margin(margin: Callable[[int, str], str]) -> None:
    lines = [HEADER_OF_DUMP + line if line.startswith(("D", "  ")) else line for line in DUMP]
    lines = [line.replace(HEADER_OF_DUMP + "    ", "    ") for line in lines]
    rows = _read([margin(n, line) for n, line in enumerate(lines)])
    told = {row["name"]: row["value"] for row in rows if row["kind"] == "config"}
    assert told["gradient_accumulation_steps"] == 4
    assert told["zero_stage"] == 2
    (text,) = (row["text"] for row in rows if row["name"] == "ds_config")
    assert json.loads(text) == {"train_batch_size": 64, "zero_optimization": {"stage": 2}}


def test_another_process_is_no_part_of_a_block_behind_what_a_collector_prints() -> None:
    lines = [f"Nov 22 10:00:00 node-1 prog[7]: {line}" for line in TABLE]
    lines.insert(3, f"Nov 22 10:00:00 node-1 prog[8]: {TABLE[3]}")
    assert [row["name"] for row in _read(lines)] == ["all_reduce", "broadcast"]
    lines = [f"Nov 22 10:00:00 node-{n} prog[7]: {line}" for n, line in enumerate(TABLE)]
    assert _read(lines) == []


def test_the_text_of_a_block_loses_no_number_of_its_own() -> None:
    """Its opening line alone stands behind one."""
    (row, *_) = _read([f"12  {TABLE[0]}", *TABLE[1:]])
    assert (row["bytes"], row["count"]) == (pytest.approx(1.52 * 2**20), 40)


@pytest.mark.parametrize("number", ["{}:", "{:6d}\t", "{} ", "[{}] ", "{} | ", "{:6d} │ ", "{},"])
def test_line_numbers_are_no_hosts(number: str) -> None:
    lines = [PFX.decode() + (STEP % 1).decode(), TIMERS.decode()] * 3
    rows = _read([number.format(n) + line for n, line in enumerate(lines, 7)])
    assert {row["host"] for row in rows} == {None}
    assert sum(row["name"] == "forward" for row in rows) == 3


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
