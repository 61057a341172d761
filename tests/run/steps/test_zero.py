"""The ZeRO stage is stated, or told by what its timers are; what stays unknown is never assumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsprof.run import Run, from_events
from dsprof.run.steps.zero import UNSEEN, UNTIMED
from tests.run.run_rows import config, events, grammar_with, metric, timers

ENGINE: dict[str, Any] = {
    "forward": 0.2,
    "backward": 0.6,
    "backward_inner": 0.3,
    "backward_allreduce": 0.2,
    "step": 0.1,
}


def run_of(*rows: dict[str, Any]) -> Run:
    return from_events(events(rows), grammar=grammar_with())


def lines(*optimizer: str, flavour: str = "zero-optimizer") -> list[dict[str, Any]]:
    inside: dict[str, Any] = dict.fromkeys(optimizer, 0.02)
    return [*timers(flavour, 1, **inside), *timers("zero", 1, **ENGINE)]


def mixed(run: Run) -> list[str]:
    return sorted(run.phases.loc[run.phases["mixed"], "name"])


@pytest.mark.parametrize(
    ("rows", "stages"),
    [
        ([config("zero_stage", 2), *lines("optimizer_step")], (2,)),
        (lines("optimizer_step"), (3,)),
        (lines("init_optimizer_state", flavour="zero3-init"), (3,)),
        (lines("optimizer_gradients", "optimizer_step", "optimizer_allgather"), (1, 2)),
        (lines("basic_step", flavour="fp16-optimizer"), (0,)),
        ([config("nodes", 1, pattern="launcher.nodes"), *lines()], (0, 1, 2, 3)),
        (lines(), (0, 1, 2, 3)),
    ],
    ids=["stated", "lone step", "set-up", "sharded", "fp16", "launch", "excerpt"],
)
def test_the_timers_of_an_optimizer_tell_its_stage(
    rows: list[dict[str, Any]], stages: tuple[int, ...]
) -> None:
    assert run_of(*rows).zero.stages == stages


@pytest.mark.parametrize(
    ("files", "stages"),
    [
        (["stage3.py:2323", "logging.py:68"], (3,)),
        (["stage_1_and_2.py:1651"], (1, 2)),
        (["stage2.py:1132", "stage2.py:111"], (1, 2)),
        (["stage_1_and_2.py:149", "stage3.py:170"], (0, 1, 2, 3)),  # engines of two stages
        (["my_stage3.py:12"], (0, 1, 2, 3)),
    ],
    ids=["3", "1 or 2", "early", "two engines", "another's"],
)
def test_code_of_one_optimizer_in_the_loggers_headers_tells_its_stage(
    files: list[str], stages: tuple[int, ...]
) -> None:
    lines = {"fingerprints": dict.fromkeys(files, 2)}
    rows = timers("zero", 1, **ENGINE)
    assert from_events(events(rows), grammar=grammar_with(), meta=lines).zero.stages == stages
    stated = events([config("zero_stage", 0), *rows])
    assert from_events(stated, grammar=grammar_with(), meta=lines).zero.stages == (0,)


@pytest.mark.parametrize(
    ("files", "stages"),
    [
        ([], (3,)),
        (["stage_1_and_2.py:149"], (1, 2)),
        (["stage3.py:1", "stage2.py:1"], (0, 1, 2, 3)),
    ],
)
def test_a_traceback_through_zero_3s_code_tells_it_unless_headers_tell_of_other_optimizers(
    files: list[str], stages: tuple[int, ...]
) -> None:
    """A model beside the one that is trained may be under ZeRO-3 alone."""
    lines = {"fingerprints": dict.fromkeys(files, 2)}
    rows = [*timers("zero", 1, **ENGINE), metric("zero3_frame", 1, 1.0)]
    assert from_events(events(rows), grammar=grammar_with(), meta=lines).zero.stages == stages


@pytest.mark.parametrize("shared", ["tensor", "context", "sequence", "expert"])
@pytest.mark.parametrize(
    ("size", "shares"), [("auto", False), (-2.0, False), (1, False), (4, True)]
)
def test_ranks_share_layers_where_a_size_is_a_number_of_them(
    shared: str, size: float | str, shares: bool
) -> None:
    rows = [config(f"{shared}_parallel_size", size), *timers("zero", 1, **ENGINE)]
    run = from_events(events(rows), grammar=grammar_with())
    assert bool(run.exchanged) == shares
    assert (f"what {shared} parallelism exchanges" == run.exchanged) == shares


def test_a_stage_that_only_timers_tell_is_part_of_what_the_job_is() -> None:
    assert run_of(*lines("optimizer_step")).meta["zero_stage"] == 3
    assert "zero_stage" not in run_of(*lines()).meta
    assert "zero_stage" not in run_of(*lines("optimizer_gradients")).meta


def test_zero_3_without_its_beginning_hides_communication_all_the_same() -> None:
    run = run_of(*lines("optimizer_step"))
    step = run.steps.iloc[0]
    assert step[["compute", "communication"]].isna().all()
    assert step["bound"] == "unknown"
    assert step["optimizer"] == pytest.approx(0.02)
    assert mixed(run) == ["backward_inner", "forward", "step"]
    assert run.mixed == "ZeRO-3 gathers parameters inside forward, backward and step"


def test_an_unknown_stage_leaves_communication_unknown_from_the_first_step_on() -> None:
    run = run_of(*lines(), metric("loss", 1, 1.0))
    step = run.steps.iloc[0]
    assert step[["compute", "communication", "communication_share"]].isna().all()
    assert step["optimizer"] == pytest.approx(0.1)
    assert mixed(run) == ["backward_inner", "forward"]
    assert run.repairs["name"].tolist() == ["zero-stage-unknown"]
    assert run.mixed is not None
    assert "not known" in run.mixed


def test_a_launch_without_zero_3s_timers_proves_no_other_stage() -> None:
    """Lines of ZeRO-3's own may have been filtered out, as its other lines may."""
    run = run_of(config("nodes", 1, pattern="launcher.nodes"), *lines())
    assert run.steps[["compute", "communication"]].isna().all(axis=None)
    assert "zero-stage-unknown" in set(run.repairs["name"])


