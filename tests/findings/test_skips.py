"""Skips that single lines tell of, and of how many steps they are."""

from __future__ import annotations

from dsprof.findings.skips import told_since
from tests.findings.plants import one, run_of
from tests.loaded import run_of_text


def test_the_optimizers_own_count_says_of_how_many_steps_skips_are() -> None:
    common = {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0}
    told = [common | {"text": f"Grad overflow on iteration {n}"} for n in (0, 1, 2, 7)]
    found = one(run_of(told), "overflow-streak")
    assert found.title == "4 steps were skipped: gradients overflowed"
    assert "50 % of its first 8 steps, by the optimizer's count" in found.summary


def test_skips_behind_the_last_line_that_counts_them_are_counted_once() -> None:
    over = "[2026-11-21 05:55:0{},41{}] [INFO] [fused_optimizer.py:344:_update_scale] {}\n"
    grad = "Grad overflow on iteration {}"
    step = "[2026-11-21 05:55:02,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=3\n"
    lines = [
        over.format(1, 1, grad.format(18)),
        step,
        over.format(1, 2, grad.format(18)),  # another rank's, printed late
    ]
    assert told_since(run_of_text(*lines)) == 0
    more = [over.format(3, rank, grad.format(23)) for rank in range(4)]
    assert told_since(run_of_text(*lines, *more)) == 1
    assert told_since(run_of_text(*more)) == 0  # nothing counts them
