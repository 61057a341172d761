"""Metrics that stand in a file of their own, an object of JSON in each line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsprof import Run, load
from tests.findings.plants import alone


def _run_of(tmp_path: Path, rows: list[dict[str, object]]) -> Run:
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load(log)


def test_a_loops_own_metrics_tell_how_long_a_turn_took_if_they_have_time_stamps(
    tmp_path: Path,
) -> None:
    rows: list[dict[str, object]] = [
        {"step": 10 * n, "loss": 2.5, "timestamp": f"2025-05-01T10:00:{5 * n:02}"}
        for n in range(1, 11)
    ]
    found = alone(_run_of(tmp_path, rows), "unaccounted-time")
    assert found.title.startswith("A turn of the loop took 500 ms in the mean of 90;")


@pytest.mark.parametrize("first", [{"event": "log"}, {"type": "metrics"}, {"event": "epoch_step"}])
def test_turns_are_read_whatever_a_loop_calls_the_event_of_their_lines(
    tmp_path: Path, first: dict[str, object]
) -> None:
    rows = [{**first, "step": n, "loss": 2.5 - n / 10} for n in (1, 2, 3)]
    rows.append({"event": "epoch_eval", "step": 3, "loss": 2.75})
    run = _run_of(tmp_path, rows)
    assert run.steps["loss"].to_list() == pytest.approx([2.4, 2.3, 2.2])
    assert (run.events["name"] == "eval_loss").sum() == 1


def test_lines_of_a_trainers_history_tell_its_steps_and_not_the_mean_loss_as_a_loss(
    tmp_path: Path,
) -> None:
    rows: list[dict[str, object]] = [
        {"epoch": n / 10, "learning_rate": 2e-5, "loss": 3.0 - n, "step": 10 * n} for n in (1, 2)
    ]
    rows.append({"epoch": 0.2, "step": 20, "train_loss": 1.5, "train_runtime": 20.5})
    steps = _run_of(tmp_path, rows).steps
    assert steps["step"].to_list() == [10, 20]
    assert steps["loss"].to_list() == [2.0, 1.0]


@pytest.mark.parametrize("name", ["detectron2", "dinov2"])
def test_metrics_of_vision_tell_how_long_a_turn_took_and_waited_for_data(
    tmp_path: Path, name: str
) -> None:
    detectron2: list[dict[str, object]] = [
        {
            "data_time": 0.125,
            "eta_seconds": 60.5,
            "iteration": 20 * n - 1,
            "lr": 0.02,
            "time": 0.5,
            "total_loss": 2.0,
        }
        for n in range(1, 31)
    ]
    dinov2: list[dict[str, object]] = [
        {"iteration": 10 * n, "iter_time": 0.5, "data_time": 0.125, "lr": 0.1, "total_loss": 11.5}
        for n in range(60)
    ]
    run = _run_of(tmp_path, detectron2 if name == "detectron2" else dinov2)
    assert run.steps["seconds"].dropna().unique().tolist() == [0.5]
    assert run.findings[0].rule == "data-bound"


def test_instructlabs_file_of_metrics_tells_what_its_log_does(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {
            "epoch": 0,
            "step": n,
            "rank": 0,
            "overall_throughput": 32.0,
            "lr": 1e-5,
            "cuda_mem_allocated": 1.5,
            "batch_size": 96,
            "total_loss": 0.5,
            "timestamp": f"2025-05-01T10:00:{3 * n:02}.250000",
        }
        for n in range(1, 15)
    ]
    run = _run_of(tmp_path, rows)
    assert run.meta["framework"] == "instructlab"
    assert run.findings[0].title.startswith("A step takes 3.00 s")


@pytest.mark.parametrize(
    "named", [{"split": "val"}, {"phase": "validation"}, {"event": "eval_end"}]
)
def test_a_line_that_names_an_evaluation_is_no_turn_of_the_loop(
    tmp_path: Path, named: dict[str, object]
) -> None:
    rows: list[dict[str, object]] = []
    for n in range(1, 11):
        stamp = f"2025-05-01T10:00:{5 * n:02}"
        rows.append({"timestamp": stamp, "step": 10 * n, "split": "train", "loss": 2.5})
        rows.append({"timestamp": stamp, "step": 10 * n, **named, "loss": 9.5})
    run = _run_of(tmp_path, rows)
    assert len(run.steps) == 10
    assert run.steps["loss"].max() == 2.5


def test_turns_of_several_ranks_in_one_file_are_told_apart_by_their_key(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"step": n, "rank": rank, "loss": 2.0 + rank} for n in range(1, 11) for rank in range(4)
    ]
    steps = _run_of(tmp_path, rows).steps
    assert len(steps) == 10
