"""The benchmark of recordings measures what it says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.recording import Job, follow_latency, read_rates, step_cost
from dsprof.recording import RowKind, read_rows


def test_a_step_of_the_benchmark_has_the_rows_it_is_divided_by(tmp_path: Path) -> None:
    job = Job(str(tmp_path), 9, 4)
    job.step(1)
    job.writer.close()
    counts = {kind: read_rows(kind, tmp_path).num_rows for kind in RowKind}
    assert counts[RowKind.SPAN] == 9
    assert counts[RowKind.COLLECTIVE] == 4
    assert counts[RowKind.METRIC] == counts[RowKind.STEP] == 1


def test_costs_rates_and_latencies_are_positive(tmp_path: Path) -> None:
    assert 0 < step_cost(str(tmp_path), 9, 4, lambda: None) < 0.01
    rates = read_rates(20_000)
    assert 0 < rates["frame"] < rates["table"]
    late = follow_latency(steps=20, poll=0.005)
    assert 0 < late["median"] <= late["p99"] < 10
