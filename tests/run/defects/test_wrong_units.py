"""Milliseconds printed as seconds are known by the clock and a second witness, else doubted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsprof.run import Run, from_events, load
from tests.conftest import SAMPLES
from tests.run.run_rows import events, grammar_with, metric, timers

START = pd.Timestamp("2024-05-01")


def run_of(*rows: dict[str, Any]) -> Run:
    stage = {"kind": "config", "name": "zero_stage", "value": 0}
    return from_events(events([stage, *rows]), grammar=grammar_with())


def marks(
    wall: float, stated: float | None = None, *, count: int = 8, recorded: bool = False
) -> list[dict[str, Any]]:
    """Steps of `wall` seconds by the clock, of `stated` seconds by their lines or a recording."""
    rows = []
    for step in range(1, count + 1):
        at = START + pd.Timedelta(seconds=step * wall)
        rows.append(metric("lr", step, 0.1, at=at))
        if stated is not None:
            said = metric("step_seconds", step, stated, at=at)
            rows.append(said | {"pattern": None if recorded else "deepspeed.throughput"})
    return rows


def engine(forward: float, *, count: int = 8) -> list[dict[str, Any]]:
    return [
        row
        for step in range(1, count + 1)
        for row in timers("zero", step, forward=forward, backward=2 * forward, step=forward / 4)
    ]


def names(run: Run) -> list[str]:
    return run.repairs["name"].tolist()


def test_a_stated_time_that_the_clock_and_the_timers_refute_is_in_milliseconds() -> None:
    run = run_of(*marks(5.8, 5800.0), *engine(1.5))
    assert names(run) == ["milliseconds-as-seconds"]
    assert run.steps["seconds"].to_list() == pytest.approx([5.8] * 8)


FAIRSEQ = (
    "2020-07-17 07:{:02}:00 | INFO | train_inner | epoch 001:   {} / 160368 loss=9.2, wps={}, "
    "ups={}, wpb=1613, bsz=80, num_updates={}, lr=2.8e-05, gnorm=3.2, train_wall=13, wall=1236\n"
)


@pytest.mark.parametrize(("ups", "known"), [(0.02, False), (1.67, True)])
def test_rates_of_one_update_over_the_time_of_many_are_dropped(
    tmp_path: Path, ups: float, known: bool
) -> None:
    """100 updates a minute by the stamps."""
    log = tmp_path / "run.log"
    lines = [FAIRSEQ.format(n, 100 * n, 2690 * ups / 1.67, ups, 100 * n) for n in range(1, 8)]
    log.write_text("".join(lines))
    run = load(log)
    assert run.steps["seconds"].to_list()[1:] == pytest.approx([0.6] * 6)
    assert ("rates-of-one-update" in names(run)) is not known
    assert run.steps["tokens_per_second"].notna().all() == known
    assert run.steps["samples_per_second"].notna().any() == known


def test_times_of_a_recording_are_of_one_clock_and_no_unit() -> None:
    run = run_of(*marks(5.8, 5800.0, recorded=True))
    assert names(run) == []
    assert run.steps["seconds"].to_list() == pytest.approx([5800.0] * 8)


def test_timers_that_the_clock_and_a_stated_time_refute_are_in_milliseconds() -> None:
    run = run_of(*marks(5.8, 5.8), *engine(1500.0))
    assert names(run) == ["milliseconds-as-seconds"]
    assert run.phases.groupby("name")["seconds"].max()["forward"] == pytest.approx(1.5)
    assert run.steps["optimizer"].to_list() == pytest.approx([0.375] * 8)


def test_where_nothing_agrees_with_the_clock_neither_is_believed() -> None:
    run = run_of(*marks(5.8), *engine(1500.0))
    assert names(run) == ["times-beyond-clock"]
    assert run.repairs["kind"].item() == "doubt"
    assert run.steps["seconds"].to_list() == pytest.approx([4875.0] * 8)


@pytest.mark.parametrize(
    ("wall", "stated", "forward"),
    [
        pytest.param(5.8, 5.7, 1.5, id="all-agree"),
        pytest.param(5800.0, 5.8, 1.5, id="long-pauses-between-steps"),
        pytest.param(5.8, 58.0, 1.5, id="ten-times"),
    ],
)
def test_other_differences_are_no_unit(wall: float, stated: float, forward: float) -> None:
    run = run_of(*marks(wall, stated), *engine(forward))
    assert "milliseconds-as-seconds" not in names(run)
    assert "times-beyond-clock" not in names(run)


def test_a_number_of_a_step_that_jumps_is_no_time_that_passed() -> None:
    later = [row | {"step": row["step"] + 100_000} for row in (*marks(1.1), *engine(0.25))]
    for row in later[:8]:
        row["at"] = row["at"] + pd.Timedelta(seconds=9)
    assert names(run_of(*marks(1.1), *engine(0.25), *later)) == []


def test_time_stamps_that_are_close_by_chance_prove_nothing() -> None:
    assert names(run_of(*marks(0.001, 1.0, count=4), *engine(0.25, count=4))) == []


@pytest.mark.parametrize("version", ["0.16.9", "0.19.8"])
def test_a_csv_folder_that_names_no_version_is_read(version: str) -> None:
    run = load(SAMPLES / f"csv_monitor_{version}")
    assert not run.repairs["name"].eq("monitor-1000x").any()
    assert run.phases["seconds"].max() < 1
