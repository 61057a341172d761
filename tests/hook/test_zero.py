"""ZeRO 0 to 3 on two real ranks: complete, exact, and without a trace in the losses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.hook.rows import Rows, folder

JOB = ("zero",)
STEPS = 6
#: DeepSpeeds whose stage 3 does not repeat itself on gloo, with no hook near it, or is NaN at once.
RACING = ("0.12", "0.14.5", "0.15", "0.16", "0.17.6", "0.18.2")


class Case(NamedTuple):
    out: Path
    stage: int
    accumulation: int
    result: dict[str, Any]
    direct: bool | None
    rows: Rows


@pytest.fixture(params=range(4), ids="stage{}".format)
def job(request: pytest.FixtureRequest, results: list[dict[str, Any]], out: Path) -> list[Case]:
    """Both ranks, accumulation 1 and 4, of one stage."""
    place = out / f"stage-{request.param}"
    of_stage = [result[str(request.param)] for result in results]
    return [
        Case(place, request.param, n, result[str(n)], result["direct"], rows)
        for n in (1, 4)
        for result, rows in zip(of_stage, folder(place / f"accumulation-{n}"), strict=True)
    ]


def test_losses_are_the_same_to_the_last_bit(job: list[Case]) -> None:
    for case in job:
        version = case.rows.header["versions"]["deepspeed"]
        if case.stage == 3 and version.startswith(RACING):
            pytest.skip("this DeepSpeed's stage 3 does not repeat itself, with no hook near it")
        assert case.result["watched"] == case.result["plain"]


def test_every_collective_that_the_flight_recorder_saw_is_recorded(job: list[Case]) -> None:
    for case in job:
        recorded = sum(row.calls for row in case.rows.collectives)
        assert recorded == sum(case.result["issued"].values()) > 0
        assert case.rows.unseen == 0


def test_each_step_is_closed_once_under_deepspeeds_own_number(job: list[Case]) -> None:
    for case in job:
        assert [row.step for row in case.rows.steps] == list(range(1, STEPS + 1))
        assert {row.micros for row in case.rows.steps} == {case.accumulation}


def test_every_micro_batch_has_its_forward_backward_and_step(job: list[Case]) -> None:
    for case in job:
        paths = Counter((row.path, row.step) for row in case.rows.spans)
        for step in range(1, STEPS + 1):
            for path in ("forward", "backward", "step"):
                assert paths[path, step] == case.accumulation
            assert paths["step/optimizer_step", step] == 1
        micros = {row.micro for row in case.rows.spans if row.path == "forward"}
        assert micros == set(range(case.accumulation))


def test_a_phase_lies_inside_the_phase_its_path_names(job: list[Case]) -> None:
    for case in job:
        spans = case.rows.spans
        for inner in (row for row in spans if "/" in row.path):
            outer = [
                row
                for row in spans
                if row.path == inner.path.rpartition("/")[0]
                and row.begin <= inner.begin
                and inner.begin + inner.length <= row.begin + row.length
            ]
            assert len(outer) == 1


def test_classes_add_up_to_the_step_and_phases_explain_nearly_all_of_it(job: list[Case]) -> None:
    for case in job:
        for step in case.rows.steps[1:]:
            assert sum(step.classes) == pytest.approx(step.length * 1e-9, rel=1e-4)
            inside = [
                row
                for row in case.rows.spans
                if row.step == step.step and row.path in {"forward", "backward", "step", "data"}
            ]
            timed = sum(row.length for row in inside)
            assert timed + step.classes[-1] * 1e9 == pytest.approx(step.length, rel=0.02)


def test_time_blocked_in_a_phase_is_no_longer_than_the_phase(job: list[Case]) -> None:
    for case in job:
        for step in range(1, STEPS + 1):
            for path in ("forward", "backward", "step"):
                length = sum(r.length for r in case.rows.spans if r.path == path and r.step == step)
                blocked = sum(
                    row.blocked
                    for row in case.rows.collectives
                    if row.step == step and row.path.split("/")[0] == path
                )
                assert 0 <= blocked <= length


def test_communication_is_found_where_each_stage_hides_it(job: list[Case]) -> None:
    """Gradients are reduced in backward; stages 1 and 2 gather in the step; stage 3 in forward."""
    for case in job:
        where = {row.path.split("/")[0] for row in case.rows.collectives if row.blocked > 0}
        assert "backward" in where
        assert ("step" in where) or case.stage == 0
        assert ("forward" in where) == (case.stage == 3)
        communication = sum(step.classes[1] for step in case.rows.steps)
        blocked = sum(row.blocked for row in case.rows.collectives if row.step >= 1)
        assert communication == pytest.approx(blocked * 1e-9, rel=0.02)


def test_the_engines_own_numbers_are_recorded(job: list[Case]) -> None:
    for case in job:
        losses = [float.fromhex(word) for word in case.result["watched"]]
        n = case.accumulation
        means = [sum(losses[i : i + n]) / n for i in range(0, len(losses), n)]
        recorded = case.rows.metric("loss")
        told = [recorded[step] for step in range(1, STEPS + 1)]
        assert told == pytest.approx(means, rel=1e-6, nan_ok=True)  # some stage 3 diverges bare
        assert set(case.rows.metric("lr").values()) == {1e-2}
        assert len(case.rows.metric("grad_norm")) == (STEPS if case.stage else 0)
        assert case.rows.header["config"]["zero_stage"] == case.stage
        assert case.rows.header["config"]["gradient_accumulation_steps"] == n


def test_the_cost_of_recording_is_recorded(job: list[Case]) -> None:
    for case in job:
        cost = case.rows.metric("overhead")
        assert sorted(cost) == list(range(1, STEPS + 1))
        assert all(seconds > 0 for seconds in cost.values())


def test_detach_leaves_nothing_behind_and_ends_the_file(job: list[Case]) -> None:
    for case in job:
        assert case.result["left"] == []
        assert case.result["after"] == STEPS * case.accumulation
        assert case.rows.ended
        assert max(row.step for row in case.rows.steps) == STEPS


def test_backward_is_seen_without_the_engines_backward(job: list[Case]) -> None:
    """`loss.backward()`: two micro-batches a step, in new versions with the reduction inside; older
    ones learn nothing of it."""
    knows = job[0].direct
    if knows is None:
        pytest.skip("this DeepSpeed has no loss.backward() for this stage")
    for rank in folder(job[0].out / "direct"):
        paths = Counter((row.path, row.step) for row in rank.spans)
        for step in range(1, STEPS + 1):
            assert paths["backward", step] == paths["backward/reduce", step] == 2 * knows
        assert [row.micros for row in rank.steps] == [2] * STEPS
        assert rank.unseen == 0
