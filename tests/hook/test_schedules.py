"""Pipelines of PyTorch's own: what a step is made of where forwards and backwards take no turns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hook.rows import Rows

JOB = ("schedules",)
KINDS = ("ScheduleGPipe", "Schedule1F1B")
STEPS, MICROS = 3, 4


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"] == result[kind]["plain"]


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_are_counted_in_whatever_order_their_forwards_and_backwards_come(
    rows: list[Rows], kind: str
) -> None:
    for rank in rows:
        assert [row.micros for row in rank.steps] == [MICROS] * STEPS, kind
        backwards = [row.step for row in rank.spans if row.path == "backward"]
        assert backwards == [step for step in range(1, STEPS + 1) for _ in range(MICROS)]
