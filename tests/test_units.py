"""Quantities as people read them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dsprof.units import (
    bandwidth,
    format_bytes,
    format_count,
    format_ranks,
    format_seconds,
    format_share,
    listed,
    ranges,
)

SCRIPT = Path(__file__).parents[1] / "reports" / "format.js"
NODE = shutil.which("node")
SAID = {
    0.0: "0 s",
    1e-12: "0 s",
    -3e-17: "0 s",
    2e-9: "0.0020 µs",
    2.5e-6: "2.5 µs",
    1e-5: "10 µs",  # where a source prints 0.01 ms
    45e-6: "45 µs",
    348e-6: "348 µs",
    0.302: "302 ms",
    0.009996: "10.0 ms",
    5.79: "5.79 s",
    7500.0: "2 h 05 min",
}


def test_seconds_are_written_with_a_unit_and_what_rounding_leaves_is_nothing() -> None:
    assert {seconds: format_seconds(seconds) for seconds in SAID} == SAID


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("100Gb", 12.5e9),
        ("100G", 12.5e9),
        ("25Gbps", 3.125e9),
        ("400 Gbit/s", 50e9),
        ("12.5GB/s", 12.5e9),
        ("25GBps", 25e9),
        ("100", None),
        ("12500000000", None),
        ("100b", None),
        ("9999TB/s", None),
        ("0Gb", None),
        ("-5Gb", None),
        ("1e9Gb", None),
        ("nanGb", None),
        ("9" * 1000 + "Gb", None),
    ],
)
def test_a_link_has_a_unit_and_a_speed_that_networks_have(text: str, speed: float | None) -> None:
    assert bandwidth(text) == speed


def test_numbers_beyond_all_measure_are_short() -> None:
    assert format_seconds(1e300) == "1.00e+300 s"
    assert format_share(1e300) == "1.00e+302 %"
    assert format_share(1e308) == "unknown"
    assert max(map(len, (format_bytes(1e300), format_count(-1e300)))) < 20


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_writes_seconds_as_python_does() -> None:
    code = f"{SCRIPT.read_text(encoding='utf-8')}\nconst asked = {json.dumps(list(SAID))};"
    code += "console.log(JSON.stringify(asked.map(seconds)));"
    done = subprocess.run([str(NODE), "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(SAID.values())


SHARES = {
    0.994: "99 %",
    0.995: "99.5 %",
    0.996: "99.6 %",
    0.9967: "99.6 %",
    0.99999: "99.9 %",
    1.0: "100 %",
    1 - 1e-9: "100 %",  # all, but for rounding
    1.002: "100 %",
    0.0004: "under 0.1 %",
}


def test_words_are_listed_as_in_a_sentence() -> None:
    said = [listed(["a", "b", "c"][:many]) for many in range(4)]
    assert said == ["", "a", "a and b", "a, b and c"]


def test_what_is_not_all_is_not_called_100_percent() -> None:
    assert [format_share(part) for part in SHARES] == list(SHARES.values())


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_writes_shares_as_python_does() -> None:
    code = f"{SCRIPT.read_text(encoding='utf-8')}\nconst asked = {json.dumps(list(SHARES))};"
    code += "console.log(JSON.stringify(asked.map(share)));"
    done = subprocess.run([str(NODE), "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(SHARES.values())


def test_bytes_are_whole() -> None:
    assert [format_bytes(n) for n in (0, 16, 1023, 1024)] == ["0 B", "16 B", "1023 B", "1.00 KiB"]


def test_numbers_that_follow_each_other_are_a_range_and_of_many_only_some_are_named() -> None:
    assert ranges([3, 0, 1, 7, 2]) == "0 to 3, 7"
    assert ranges(range(0, 40, 2), most=2) == "0, 2 and 18 more"
    assert ranges([*range(0, 8, 2), 20, 21, 22, 30], most=2) == "0, 2 and 6 more"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([1], "rank 1"),
        ([3, 2], "ranks 2 and 3"),
        ([1, 2, 0], "ranks 0, 1 and 2"),
        (range(8, 16), "ranks 8 to 15"),
        ([0, 1, 2, 3, 6, 8], "ranks 0 to 3, 6 and 8"),
        (range(0, 40, 2), "ranks 0, 2 and 18 more"),
    ],
)
def test_ranks_are_named_as_a_sentence_does(ranks: list[int], said: str) -> None:
    assert format_ranks(ranks, most=2 if len(ranks) > 9 else 8) == said
