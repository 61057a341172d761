"""Models used as people use them, with the hook on: copied, compiled, forked, in threads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.hook.jobs_of import run_each
from tests.hook.rows import Rows, folder

JOB = ("edges",)
STEPS = 4


@pytest.fixture(scope="module")
def result(out: Path) -> dict[str, Any]:
    """Of one process that knows of no ranks."""
    return run_each("edges", out, {"all": 1}, "torch")["all"][0]


@pytest.fixture
def rows(result: dict[str, Any], out: Path, name: str) -> Rows:
    assert result
    (found,) = folder(out / "all" / name)
    return found


def steps(rows: Rows) -> list[int]:
    return [row.step for row in rows.steps]


def count(rows: Rows, path: str) -> int:
    return sum(row.path == path for row in rows.spans)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "averaged"])
def test_a_copy_computes_with_its_own_weights_and_knows_nothing_of_the_hook(
    result: dict[str, Any], way: str
) -> None:
    """An average of weights, a target network, a model that is saved whole."""
    assert result["copies"][way] == result["copies"]["before"]
    assert result["copies"]["left"] == []


@pytest.mark.parametrize("name", ["copies"])
def test_what_a_copy_computes_is_no_phase(rows: Rows) -> None:
    assert count(rows, "forward") == STEPS + 1  # one before the copies were made


def test_a_replica_for_another_device_is_as_if_nothing_had_been_attached(
    result: dict[str, Any],
) -> None:
    assert result["replica"]["first"] == result["replica"]["plain"]
    assert result["replica"]["left"] == result["replica"]["right"]


@pytest.mark.parametrize("name", ["scripted"])
def test_a_model_that_torchscript_compiles_meanwhile_is_recorded_on(
    result: dict[str, Any], rows: Rows
) -> None:
    assert result["scripted"] == {"trace": True, "script": True}
    assert steps(rows) == [1, 2]
    assert count(rows, "forward") == 4  # two to compare with


@pytest.mark.parametrize("order", ["first in, first out", "last in, first out"])
def test_handles_may_end_in_any_order_and_restore_everything(
    result: dict[str, Any], order: str
) -> None:
    assert result["left"][order] == []


@pytest.mark.parametrize("name", ["nested"])
def test_a_block_within_a_block_ends_nothing_and_a_wrong_call_harms_no_other(
    result: dict[str, Any], out: Path, rows: Rows
) -> None:
    assert result["nested"]["same"]
    assert steps(rows) == [1, 2, 3, 4]
    said = (out / "all" / "stderr").read_text(encoding="utf-8")
    assert said.count("stopped") == said.count("attach(Sequential): needs the optimizer") == 1


@pytest.mark.parametrize("name", ["here"])
def test_a_process_has_one_recording_and_says_that_another_folder_gets_nothing(
    out: Path, rows: Rows
) -> None:
    assert [(row.engine, row.step) for row in rows.steps] == [
        (0, 1), (0, 2), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip
    assert not (out / "all" / "elsewhere").exists()
    said = (out / "all" / "stderr").read_text(encoding="utf-8")
    assert said.count("dsprof: rank 0: nothing goes into ") == 1
    assert f"{out / 'all' / 'elsewhere'}: this process is recorded in " in said


@pytest.mark.parametrize("name", ["asked again"])
def test_what_is_found_goes_where_it_was_asked_for_last(out: Path, rows: Rows) -> None:
    assert steps(rows) == [2, 3, 4]
    assert not (out / "all" / "asked first").exists()


@pytest.mark.parametrize("name", ["beside a search"])
def test_a_model_attached_without_a_folder_goes_where_a_search_under_way_was_asked_to(
    rows: Rows,
) -> None:
    assert steps(rows) == [1, 2]


@pytest.mark.parametrize("name", ["place"])
def test_a_model_where_another_lay_is_a_model_of_its_own(rows: Rows) -> None:
    assert [(row.engine, row.step) for row in rows.steps] == [(0, 1), (1, 1)]


def test_a_forked_process_that_trains_is_recorded_by_itself(
    result: dict[str, Any], out: Path
) -> None:
    assert result["forked"] == 7
    assert sorted(map(steps, folder(out / "all" / "forked"))) == [[1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.parametrize("name", ["ahead"])
def test_batches_that_a_thread_loads_ahead_keep_no_step_waiting(rows: Rows) -> None:
    assert count(rows, "data") == 0
    assert [count(rows, path) for path in ("forward", "backward", "step")] == [21, 21, 21]


@pytest.mark.parametrize("name", ["epochs"])
def test_what_a_loop_saves_by_itself_and_a_loader_that_begins_anew_are_phases_of_a_step(
    rows: Rows,
) -> None:
    """Of the step that follows. What is before the first step is of none."""
    told = {path: [row.step for row in rows.spans if row.path == path] for path in rows.classes}
    assert told["checkpoint"] == [3, 3, 5, 5]
    assert told["data"] == [2, 3, 3, 3, 4, 5]  # an epoch: its beginning, its batches, its end
    assert rows.classes["checkpoint"] == "checkpoint"


@pytest.mark.parametrize("name", ["epochs"])
def test_a_recording_knows_how_many_workers_make_batches_and_whether_they_stay(rows: Rows) -> None:
    assert rows.config["data_workers"] == 1
    assert rows.config["data_workers_persist"] == 1


@pytest.mark.parametrize("name", ["epochs"])
def test_a_recording_knows_in_which_steps_iterators_of_loaders_are_made(rows: Rows) -> None:
    """That of the first epoch is made before the first step."""
    assert rows.metric("data_iterators") == {3: 1}


@pytest.mark.parametrize("name", ["answering"])
def test_what_a_thread_asks_of_the_model_that_another_one_trains_is_in_no_step(rows: Rows) -> None:
    assert steps(rows) == list(range(1, 22))
    assert count(rows, "evaluation") == 0
    assert [count(rows, path) for path in ("forward", "backward", "step")] == [21, 21, 21]


@pytest.mark.parametrize("name", ["failed"])
def test_a_batch_whose_backward_fails_is_none_of_the_step_that_follows(
    result: dict[str, Any], rows: Rows
) -> None:
    """Where training survives it: neither its loss nor its micro-batch."""
    assert list(rows.metric("loss").values()) == pytest.approx(result["failed"])
    assert [row.micros for row in rows.steps] == [1] * STEPS
    assert count(rows, "backward") == 2 * STEPS


@pytest.mark.parametrize("name", ["orders"])
def test_a_micro_batch_has_a_forward_and_a_backward_that_lets_go_of_it(rows: Rows) -> None:
    """Not each loss of one forward, nor each forward of one loss, nor one without a backward."""
    assert [row.micros for row in rows.steps] == [1, 3, 3, 2, 1, 1]


@pytest.mark.parametrize("name", ["pooled"])
def test_steps_that_threads_of_a_pool_take_in_turns_are_recorded_in_each(rows: Rows) -> None:
    """As `asyncio.to_thread` gives them out. Of the second thread's first step nothing was seen:
    where its time went is unknown."""
    assert steps(rows) == list(range(1, 9))
    for path in ("forward", "backward", "step"):
        assert [row.step for row in rows.spans if row.path == path] == [1, 3, 4, 5, 6, 7, 8]
    assert count(rows, "evaluation") == 0
    assert [row.step for row in rows.steps if math.isnan(row.classes[0])] == [2]
    assert sorted(rows.metric("loss")) == [1, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("name", ["reentrant False", "reentrant True", "whole"])
def test_what_is_computed_again_in_backward_is_backward(
    result: dict[str, Any], rows: Rows, name: str
) -> None:
    plain, watched = result["checkpoints"][name]
    assert watched == plain
    assert steps(rows) == list(range(1, STEPS + 1))
    assert [count(rows, path) for path in ("forward", "backward", "step")] == [STEPS] * 3
    assert {row.micros for row in rows.steps} == {1}


@pytest.mark.parametrize("name", ["attached first", "compiled first", "in place", "in place first"])
def test_a_compiled_model_is_recorded_whole(result: dict[str, Any], rows: Rows, name: str) -> None:
    assert result["compiled"][name] == result["compiled"]["plain"]
    assert steps(rows) == list(range(1, STEPS + 1))
    assert [count(rows, path) for path in ("forward", "backward", "step")] == [STEPS] * 3


@pytest.mark.parametrize("name", ["by hand", "found"])
def test_a_compiled_replica_waits_for_its_gradients(rows: Rows, name: str) -> None:
    """Found at its optimizer's first step."""
    whole = STEPS - (name == "found")
    assert [count(rows, path) for path in ("forward", "backward", "step")] == [whole] * 3
    waited = {(row.path, row.op) for row in rows.collectives}
    assert waited == {("backward", "all_reduce")}
    assert len({row.step for row in rows.collectives}) == whole


@pytest.mark.parametrize("name", ["shared"])
def test_models_that_share_weights_are_found_each_with_its_own_optimizer(rows: Rows) -> None:
    """The first step of each is over when it is found."""
    assert [(row.engine, row.step) for row in rows.steps] == [
        (0, 2), (0, 3), (1, 2), (0, 4), (0, 5), (1, 3),
    ]  # fmt: skip
    assert [(row.engine, row.step) for row in rows.spans if row.path == "forward"] == [
        (row.engine, row.step) for row in rows.steps
    ]


@pytest.mark.parametrize("name", ["transformed"])
def test_a_loss_that_stands_for_many_or_for_none_is_unknown_and_ends_nothing(rows: Rows) -> None:
    assert steps(rows) == list(range(1, STEPS + 2))
    assert [row.step for row in rows.metrics if row.name == "loss"] == [STEPS + 1]
    assert rows.problems == []
