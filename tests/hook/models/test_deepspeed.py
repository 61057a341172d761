"""What loops do with their engines on two real ranks, as it is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsprof
from tests.hook.rows import folder

JOB = ("engines",)
pytestmark = pytest.mark.usefixtures("results")
STEPS = 4
CONFIGURED = 2 * 8  # samples of a micro-batch, of both ranks


def test_a_step_has_the_samples_of_all_its_micro_batches(out: Path) -> None:
    for rows in folder(out / "no_sync"):
        assert {step.micros for step in rows.steps} == {3}
        told = rows.metric("global_batch_size")
        assert told == dict.fromkeys(range(1, STEPS + 1), 3.0 * CONFIGURED)
    steps = dsprof.load(out / "no_sync").steps
    samples = steps["samples_per_second"] * steps["seconds"]
    assert samples.tolist() == pytest.approx([3 * CONFIGURED] * STEPS)


def test_a_batch_that_is_set_on_the_way_is_that_of_the_steps_behind_it(out: Path) -> None:
    steps = dsprof.load(out / "batch").steps
    told = steps["samples_per_second"] * steps["seconds"]
    assert told.tolist() == pytest.approx([CONFIGURED] * 2 + [2 * CONFIGURED] * 2)
    for rows in folder(out / "batch"):  # of the others the configuration says it
        assert rows.metric("global_batch_size") == {3: 2 * CONFIGURED, 4: 2 * CONFIGURED}


def test_engines_of_one_process_have_their_own_batches_and_stages(out: Path) -> None:
    run = dsprof.load(out / "two")
    told = run.steps["samples_per_second"] * run.steps["seconds"]
    by_engine = told.groupby(run.steps["engine"]).mean()
    assert by_engine.tolist() == pytest.approx([CONFIGURED, 2 * CONFIGURED])
    said = run.told[run.told["name"].astype("str") == "zero_stage"]
    assert said.groupby("engine")["value"].unique().map(list).to_dict() == {0: [1], 1: [3]}


def test_engines_that_are_found_keep_their_steps_apart(
    results: list[dict[str, Any]], out: Path
) -> None:
    """They train in turn, and nobody named them."""
    ranks = folder(out / "found")
    assert [rank.header["rank"] for rank in ranks] == [0, 1]
    assert all(rank.ended for rank in ranks)
    assert [result["imported"] for result in results] == [[], []]
    for rank in ranks:
        for engine in (0, 1):
            steps = [row.step for row in rank.steps if row.engine == engine]
            assert steps == list(range(1, STEPS + 1))
            forwards = [
                row.step for row in rank.spans if row.path == "forward" and row.engine == engine
            ]
            assert forwards == steps
            assert any(row.engine == engine for row in rank.collectives)


def test_settings_are_those_of_the_engine_that_trains_not_of_one_that_only_evaluates(
    out: Path,
) -> None:
    config = dsprof.load(out / "reference").config
    said = config["zero_stage"], config["gradient_accumulation_steps"], config["world_size"]
    assert said == (2, 2, 2)
    assert config["ds_config"]["zero_optimization"]["stage"] == 2


def test_an_engine_of_a_model_that_is_attached_goes_on_with_its_steps(out: Path) -> None:
    for rows in folder(out / "wraps"):
        assert [(step.engine, step.step) for step in rows.steps] == [(0, n) for n in range(1, 5)]
        assert {span.engine for span in rows.spans} == {0}
    run = dsprof.load(out / "wraps")
    assert (run.config["zero_stage"], run.config["dtype"]) == (1, "fp32")
    assert run.config["framework"] == "deepspeed"
    assert run.config["ds_config"]["gradient_clipping"] == 1.0


def test_an_engine_of_a_model_that_trained_without_it_counts_its_own_steps(out: Path) -> None:
    for rows in folder(out / "wraps a trained model"):
        steps = [(step.engine, step.step) for step in rows.steps]
        assert steps == [(0, 1), *((1, n) for n in range(1, 5))]
        assert {span.step for span in rows.spans if span.engine == 0} == {1}


def test_what_stage_3_gathers_to_save_a_model_is_part_of_the_save(out: Path) -> None:
    for rows in folder(out / "saves"):
        (save,) = (span for span in rows.spans if span.path == "checkpoint")
        inside = [row for row in rows.collectives if 0 <= row.begin - save.begin < save.length]
        assert inside
        assert {row.path for row in inside} == {"checkpoint"}


def test_states_that_a_loop_moves_off_the_device_and_back_are_phases_of_the_next_step(
    out: Path,
) -> None:
    for rows in folder(out / "moves"):
        for path in ("offload_states", "reload_states"):
            moved = [span for span in rows.spans if span.path == path]
            assert [span.step for span in moved] == [2, 3, 4, 5]
            assert all(span.length >= 10_000_000 for span in moved)
    steps = dsprof.load(out / "moves").steps
    assert (steps["offload"].iloc[1:] >= 0.02).all()


def test_an_evaluation_of_an_engine_with_gradients_is_no_training(out: Path) -> None:
    """`engine.eval()` changes the model's mode alone, not the engine's."""
    for rows in folder(out / "evaluates"):
        phases = [(span.path, span.step) for span in rows.spans]
        assert phases.count(("evaluation", 2)) == phases.count(("evaluation", 4)) == 3
        assert [step for path, step in phases if path == "forward"] == list(range(1, STEPS + 1))


def test_the_loss_scale_is_told_without_zero(out: Path, results: list[dict[str, Any]]) -> None:
    for rows, result in zip(folder(out / "scaled"), results, strict=True):
        assert list(rows.metric("loss_scale").values()) == result["scales"]


def test_losses_of_one_micro_batch_are_parts_of_what_it_learns_from(
    out: Path, results: list[dict[str, Any]]
) -> None:
    for rows, result in zip(folder(out / "losses"), results, strict=True):
        assert list(rows.metric("loss").values()) == pytest.approx(result["losses"])


def test_losses_of_micro_batches_that_no_forward_of_the_engine_parts_are_not_summed(
    out: Path, results: list[dict[str, Any]]
) -> None:
    for rows, result in zip(folder(out / "module"), results, strict=True):
        assert list(rows.metric("loss").values()) == pytest.approx(result["means"])


def test_a_batch_whose_backward_fails_is_none_of_the_step_that_follows(
    out: Path, results: list[dict[str, Any]]
) -> None:
    """Where training survives it: neither its loss nor its samples."""
    for rows, result in zip(folder(out / "failed"), results, strict=True):
        assert list(rows.metric("loss").values()) == pytest.approx(result["failed"])
        assert [step.micros for step in rows.steps] == [1] * STEPS
        assert not rows.metric("global_batch_size")
