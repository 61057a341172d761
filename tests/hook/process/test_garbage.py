"""How long Python collects garbage is what a recording tells of it."""

from __future__ import annotations

import gc
import time

from dsprof.hook.process.garbage import Garbage
from dsprof.recording import Writer
from tests.hook.rows import read


def written(writer: Writer, name: str) -> list[float]:
    writer.flush()
    return [row.value for row in read(writer.path).metrics if row.name == name]


def test_collections_that_search_all_objects_are_counted_and_all_are_timed(writer: Writer) -> None:
    kept = [[number] for number in range(200_000)]
    garbage = Garbage(writer)
    garbage.start()
    try:
        begun = time.perf_counter()
        for _ in range(3):
            gc.collect()
        whole = time.perf_counter() - begun
        gc.collect(0)
        garbage.write(1_000)
    finally:
        garbage.stop()
    gc.collect()  # nobody listens any more
    garbage.write(2_000)
    seconds, later = written(writer, "garbage")
    assert len(kept) == 200_000
    assert whole / 2 < seconds < 2 * whole
    assert later == seconds
    assert written(writer, "garbage_collections") == [3, 3]


def test_a_collection_that_was_under_way_when_recording_began_takes_no_time(
    writer: Writer,
) -> None:
    garbage = Garbage(writer)

    class Finalized:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            garbage.start()

    Finalized()
    try:
        gc.collect()
    finally:
        garbage.stop()
    garbage.write(1_000)
    assert written(writer, "garbage") == [0.0]
    assert written(writer, "garbage_collections") == [0]


def test_a_job_that_empties_the_list_of_callbacks_is_no_failure(writer: Writer) -> None:
    garbage, before = Garbage(writer), gc.callbacks[:]
    garbage.start()
    gc.callbacks[:] = before
    garbage.stop()
    assert gc.callbacks == before
