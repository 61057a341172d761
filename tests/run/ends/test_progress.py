"""How far training had come where it failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.recording import Writer
from dsprof.run import from_events, load
from tests.loaded import run_of_text
from tests.recording.recorded import MS, header
from tests.run.ends.test_problems import causes, of, problem, shown
from tests.run.run_rows import events, grammar_with


def test_a_failure_is_after_the_last_step_that_was_complete() -> None:
    found = of(shown(4), shown(5), problem("exception", "x", step=6), shown(6))
    assert found["step"].tolist() == [5]
    assert of(problem("oom", "x", step=1), shown(1))["step"].isna().all()
    assert of(shown(4), problem("oom", "x"))["step"].tolist() == [4]


def test_a_step_that_a_traceback_passes_through_was_not_complete() -> None:
    passes = {"kind": "metric", "name": "raised_in_step", "step": 33, "value": 1.0}
    rows = [
        {"kind": "metric", "name": "loss", "step": 32, "value": 2.5},
        *(
            row
            for rank in range(2)
            for row in (
                passes | {"rank": rank, "pattern": "failures.traceback"},
                problem("exception", "ValueError: no", rank=rank, step=33),
            )
        ),
    ]
    found = from_events(events(rows), grammar=grammar_with()).problems
    assert found["step"].tolist() == [32, 32]


@pytest.mark.parametrize(("ahead", "step"), [(True, 435), (False, 270)])
def test_a_failure_is_after_the_last_step_that_the_bar_had_counted(ahead: bool, step: int) -> None:
    told = (
        "{'loss': 0.66, 'grad_norm': 2.37, 'learning_rate': 4.9e-05, 'epoch': 0.07, "
        "'global_step/max_steps': '270/3659', 'elapsed_time': '32m 43s'}\n"
    )
    bar = "Train:  12%|#         | 435/3659 [52:14<6:55:44,  7.74s/it]\n"
    killed = "run.sh: line 12:  4101 Killed                  python3 train.py\n"
    run = run_of_text(told, *((bar, killed) if ahead else (killed, bar)))
    assert list(run.problems["step"]) == [step]


def test_a_rank_that_fails_between_two_steps_fails_after_the_one_that_ended(
    tmp_path: Path,
) -> None:
    """What it saved or loaded then is recorded as part of the step that has not ended."""
    for restart, done in ((0, 4), (1, 0)):
        writer = Writer.create(tmp_path, header(0, restart=restart))
        for step in range(1, done + 1):
            writer.step(step, step * 100 * MS, (step + 1) * 100 * MS)
        saved = writer.name("save", 0, "checkpoint")
        writer.span(saved, (done + 1) * 100 * MS, (done + 2) * 100 * MS, done + 1)
        writer.flush()
        writer.problem("exception", "OSError: no")
        writer.close()
    steps = load(tmp_path).problems["step"]
    assert steps.isna().tolist() == [False, True]
    assert steps.iloc[0] == 4


def test_the_last_collective_that_was_enqueued_counts_before_the_one_that_timed_out() -> None:
    """They all wait in the same one; two of them had come further on their own."""
    rows = [
        row
        for rank, last in ((0, 11), (1, 9), (2, 11))
        for row in (
            problem("watchdog", rank=rank, count=9),
            {"kind": "metric", "name": "last_enqueued_work", "rank": rank, "value": last},
        )
    ]
    assert causes(*rows) == [2]
