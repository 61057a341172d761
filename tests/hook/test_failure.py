"""Whatever befalls the hook, training goes on as if it were not there, and one line says so."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import launch, run
from tests.hook.rows import folder, in_flight

STEPS, AT = 8, 4


@cache
def unharmed(out: Path) -> tuple[str, ...]:
    """Losses of the same job where nothing happens."""
    return tuple(run("failing", out, "nothing")[0]["losses"])


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return unharmed(tmp_path_factory.mktemp("unharmed"))


def result_of(out: Path, way: str) -> tuple[list[dict[str, Any]], str]:
    done = launch("failing", out, way)
    assert done.returncode == 0, done.stderr[-3000:]
    return run_results(out), done.stderr


def run_results(out: Path) -> list[dict[str, Any]]:
    import json

    return [json.loads((out / f"result-{r}.json").read_text(encoding="utf-8")) for r in (0, 1)]


def said(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "dsprof" in line and "Warning" not in line]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("exception", "ZeroDivisionError: planted"),
        ("disk", "cannot be written: No space left on device"),
    ],
)
def test_a_failure_inside_is_said_once_a_rank_and_training_goes_on(
    tmp_path: Path, losses: tuple[str, ...], way: str, words: str
) -> None:
    results, stderr = result_of(tmp_path, way)
    assert tuple(results[0]["losses"]) == losses
    lines = said(stderr)
    assert len(lines) == 2
    assert all("training goes on" in line and words in line for line in lines)
    for rank in folder(tmp_path / "run"):
        steps = [row.step for row in rank.steps]
        assert steps == list(range(1, AT + 1))  # what was written stays readable
        recorded = [row.text for row in rank.problems if row.name == "recording-stopped"]
        assert recorded == ([words] if way == "exception" else [])  # a full disk takes no more


def test_a_folder_that_cannot_be_made_costs_the_recording_alone(
    tmp_path: Path, losses: tuple[str, ...]
) -> None:
    results, stderr = result_of(tmp_path, "folder")
    assert tuple(results[0]["losses"]) == losses
    assert results[0]["folder"] is None
    assert 2 <= len(said(stderr)) <= 4  # each of two attempts on each of two ranks


def test_attaching_twice_gives_the_same_handle_and_counts_once(tmp_path: Path) -> None:
    results, _ = result_of(tmp_path, "nothing")
    assert all(result["same"] for result in results)
    for rank in folder(tmp_path / "run"):
        assert sum(row.path == "forward" for row in rank.spans) == STEPS


def test_workers_of_a_data_loader_write_nothing(tmp_path: Path, losses: tuple[str, ...]) -> None:
    results, stderr = result_of(tmp_path, "workers")
    assert tuple(results[0]["losses"]) == losses
    assert said(stderr) == []
    ranks = folder(tmp_path / "run")
    assert [rank.header["rank"] for rank in ranks] == [0, 1]
    assert all(rank.ended for rank in ranks)
    assert all(sum(row.path == "data" for row in rank.spans) >= STEPS - 1 for rank in ranks)


def test_checkpoints_are_phases(tmp_path: Path) -> None:
    result_of(tmp_path, "checkpoint")
    for rank in folder(tmp_path / "run"):
        paths = [row.path for row in rank.spans]
        assert paths.count("checkpoint") == 1
        assert paths.count("load_checkpoint") == 1
        assert rank.classes["checkpoint"] == "checkpoint"


def test_sigkill_loses_no_step_that_had_ended(tmp_path: Path) -> None:
    done = launch("failing", tmp_path, "kill")
    assert done.returncode != 0
    killed = next(rank for rank in folder(tmp_path / "run") if rank.header["rank"] == 1)
    assert not killed.ended
    assert [row.step for row in killed.steps] == list(range(1, AT + 1))
    file = next((tmp_path / "run").glob("rank-00001*"))
    assert in_flight(file)[0] == ""  # it died between collectives
