"""Lines of LeRobot's training."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone
from tests.loaded import run_of_text

_BEGIN = "INFO 2026-03-04 10:00:00 ot_train.py:597 Start offline training on a fixed dataset\n"


def _line(step: int, update: float, data: float) -> str:
    shown = f"{step}" if step < 1000 else f"{step / 1000:.0f}K"
    return (
        f"INFO 2026-03-04 10:11:12 ot_train.py:641 step:{shown} smpl:4K ep:9 "
        f"epch:{step / 9999:.2f} loss:0.5 grdn:1.5 lr:1.0e-05 "
        f"updt_s:{update:.3f} data_s:{data:.3f} smp/s:12\n"
    )


def test_steps_that_lerobot_rounds_go_on_as_those_before_them() -> None:
    text = _BEGIN + "".join(_line(step, 0.5, 0.25) for step in range(250, 5250, 250))
    run = run_of_text(text)
    assert run.meta["framework"] == "lerobot"
    assert run.steps["step"].tolist() == list(range(250, 5250, 250))
    assert run.steps["seconds"].tolist() == pytest.approx([0.75] * 20)
    assert run.findings[0].rule == "data-bound"
    assert run.findings[0].title.startswith("33 % of what is timed of a step is waiting")


def test_rounded_steps_behind_a_gap_do_not_go_on_as_those_before_it() -> None:
    """An excerpt: some of its first steps, and those from the twelve thousandth on."""
    told = [*range(200, 3000, 200), *range(12000, 13000, 200)]
    run = run_of_text(_BEGIN + "".join(_line(step, 0.5, 0.25) for step in told))
    assert run.steps["step"].to_list() == list(range(200, 3000, 200))


def test_the_bar_numbers_what_a_resumed_lerobot_rounds() -> None:
    bar = "\rTraining:  50%|##   | {0}/20000 [00:{1:02d}<09:00,  1.25step/s]"
    text = "".join(
        bar.format(10000 + 200 * n - n % 2, n) + _line(10000 + 200 * n, 0.5, 0.0)
        for n in range(1, 21)
    )
    assert run_of_text(text).steps["step"].tolist() == list(range(10200, 14200, 200))


def test_on_one_gpu_an_update_of_lerobot_is_compute() -> None:
    alone = "INFO 2026-03-04 10:00:00 ot_train.py:412 Effective batch size: 8 x 1 = 8\n"
    text = alone + _BEGIN + "".join(_line(step, 0.5, 0.0) for step in range(1, 40))
    run = run_of_text(text)
    assert run.findings[0].rule == "healthy"
    assert run.config["train_batch_size"] == 8


def test_a_line_of_lerobot_stands_for_all_steps_since_the_line_before() -> None:
    lines = [
        f"step:{20 * n} smpl:{160 * n} ep:{n} epch:0.{n:02d} loss:{3 - n / 20:.3f} grdn:1.500 "
        f"lr:1.0e-05 updt_s:{2.0 if n == 15 else 0.3:.3f} data_s:0.020\n"
        for n in range(1, 31)
    ]
    run = run_of_text(*lines)
    assert run.steps["covers"].eq(20).all()
    spike = alone(run, "step-spikes")
    assert spike.title.startswith("1 of 29 windows of 20 steps sticks out")
    assert "2.02 s a step in the mean of its 20" in spike.summary
    assert spike.evidence[0].text.startswith("step 300: 2.02 s a step in the 20 up to it")
