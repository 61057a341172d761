"""Where a step ends that several optimizers make, one after another or inside backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsprof.events import Class
from dsprof.hook.spans import CLASSES
from tests.hook.jobs_of import run_each
from tests.hook.rows import Rows, folder

JOB = ("stepping",)
STEPS, SLEEP, SELDOM = 6, 0.01, 3
DERIVED = ("derived", "derived found")
WRAPPING = ("wraps", "wraps found")
KINDS = ("one", "two", "seldom", "inside backward", "found", *DERIVED, "tries", *WRAPPING, "holds")
INSIDE = ("inside backward", "found")
PARAMETERS = 8
OPTIMIZER = CLASSES.index(Class.OPTIMIZER)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_and_no_hook_is_left(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"] == result[kind]["plain"]
        assert result[kind]["watched"][-1] == "0"


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_counted_once_however_many_optimizers_make_them(
    rows: list[Rows], kind: str
) -> None:
    """A model that is found by itself is recorded from its second step on."""
    for rank in rows:
        assert [row.step for row in rank.steps] == list(range(1 + ("found" in kind), STEPS + 1))
        losses = [row.step for row in rank.metrics if row.name == "loss"]
        assert losses == [row.step for row in rank.steps]


@pytest.mark.parametrize("kind", ["one", "tries"])
def test_the_loss_of_an_optimizer_that_tries_its_closure_again_is_that_of_the_first_time(
    results: list[dict[str, Any]], rows: list[Rows], kind: str
) -> None:
    for result, rank in zip(results, rows, strict=True):
        losses = [float.fromhex(loss) for loss in result[kind]["watched"][:STEPS]]
        assert [row.value for row in rank.metrics if row.name == "loss"] == losses


@pytest.mark.parametrize("kind", ["one", "found"])
def test_ddp_and_fsdp2_tell_once_how_large_the_model_is_and_on_how_many_ranks(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        assert rank.config["parameters"] == 3 * 64 * 65 + 65, kind
        assert rank.config["data_parallel_size"] == 2


@pytest.mark.parametrize(("kind", "each"), [("one", 1), ("two", 2)])
def test_a_step_holds_all_of_its_optimizers(rows: list[Rows], kind: str, each: int) -> None:
    """Once it is known: nobody named the second optimizer, which the first step ended without."""
    for rank in rows:
        for step in rank.steps[each - 1 :]:
            assert step.classes[OPTIMIZER] >= each * SLEEP, kind
        spans = [row.step for row in rank.spans if row.path == "step"]
        assert [spans.count(step) for step in range(3, STEPS + 1)] == [each] * (STEPS - 2)
        assert len(spans) == each * STEPS


@pytest.mark.parametrize("kind", ["seldom"])
def test_an_optimizer_that_steps_seldom_makes_no_step_of_its_own(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        spans = [row.step for row in rank.spans if row.path == "step"]
        assert {spans.count(step) for step in range(1, STEPS + 1)} == {1, 2}, kind
        assert len(spans) == STEPS + STEPS // SELDOM


@pytest.mark.parametrize("kind", ["turns"])
def test_steps_of_optimizers_that_take_turns_tell_which_of_them_ended_them(
    rows: list[Rows], kind: str
) -> None:
    """The last one ends where the next forward would begin, which the run has no more of."""
    for rank in rows:
        assert [row.step for row in rank.steps] == list(range(1, STEPS)), kind
        assert rank.metric("optimizer_index") == {SELDOM: 1}


@pytest.mark.parametrize("kind", ["one", "seldom", *INSIDE])
def test_where_one_optimizer_ends_all_steps_nothing_is_told_of_which(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        assert rank.metric("optimizer_index") == {}, kind


@pytest.mark.parametrize("kind", INSIDE)
def test_a_step_inside_backward_ends_with_it(rows: list[Rows], kind: str) -> None:
    for rank in rows:
        for step in rank.steps:
            mine = [row for row in rank.spans if row.step == step.step]
            (backward,) = (row for row in mine if row.path == "backward")
            inside = [row for row in mine if row.path == "backward/optimizer_step"]
            assert len(inside) == PARAMETERS, kind
            assert step.classes[OPTIMIZER] >= PARAMETERS * SLEEP
            for one in inside:
                assert backward.begin <= one.begin
                assert one.begin + one.length <= backward.begin + backward.length
        assert not [row for row in rank.spans if row.path == "step"]


@pytest.mark.parametrize("kind", DERIVED)
def test_an_optimizer_that_calls_the_step_of_a_base_class_in_use_steps_once(
    rows: list[Rows], kind: str
) -> None:
    """PyTorch runs its hooks for both."""
    for rank in rows:
        spans = [row for row in rank.spans if row.path == "step"]
        assert [row.step for row in spans] == [row.step for row in rank.steps], kind
        assert all(row.length >= SLEEP * 1e9 for row in spans)
        assert not rank.problems


@pytest.mark.parametrize("kind", WRAPPING)
def test_a_step_of_an_optimizer_that_another_one_steps_is_part_of_that_one_s(
    rows: list[Rows], kind: str
) -> None:
    """Its time counts once, and the step ends with the outer one."""
    for rank in rows:
        spans = [row for row in rank.spans if row.path == "step"]
        assert [row.step for row in spans] == [row.step for row in rank.steps], kind
        for span, step in zip(spans, rank.steps, strict=True):
            assert span.length >= 2 * SLEEP * 1e9
            assert step.classes[OPTIMIZER] == pytest.approx(span.length * 1e-9, abs=1e-3)


@pytest.mark.parametrize("kind", ["fails"])
def test_an_optimizer_that_failed_once_ends_the_steps_behind_it(
    rows: list[Rows], kind: str
) -> None:
    """Of the hooks of a call that raises, only the first ones run: no end is of that call."""
    for rank in rows:
        assert [row.step for row in rank.steps] == list(range(1, STEPS)), kind


def test_a_step_ends_and_is_skipped_where_a_scaler_leaves_out_all_of_its_optimizers(
    tmp_path: Path,
) -> None:
    """By then the second optimizer is known to be the last. One that overflows alone skips none."""
    rank = overflowing("overflows", tmp_path)
    assert [(row.step, row.micros) for row in rank.steps] == [(step, 1) for step in range(1, 6)]
    assert list(rank.metric("skipped").values()) == [0, 1, 1, 1, 1]
    assert list(rank.metric("loss_scale").values()) == [1024, 1024, 512, 512, 256]
    assert not rank.problems


def test_a_first_step_that_is_left_out_before_any_phase_was_seen_is_not_told(
    tmp_path: Path,
) -> None:
    """A scaler's first ones often are, and the loop may never call the model as a whole: nobody saw
    when that step began."""
    rank = overflowing("by layers", tmp_path)
    assert [row.step for row in rank.steps] == list(range(2, 6))
    assert all(0 < row.length < 60e9 for row in rank.steps)
    assert list(rank.metric("skipped").items()) == [(step, 1) for step in range(2, 6)]


def test_what_holds_the_optimizer_and_is_one_by_its_class_alone_may_be_named(
    tmp_path: Path,
) -> None:
    assert [row.step for row in overflowing("held", tmp_path).steps] == list(range(1, 6))


def overflowing(kind: str, out: Path) -> Rows:
    (result,) = run_each("scaled", out, {kind: 1}, "torch")[kind]
    assert result["watched"] == result["plain"]
    (rank,) = folder(out / kind / "run")
    return rank
