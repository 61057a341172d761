"""Which needles of a text may begin a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.noise import NOISE
from dsprof import grammar
from dsprof.logs.scanning.search import Search, search_of
from tests.logs.reading import rows

COUNTED = """
title = "A loop of one's own"

[[pattern]]
name   = "tick"
needle = "acme "
beside = "ticks="
regex  = 'acme [a-z ]{0,40}ticks=(?P<ticks>\\d+)'

[pattern.fields]
ticks = "metric loss"
"""
#: Lines of other programs in a form that programs of all kinds use.
ELSEWHERE = (
    '{"timestamp": "2025-05-01T10:11:12Z", "level": "INFO", "message": "bucket 3 is ready"}',
    '{"time": "2025-05-01T10:11:12Z", "level": "INFO", "msg": "queue drained"}',
    '{"ts": 1746093072.125, "level": "info", "caller": "server.go:3", "msg": "in sync"}',
    '{"type": "request", "path": "/metrics", "status": 200}',
    '{"event": "queue_drained", "level": "info"}',
    '10.0.0.1 - - [01/May/2025:10:11:12 +0000] "GET /metrics HTTP/1.1" 200 1234',
)
BEHIND_THE_BEGINNING = 1 << 20


@pytest.fixture
def counted(tmp_path: Path) -> Search:
    (tmp_path / "acme.toml").write_text(COUNTED)
    return Search(grammar.load([tmp_path]))


def found(search: Search, text: bytes) -> list[int]:
    """Where the needles begin that may open a record."""
    starts: list[int] = search.find(text, BEHIND_THE_BEGINNING)[1].tolist()
    return starts


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (b"acme counts ticks=3\n", [0]),
        (b"acme counts\nticks=3\n", []),
        (b"ticks=3 acme counts\n", []),
        (b"acme rests\nacme counts ticks=3\nacme rests\nacme counts ticks=4", [11, 42]),
        (b"acme rests", []),
    ],
)
def test_a_needle_counts_only_in_front_of_the_literal_that_its_line_holds_as_well(
    counted: Search, text: bytes, places: list[int]
) -> None:
    assert found(counted, text) == places


def test_a_needle_that_other_patterns_share_counts_without_it(tmp_path: Path) -> None:
    shared = COUNTED + '\n[[pattern]]\nname = "rest"\nneedle = "acme rests"\n'
    (tmp_path / "acme.toml").write_text(shared)
    assert found(Search(grammar.load([tmp_path])), b"acme rests\n") == [0]


def test_a_line_of_json_is_read_among_others_that_begin_alike() -> None:
    other = b'{"timestamp": "2025-05-01T10:11:12", "level": "INFO", "message": "bucket 3"}\n'
    turn = b'{"timestamp": "2025-05-01T10:11:12", "step": 20, "loss": 2.25}\n'
    assert [row["value"] for row in rows(other * 9 + turn + other, name="loss")] == [2.25]


@pytest.mark.parametrize("line", [*(text for _, text in NOISE), *ELSEWHERE])
def test_lines_of_other_programs_cost_no_look_at_them(line: str) -> None:
    """A needle that all their lines hold would make a log take ten times as long."""
    values = {"n": 1234, "m": 12, "s": 34, "p": 56, "f": 7.25, "w": "gelu"}
    text = line.format(**values) if line not in ELSEWHERE else line
    assert not found(search_of(grammar.builtin()), text.encode("utf-8", "surrogateescape") + b"\n")
