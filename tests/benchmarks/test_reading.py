"""What the benchmark of reading measures."""

from __future__ import annotations

import pyarrow as pa

from benchmarks.reading import bytes_of


def test_memory_that_batches_share_counts_once() -> None:
    numbers = pa.array(range(1000), pa.int64())
    shared = pa.table({"a": pa.chunked_array([numbers, numbers[:500], numbers])})
    assert bytes_of(shared) == 8000 < shared.nbytes


def test_a_dictionary_is_part_of_the_memory() -> None:
    codes = pa.array([0, 1, 0], pa.int32())
    words = pa.array(["forward", "backward"])
    table = pa.table({"name": pa.DictionaryArray.from_arrays(codes, words)})
    assert bytes_of(table) >= codes.nbytes + words.nbytes