def test_timers_of_fetching_split_what_zero_3_mixes() -> None:
    fetch = timers("zero3-fetch", 1, forward_fetch_wait=0.0)
    run = run_of(*fetch, *lines("optimizer_step"))
    assert mixed(run) == ["step"]
    assert run.steps["compute"].notna().all()


def test_compute_timers_hold_the_communication_that_no_timer_shows() -> None:
    """Megatron's own timers: forward and backward, reductions inside."""
    seconds: dict[str, Any] = {"forward-backward": 0.9, "optimizer": 0.1}
    told = timers("megatron", 1, **seconds)
    run = run_of(*told, config("world_size", 4), config("zero_stage", 0))
    assert run.mixed == UNSEEN
    assert mixed(run) == ["forward-backward"]
    step = run.steps.iloc[0]
    assert step[["compute", "communication"]].isna().all()
    assert (step["mixed"], step["bound"]) == (pytest.approx(0.9), "unknown")
    alone = run_of(*told, config("world_size", 1), config("zero_stage", 0))
    assert alone.steps["compute"].tolist() == [pytest.approx(0.9)]


def test_a_timer_of_communication_leaves_the_others_to_compute() -> None:
    run = run_of(config("nodes", 1, pattern="launcher.nodes"), config("zero_stage", 0), *lines())
    assert run.mixed is None


def test_a_stated_stage_gathers_in_a_step_whose_parts_no_timer_shows() -> None:
    """BF16_Optimizer prints no timers; the one for whole ZeRO-1 and 2 prints its gathering."""
    stage = config("zero_stage", 1)
    run = run_of(stage, *lines(), metric("loss", 1, 1.0))
    assert mixed(run) == ["step"]
    assert run.mixed == UNTIMED
    parts = ("optimizer_gradients", "optimizer_step", "optimizer_allgather")
    assert mixed(run_of(stage, *lines(*parts), metric("loss", 1, 1.0))) == []
    assert mixed(run_of(config("zero_stage", 0), *lines(), metric("loss", 1, 1.0))) == []


def test_under_an_unknown_stage_the_step_may_gather_unless_its_parts_are_timed() -> None:
    assert run_of(*lines()).step_may_gather
    assert not run_of(*lines(), config("world_size", 1)).step_may_gather
    assert not run_of(*lines("optimizer_step")).step_may_gather
    assert not run_of(*lines(), config("zero_stage", 0)).step_may_gather


def test_megatrons_optimizer_may_gather_too_unless_it_times_its_parts() -> None:
    """Under DeepSpeed it times the engine's step; Megatron's own times what is inside."""
    whole = timers("megatron-wrapped", 1, forward=0.2, backward=0.3, optimizer=0.5)
    assert run_of(*whole).step_may_gather
    assert "optimizer" in mixed(run_of(config("zero_stage", 2), *whole))
    assert "optimizer" not in mixed(run_of(config("zero_stage", 0), *whole))
    parts: dict[str, Any] = {"optimizer": 0.5, "optimizer-inner-step": 0.4}
    own = timers("megatron", 1, **parts)
    assert not run_of(*own).step_may_gather


def test_one_rank_has_nobody_to_gather_from() -> None:
    run = run_of(config("world_size", 1), *lines("optimizer_step"))
    assert run.mixed is None
    assert run.steps["compute"].tolist() == [pytest.approx(0.5)]


def test_what_backward_itself_leaves_unexplained_is_never_compute() -> None:
    gather = {
        "kind": "comm", "name": "all_gather_into_tensor", "step": 1, "rank": 0, "bytes": 1.0,
        "count": 1, "seconds": 0.15, "pattern": "deepspeed_comms.op",
    }  # fmt: skip
    step = run_of(gather, *lines("optimizer_step")).steps.iloc[0]
    assert step["compute"] == pytest.approx(0.5 - 0.15)
    assert step["communication"] == pytest.approx(0.2 + 0.15)
    # 0.1 of backward and 0.08 of step are nobody's
    assert step["other"] == pytest.approx(0.18)


def test_reductions_are_looked_for_in_their_own_timer_first() -> None:
    call = {
        "kind": "comm", "name": "reduce_scatter", "step": 1, "rank": 0, "bytes": 1.0,
        "count": 1, "seconds": 0.25, "pattern": "deepspeed_comms.op",
    }  # fmt: skip
    step = run_of(call, *lines("optimizer_step")).steps.iloc[0]
    assert step["communication"] == pytest.approx(0.25)
    assert step["compute"] == pytest.approx(0.5 - 0.05)
    assert not np.isnan(step["communication_share"])
