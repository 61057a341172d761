"""Turns of reinforcement learning that mostly generate."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import load
from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import Run
from tests.findings.plants import EXPOSED, alone, one, quiet, rules, run_of, silent, steps, why
from tests.loaded import run_of_text
from tests.recording.recorded import MS, header


def of_verl(generate: float, ahead: float | None = None) -> Run:
    """Ten turns that generate for so long, and train 20 s; `ahead`: what of it is waited for."""
    waited = "" if ahead is None else f" - timing_s/wait_prev_gen:{ahead}"
    whole = 22 + (generate if ahead is None else ahead)
    return run_of_text(
        *(
            f"(TaskRunner pid=7) step:{step} - timing_s/gen:{generate}{waited} - "
            f"timing_s/update_actor:20.0 - timing_s/step:{whole}\n"
            for step in range(1, 11)
        )
    )


def recorded(
    folder: Path,
    generate: int,
    stage: int = 0,
    gather: int = 0,
    untimed: int = 0,
    evaluate: int = 0,
) -> Run:
    """One rank that generates for so many ms, of which calls take `gather`, and trains for 100."""
    writer = Writer.create(folder, header(world=1))
    writer.config("zero_stage", stage)
    generating = writer.name("generate", 0, "compute")
    gathering = writer.name("all_gather", generating)
    names = [(writer.name(name, 0, class_), ms) for name, class_, ms in (
        ("forward", "compute", 30), ("backward", "compute", 60), ("step", "optimizer", 10)
    )]  # fmt: skip
    evaluating = writer.name("evaluation", 0, "other")
    group, at = writer.name("world"), 0
    for step in range(1, 41):
        begin = at - untimed * MS * (step > 1)
        if gather:
            held = (at, at + gather * MS, gather * MS, step, 0, 4096, 1, step)
            writer.collective(gathering, group, *held)
        if evaluate:
            writer.span(evaluating, at, at + evaluate * MS, step)
            at += evaluate * MS
        for phase, ms in ((generating, generate), *names):
            if ms:
                writer.span(phase, at, at + ms * MS, step)
                at += ms * MS
        writer.step(step, begin, at)
        at += untimed * MS
    writer.close()
    return load(folder)


def test_a_turn_that_mostly_generates_is_told_so_first() -> None:
    run = of_verl(60.0)
    found = run.findings[0]
    assert found.rule == "generation-bound"
    assert found.title == "73 % of a step is generating"
    assert found.seconds_per_step == pytest.approx(60)
    assert (found.severity, found.gain) == (Severity.WARNING, None)
    assert found.phase == "generate"
    assert "unaccounted-time" not in rules(run) or "generate" not in (
        one(run, "unaccounted-time").title
    )


def test_what_of_the_next_turn_is_waited_for_counts_where_it_is_generated_meanwhile() -> None:
    run = of_verl(80.0, ahead=40.0)
    found = alone(run, "generation-bound")
    assert found.title == "65 % of a step is waiting for answers that are being generated"
    assert found.advice[0].setting == "GPUs that generate"
    assert quiet(of_verl(80.0, ahead=5.0), "generation-bound")


def test_generating_less_than_all_else_is_no_finding() -> None:
    assert quiet(of_verl(15.0), "generation-bound")


def test_a_job_that_generates_nothing_is_not_judged() -> None:
    assert why(run_of(steps(10, EXPOSED), world_size=2), "generation-bound") == (
        "no timer of generating: the job only trains"
    )


def test_a_recorded_generate_is_told_apart_from_computing(tmp_path: Path) -> None:
    run = recorded(tmp_path, 300)
    found = run.findings[0]
    assert found.title == "75 % of a step is generating"
    assert found.advice[0].setting == "generate()"
    assert "compute-bound" not in rules(run)
    assert why(run, "compute-bound") == "most of its computation is generating"


def test_training_with_a_little_generating_is_computing(tmp_path: Path) -> None:
    run = recorded(tmp_path, 50)
    assert silent(run, "generation-bound")
    assert "compute-bound" in rules(run)


@pytest.mark.parametrize("stage", [2, 3])
def test_what_stage_3_gathers_for_each_token_is_told(stage: int, tmp_path: Path) -> None:
    found = alone(recorded(tmp_path, 400, stage, gather=100), "generation-bound")
    assert found.seconds_per_step == pytest.approx(0.3)
    assert "Beside it, 100 ms of calls between ranks." in found.summary
    gathered = found.advice[0].setting == "ds3_gather_for_generation (TRL)"
    assert gathered == (stage == 3)


def test_where_a_job_generates_untimed_work_may_be_scoring(tmp_path: Path) -> None:
    scored = "Functions that score what was generated lie there."
    summaries = [
        alone(recorded(tmp_path / str(ms), ms, untimed=200), "unaccounted-time").summary
        for ms in (50, 0)
    ]
    assert [scored in said for said in summaries] == [True, False]


def test_answers_of_evaluations_are_not_trained_on(tmp_path: Path) -> None:
    run = recorded(tmp_path, 300, evaluate=20)
    assert why(run, "generation-bound") == "what is generated is evaluated, and not trained on"


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (" - response_length/clip_ratio:0.875", "88 % end at the limit"),
        (" - response_length/clip_ratio:0.0", "none end at the limit"),
        ("", "look how many reach the limit"),
    ],
)
def test_how_many_answers_end_at_the_limit_is_told_where_the_log_tells_it(
    cut: str, said: str
) -> None:
    run = run_of_text(
        *(
            f"(TaskRunner pid=7) step:{step}{cut} - timing_s/gen:80.0 - "
            "timing_s/update_actor:20.0 - timing_s/step:102.0\n"
            for step in range(1, 11)
        )
    )
    longest = [one for one in alone(run, "generation-bound").advice if "longest" in one.setting]
    assert [said in one.to for one in longest] == [True]
