"""Stages that compute alike and wait for their messages, or for uneven micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.events import Severity
from dsprof.findings.facts import facts_of
from dsprof.findings.pipeline.transfers import messages
from tests.findings.pipelines import two_stages
from tests.findings.plants import one, quiet, run_of, silent, steps


def test_slow_messages_are_told_from_the_bubble_with_what_one_takes(tmp_path: Path) -> None:
    """8 micro-batches of 12 ms, one more to fill the pipeline, and 16 messages of 6 ms."""
    run = two_stages(tmp_path, 6.0, [[4.0], [4.0]])
    found = one(run, "pipeline-imbalance")
    assert found is run.findings[0]
    assert found.title.endswith("beyond the bubble: each takes 6.00 ms for 16.0 KiB")
    assert (found.severity, found.confidence) == (Severity.CRITICAL, "high")
    assert found.seconds_per_step == pytest.approx(96e-3, rel=0.01)
    assert "16 messages per step" in found.summary
    assert "(2.73 MB/s)" in found.summary
    free, step = two_stages(tmp_path / "free", 0.0, [[4.0], [4.0]]), run.judged[0].step_seconds
    quicker = free.judged[0].step_seconds
    assert found.gain is not None
    assert step is not None
    assert quicker is not None
    assert found.gain[1] == pytest.approx(step - quicker, rel=0.15)


def test_quick_messages_of_uneven_micro_batches_are_no_slow_link(tmp_path: Path) -> None:
    """One in four takes ten times as long, on each stage another one."""
    run = two_stages(tmp_path, 0.1, [[4.0, 4.0, 4.0, 40.0], [4.0, 40.0, 4.0, 4.0]])
    found = one(run, "pipeline-imbalance")
    assert found.title.endswith("messages are quick: uneven micro-batches")
    assert "takes 100 µs in the mean, all of them 1.60 ms per step" in found.summary
    assert (found.severity, found.confidence, found.gain) == (Severity.WARNING, "medium", None)
    assert silent(run, "healthy")


def test_quick_messages_of_even_micro_batches_are_nothing(tmp_path: Path) -> None:
    run = two_stages(tmp_path, 0.1, [[4.0], [4.0]])
    assert quiet(run, "pipeline-imbalance")
    (facts,) = facts_of(run)
    found = messages(facts)
    assert found is not None
    assert [found.each, found.many] == pytest.approx([100e-6, 16])


@pytest.mark.parametrize("waited", [0.30, 0.45])
def test_a_log_that_times_no_message_leaves_open_which_it_is(waited: float) -> None:
    """Of two stages that compute 0.8 s and load for 0.2 s in 8 micro-batches the bubble is 1/8."""
    stage = {"forward": 0.3, "backward_inner": 0.5, "data": 0.2, "pipe_recv_grad": waited}
    rows = [row | {"rank": rank} for rank in (0, 1) for row in steps(3, stage, 1.1 + waited)]
    run = run_of(rows, world_size=2, pipeline_parallel_size=2, gradient_accumulation_steps=8)
    if waited - 0.125 < 0.15 * (1.1 + waited):
        assert silent(run, "pipeline-imbalance")
        return
    found = one(run, "pipeline-imbalance")
    assert (found.severity, found.gain) == (Severity.WARNING, None)
    assert found.seconds_per_step == pytest.approx(waited - 0.125)
    assert "explains 125 ms of it, loading data included" in found.summary
    assert "what single messages take is not known here" in found.summary
