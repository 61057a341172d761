"""The bytes of a recording are those that docs/recording.md shows."""

from __future__ import annotations

import inspect
import json
import re
import struct
from pathlib import Path

import pytest

from dsprof import recording
from dsprof.errors import DsprofError
from dsprof.recording import layout
from dsprof.recording.layout import (
    CLOCK,
    COLLECTIVE,
    JSON,
    MARK,
    PAGE,
    ROW,
    ROWS,
    SPAN,
    STEP,
    TEXT,
    VALUE,
    RowKind,
    file_name,
    pack_header,
    parse_header,
    part_of,
    stem_of,
)
from dsprof.recording.table import DTYPES

PAGE_OF_SPEC = Path(__file__).parent.parent.parent / "docs" / "recording.md"


def example() -> bytes:
    """The recording that the specification shows: one step of one process."""
    meta = {"rank": 0, "host": "a", "clock": {"perf_ns": 1000, "wall_ns": 2000, "error_ns": 50}}
    return pack_header(meta) + b"".join(
        [
            TEXT.pack(RowKind.TEXT, 8, 1, 1, 0, 0, 1, b"backward"),
            TEXT.pack(RowKind.TEXT, 10, 0, 2, 1, 0, 1, b"all_reduce"),
            TEXT.pack(RowKind.TEXT, 4, 0, 3, 0, 0, 1, b"loss"),
            SPAN.pack(RowKind.SPAN, 0, 1, 7, 0, 3_000_000, 2_000_000, -1, 0, 0),
            COLLECTIVE.pack(
                RowKind.COLLECTIVE, 1, 0, 2, 7, 42, 3_500_000, 4_000_000, 500_000, -1, 4096, 0, 1, 0
            ),
            VALUE.pack(RowKind.METRIC, 0, 0, 3, 7, 0, 5_500_000, 0.25),
            STEP.pack(
                RowKind.STEP, 0, 7, 1, 3_000_000, 3_000_000, 0.0015, 0.0005, 0, 0, 0, 0, 0, 0.001
            ),
            MARK.pack(RowKind.END, 6_000_000),
        ]
    )  # fmt: skip


def hex_lines(data: bytes, start: int) -> list[str]:
    return [f"{start + i:08x}  {data[i : i + 16].hex(' ', 1)}" for i in range(0, len(data), 16)]


def test_calls_that_the_page_names_are_called_so() -> None:
    text = PAGE_OF_SPEC.read_text(encoding="utf-8")
    named = re.findall(r"`dsprof\.recording\.(\w+)\(([^)]*)\)", text)
    assert {name for name, _ in named} >= {"Recordings", "read_rows"}
    for name, told in named:
        parameters = inspect.signature(getattr(recording, name)).parameters.values()
        said = [str(one.replace(annotation=one.empty)) for one in parameters]
        assert told == ", ".join(said), name


def test_every_kind_of_row_takes_64_bytes_and_its_fields_are_named() -> None:
    for kind, (packer, fields) in ROWS.items():
        assert packer.size == ROW
        values = re.sub(r"\d*x", "", packer.format[1:])
        count = sum(
            1 if c == "s" else int(n or 1) for n, c in re.findall(r"(\d*)([a-zA-Z])", values)
        )
        assert count == len(fields), kind
    assert set(ROWS) == set(RowKind)


def test_what_rows_have_in_common_lies_at_the_same_place() -> None:
    common = DTYPES[RowKind.METRIC].fields
    assert common is not None
    for kind in (RowKind.SPAN, RowKind.COLLECTIVE, RowKind.STEP):
        fields = DTYPES[kind].fields
        assert fields is not None
        for name in ("kind", "engine", "name", "step"):
            assert name not in fields or fields[name] == common[name], (kind, name)
        assert fields["begin"][1] == common["at"][1]


def test_the_bytes_of_the_specification_are_the_bytes_of_the_code() -> None:
    data = example()
    shown = re.findall(r"^([0-9a-f]{8}  [0-9a-f ]{47})", PAGE_OF_SPEC.read_text(), re.MULTILINE)
    rows = parse_header(data, "").rows
    size = JSON + struct.unpack_from("<I", data, 16)[0]
    assert shown == hex_lines(data[: -(-size // 16) * 16], 0) + hex_lines(data[rows:], rows)


def test_the_specification_names_every_field_at_its_offset() -> None:
    page = PAGE_OF_SPEC.read_text()
    for kind, dtype in DTYPES.items():
        assert dtype.fields is not None
        shown = kind.name if kind not in range(RowKind.METRIC, RowKind.CLOCK) else "METRIC"
        table = page.split(f"### {shown}", 1)[1].split("###", 1)[0]
        for name, (_, offset, *_) in dtype.fields.items():
            if name != "kind":
                assert re.search(rf"^\| {offset} \| \d+ \| `{name}` \|", table, re.MULTILINE), (
                    f"{shown}: {offset} {name}"
                )


def test_the_header_is_whole_pages_and_says_what_was_put_in() -> None:
    for words in (0, 1000, 5000, PAGE - JSON):
        meta = {"config": "x" * words}
        data = pack_header(meta)
        assert len(data) % PAGE == 0
        assert parse_header(data, "f").meta == meta
        assert parse_header(data, "f").rows == len(data)


def test_a_header_that_is_cut_anywhere_is_named_as_such() -> None:
    data = pack_header({"rank": 0})
    for size in (*range(1, 200), PAGE - 1):
        with pytest.raises(DsprofError, match="cut inside its header"):
            parse_header(data[:size], "run/x.dsprof")
    with pytest.raises(DsprofError, match="no dsprof recording"):
        parse_header(b"", "x")


def test_a_foreign_file_is_named_as_such() -> None:
    with pytest.raises(DsprofError, match=r"run\.log: is no dsprof recording"):
        parse_header(b"[2026-11-21 10:00:00] step=1\n" * 300, "run.log")


def test_a_newer_format_asks_for_a_newer_dsprof() -> None:
    data = bytearray(pack_header({}))
    struct.pack_into("<H", data, 8, layout.VERSION + 1)
    with pytest.raises(DsprofError, match=r"newer dsprof \(format 2; this one reads up to 1\)"):
        parse_header(bytes(data), "f")


@pytest.mark.parametrize(
    ("offset", "value"), [(10, 32), (12, 100), (12, 0), (16, 2), (16, 1 << 31)]
)
def test_a_damaged_header_is_named_as_such(offset: int, value: int) -> None:
    data = bytearray(pack_header({"rank": 0}))
    struct.pack_into("<H" if offset == 10 else "<I", data, offset, value)
    with pytest.raises(DsprofError, match="damaged header"):
        parse_header(bytes(data), "f")


def test_names_of_files_lead_back_to_process_and_part() -> None:
    stem = "rank-00003.4242-2"
    for part in (0, 1, 17):
        assert stem_of(file_name(stem, part)) == stem
        assert part_of(file_name(stem, part)) == part
    assert stem_of(file_name(stem, "kept")) == stem
    assert part_of(file_name(stem, "kept")) == -1
    for foreign in ("model.dsprof", "rank-3.dsprof", "rank-00003.4242.log", "x.rank-1.2.dsprof"):
        assert stem_of(foreign) is None


def test_the_clock_row_holds_both_clocks() -> None:
    data = CLOCK.pack(RowKind.CLOCK, 1, 2, 3)
    assert struct.unpack_from("<qqq", data, 16) == (1, 2, 3)
    assert json.loads(pack_header({"a": 1})[JSON : JSON + 7]) == {"a": 1}
