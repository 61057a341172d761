"""fairseq's lines, timed by their stamps."""

from __future__ import annotations

import pytest

from tests.loaded import run_of_text

LINE = (
    "2026-02-03 04:0{}:06 | INFO | train_inner | epoch 001: {:6d} / 4000 loss=8.5, wps=12000.5, "
    "ups=1.67, wpb=7200, bsz=24, num_updates={}, lr=2e-05, gnorm=1.75, loss_scale=16, wall=60\n"
)


def test_updates_of_fairseq_are_timed_by_the_stamps_of_their_lines() -> None:
    run = run_of_text(*(LINE.format(minute, 100 * minute, 100 * minute) for minute in range(1, 6)))
    assert run.meta["framework"] == "fairseq"
    assert run.steps["step"].tolist() == [100, 200, 300, 400, 500]
    assert run.steps["seconds"].iloc[1:].tolist() == pytest.approx([0.6] * 4)
    assert set(run.steps["tokens_per_second"]) == {12000.5}
