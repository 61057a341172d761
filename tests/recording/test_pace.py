"""How recently a recorded process trained, which samples of GPUs do not show."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dsprof.recording import Recording, Writer
from tests.recording.recorded import MS, header

SECOND = 1000 * MS


def idle(folder: Path, waits: int = 0) -> float:
    """Of a process that trained for 5 s, then only sampled GPUs for a minute; `waits`: since so
    many ns after the start it waits in a collective.
    """
    writer = Writer.create(folder, header())
    begun, name = time.perf_counter_ns(), writer.name("all_reduce")
    writer.span(writer.name("save", 0, "checkpoint"), begun + SECOND, begun + 5 * SECOND, 1)
    writer.flush()
    for second in range(7, 66):
        at = begun + second * SECOND
        writer.gpu(writer.name("power"), 300.0, 1, 0, writer.name("GPU-0"), at)
    writer.flush()
    if waits:
        writer.in_flight(name, 1, begun + waits)
    reader = Recording(writer.path)
    reader.follow()
    return float(reader.facts["idle"])


def test_a_process_is_idle_although_it_samples_the_gpus_of_its_node(tmp_path: Path) -> None:
    assert idle(tmp_path) == pytest.approx(60, abs=2)


def test_it_is_idle_since_it_came_to_a_call_that_does_not_end(tmp_path: Path) -> None:
    assert idle(tmp_path, waits=15 * SECOND) == pytest.approx(50, abs=2)
