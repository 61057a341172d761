"""A comparison that finds nothing proves nothing: every kind of fault is planted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks import engine, exact, generate
from benchmarks.dialects import DIALECTS
from benchmarks.generate import Options, write
from benchmarks.reading import differences, found

VALUES = ("missing", "wrong", "invented")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[str, Any]]:
    """The events of a clean log of the plain engine, and its truth."""
    path = tmp_path_factory.mktemp("logs") / "run.log"
    truth = write(path, Options(size=60_000, dialects=("plain-0.18",), launches=1, clean=True))
    return engine.events([path]), truth.as_json()


def _faults(table: pa.Table, truth: dict[str, Any]) -> dict[str, int]:
    comparison = vars(exact.compare(truth, found(table)))
    return {nature: sum(fault.count for fault in faults) for nature, faults in comparison.items()}


def _row(table: pa.Table, raw: str) -> int:
    """The first row of that word."""
    return int(pc.index(pc.cast(table["raw"], pa.string()), raw).as_py())


def _with(table: pa.Table, row: int, column: str, value: float) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    place = table.column_names.index(column)
    return table.set_column(place, column, pa.array(values, table.schema.field(column).type))


def test_a_table_that_holds_the_truth_has_no_fault(log: tuple[pa.Table, dict[str, Any]]) -> None:
    assert not any(_faults(*log).values())


def test_a_lost_row_is_missing(log: tuple[pa.Table, dict[str, Any]]) -> None:
    table, truth = log
    row = _row(table, "fwd")
    kept = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
    assert _faults(kept, truth) == {"missing": 1, "wrong": 0, "invented": 0, "unplaced": 0}


def test_a_row_twice_is_invented(log: tuple[pa.Table, dict[str, Any]]) -> None:
    table, truth = log
    twice = pa.concat_tables([table, table.slice(_row(table, "bwd"), 1)])
    assert _faults(twice, truth)["invented"] == 1


def test_a_number_off_by_a_digit_is_wrong(log: tuple[pa.Table, dict[str, Any]]) -> None:
    table, truth = log
    row = _row(table, "bwd_inner")
    changed = _with(table, row, "seconds", table["seconds"][row].as_py() + 1e-5)
    assert _faults(changed, truth)["wrong"] == truth["kinds"]["time_global"]["records"]


def test_a_right_number_at_another_step_is_unplaced(log: tuple[pa.Table, dict[str, Any]]) -> None:
    table, truth = log
    row = _row(table, "bwd_inner")
    changed = _with(table, row, "step", table["step"][row].as_py() + 1)
    assert _faults(changed, truth)["unplaced"] == truth["kinds"]["time_global"]["records"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_of_every_dialect_each_number_is_read_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    """Under any launcher, with decoys and broken bytes, and with more colours, glue and torn heads
    than benchmarks have: of each kind enough to meet each kind of line."""
    shares = {"none": 0.7, "colour": 0.1, "glue": 0.1, "tear": 0.1}
    monkeypatch.setattr(generate, "MANGLES", shares)
    path = tmp_path / "run.log"
    options = Options(
        size=400_000, metric_share=0.5, dialects=(dialect,), launches=1, wrapper="mixed"
    )
    faults = vars(exact.compare(write(path, options).as_json(), found(engine.events([path]))))
    assert {nature: faults[nature] for nature in VALUES} == {nature: [] for nature in VALUES}


def test_a_log_with_crlf_reads_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    truth = write(path, Options(size=300_000, newline="\r\n")).as_json()
    faults = vars(exact.compare(truth, found(engine.events([path]))))
    assert {nature: faults[nature] for nature in VALUES} == {nature: [] for nature in VALUES}


def test_ways_of_reading_are_compared_row_by_row(tmp_path: Path) -> None:
    """The log itself is no different from its copy; another log is."""
    log, other = tmp_path / "a.log", tmp_path / "b.log"
    write(log, Options(size=60_000))
    write(other, Options(size=60_000, seed=2))
    copy = tmp_path / "a.copy"
    copy.write_bytes(log.read_bytes())
    assert not any(differences(log, [copy]).values())
    assert differences(log, [other])["log copy"]
