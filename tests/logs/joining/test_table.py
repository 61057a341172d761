"""The one table of events: what its batches share, and what is let go while it grows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dsprof import grammar, logs
from dsprof.logs.joining import table
from dsprof.logs.joining.sheet import Sheet
from dsprof.logs.scanning import records
from dsprof.logs.scanning.scan import Scanner
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP, TIMERS


def _log(steps: int) -> bytes:
    return b"".join(PFX + STEP % step + b"\n" + PFX + TIMERS + b"\n" for step in range(1, steps))


def test_sources_with_words_of_their_own_share_dictionaries(tmp_path: Path) -> None:
    (tmp_path / "worker-1.log").write_bytes(_log(9))
    (tmp_path / "worker-2.log").write_bytes(b"steps: 3 loss: 0.5 iter time (s): 1.0\n" + _log(5))
    events = logs.read([tmp_path]).events
    for column in (c for c in events.columns if pa.types.is_dictionary(c.type)):
        first, *others = [chunk.dictionary for chunk in column.chunks]
        assert others
        assert all(other.equals(first) for other in others)
    assert set(events["host"].to_pylist()) == {"worker-1", "worker-2"}


def test_what_the_table_is_made_of_is_let_go_as_it_grows() -> None:
    tracemalloc.start()
    try:
        scanner = Scanner(grammar.builtin())
        scanner.feed(_log(2 * records._BATCH))
        scanner.finish()
        scanner.records.settle()
        sheet = Sheet("a.log", None, None, scanner.records, last=True)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        events = table.events_table([sheet], grammar.builtin()).table
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    grown = after - before
    assert events.nbytes > 10 << 20
    assert grown < events.nbytes  # the numbers that were read are in the table as they lie
    assert peak - after < events.nbytes / 4
    assert not scanner.records.rows
    assert all(len(column.view()) == 0 for column in scanner.records.columns.values())


def test_a_source_that_grows_keeps_its_records() -> None:
    reader = logs.Reader(grammar.builtin(), Source("a.log"))
    reader.feed(_log(9))
    first = reader.log().events
    assert reader.log().events.equals(first)
    reader.feed(_log(9).replace(b"10.00", b"11.00"))
    assert reader.log().events.num_rows == 2 * first.num_rows


def test_where_no_word_is_told_stands_a_place_within_the_dictionary(tmp_path: Path) -> None:
    """pyarrow looks a null's place up too where it unifies dictionaries."""
    (tmp_path / "run.log").write_bytes(_log(9))
    events = logs.read([tmp_path]).events
    for column in (c for c in events.columns if pa.types.is_dictionary(c.type)):
        for chunk in column.chunks:
            places = np.frombuffer(chunk.indices.buffers()[1], np.int32)[: len(chunk)]
            assert 0 <= places.min() <= places.max() < max(len(chunk.dictionary), 1)


def test_columns_that_are_made_at_once_are_those_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "_SHARED", 0)
    reader = logs.Reader(grammar.builtin(), Source("a.log"))
    reader.feed(_log(records._BATCH // 2))
    reader.finish()
    reader.scanner.records.settle()

    def made(threads: int) -> pa.Table:
        sheet = Sheet("a.log", 1, "w1", reader.scanner.records)
        return table.events_table([sheet], grammar.builtin(), threads).table

    assert made(3).equals(made(1))


def test_what_fails_in_a_thread_is_raised() -> None:
    def fails() -> list[pa.Array]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), table._making({"line": list, "step": fails}, 2, {}):
        pass


def test_batches_of_one_value_lie_in_memory_once() -> None:
    def begins(made: list[pa.Array]) -> list[int]:
        return [array.buffers()[1].address for array in made]

    alike, other, mixed = np.full(3, 7, np.int32), np.full(2, 8, np.int32), np.arange(3, dtype="i4")
    made = table._batches("rank", [alike, mixed, other, alike[:2], other], [3, 3, 2, 2, 2])
    assert [array.to_pylist() for array in made] == [[7] * 3, [0, 1, 2], [8] * 2, [7] * 2, [8] * 2]
    first, between, second, again, last = begins(made)
    assert first == again
    assert second == last
    assert len({first, between, second}) == 3
