"""Megatron's times of the slowest rank: parts of several ranks divide no whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.run import Run, load

STEP = (
    " iteration {n:8d}/     500 | consumed samples: 640 | elapsed time per iteration (ms): 1000.0 "
    "| learning rate: 1.0E-05 | global batch size:    64 | lm loss: 2.5E+00 |\n"
    "(min, max) time across ranks (ms):\n"
    "    forward-backward ...............................: (780.00, 800.00)\n"
    "    forward-compute ................................: (200.00, 300.00)\n"
    "    backward-compute ...............................: (300.00, 400.00)\n"
    "    batch-generator ................................: (1.00, 20.00)\n"
    "    backward-recv ..................................: (10.00, {recv:.2f})\n"
    "    all-grads-sync .................................: (80.00, 100.00)\n"
    "    optimizer-inner-step ...........................: (20.00, 30.00)\n"
    "    optimizer ......................................: (40.00, 50.00)\n"
)


def run_of(tmp_path: Path, *receiving: float) -> Run:
    """A step of 1 s; how long, in ms, the stage receives that waits longest."""
    log = tmp_path / "run.log"
    lines = [STEP.format(n=10 * n, recv=recv) for n, recv in enumerate(receiving, 1)]
    log.write_text("".join(lines))
    return load([log])


def test_maxima_of_several_stages_do_not_make_the_whole_step_unknown(tmp_path: Path) -> None:
    run = run_of(tmp_path, *[350.0] * 4)
    assert set(run.phases["name"].astype("str")) == {
        "forward-backward", "all-grads-sync", "optimizer", "optimizer-inner-step",
    }  # fmt: skip
    assert run.steps["communication"].tolist() == pytest.approx([0.1] * 4)
    assert run.steps["optimizer"].tolist() == pytest.approx([0.05] * 4)
    assert run.steps["other"].tolist() == pytest.approx([0.85] * 4)  # 0.05 s are in no timer
    assert run.repairs["name"].tolist() == ["maxima-of-parts"]
    assert run.repairs["text"][0].startswith("the parts of forward-backward sum to more than it")


def test_parts_of_several_ranks_are_asked_for_by_rank(tmp_path: Path) -> None:
    found = run_of(tmp_path, *[350.0] * 30).findings
    first = next(one for one in found if one.rule == "unaccounted-time")
    assert first.advice[0].setting == "--timing-log-option"
    assert "--timing-log-level" not in first.summary


def test_one_line_shows_that_maxima_are_of_several_ranks_in_all_of_its_launch(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, 50.0, 350.0, 50.0)
    assert "backward-recv" not in set(run.phases["name"].astype("str"))
    assert run.repairs["rows"].tolist() == [12]


def test_maxima_that_fit_into_their_whole_divide_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, *[50.0] * 3)
    assert run.repairs.empty
    assert run.steps["compute"].tolist() == pytest.approx([0.68] * 3)
