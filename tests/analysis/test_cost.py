"""What a step must cost, by hand."""

from __future__ import annotations

import pytest

from dsprof.analysis.cost import (
    bubble_seconds,
    bubble_share,
    least_seconds,
    saved_by_even_split,
    shard_factor,
    uneven_bubble,
    zero_traffic,
)
from dsprof.analysis.layout import Layout


def layout(**changes: float) -> Layout:
    known = {
        "data_parallel": 4,
        "stages": 1,
        "micro_batches": 1,
        "parameters": 1e9,
        "element_bytes": 2,
        "link_bytes_per_second": 1.5e9,
    }
    return Layout(**(known | changes))  # type: ignore[arg-type]


def test_a_ring_moves_each_byte_almost_once() -> None:
    assert shard_factor(4) == 0.75
    assert shard_factor(1) == 0


@pytest.mark.parametrize(
    ("stage", "micro_batches", "worth"), [(0, 1, 2), (1, 1, 2), (2, 1, 2), (3, 1, 3), (0, 8, 2),
                                          (1, 8, 2), (2, 8, 9), (3, 8, 24)]
)  # fmt: skip
def test_zero_moves_so_many_parameters_worth(stage: int, micro_batches: int, worth: int) -> None:
    traffic = zero_traffic(layout(zero_stage=stage, micro_batches=micro_batches))
    assert traffic is not None
    assert traffic.total == pytest.approx(worth * 0.75 * 2e9)


def test_a_pipeline_stage_moves_only_its_own_parameters() -> None:
    traffic = zero_traffic(layout(zero_stage=1, stages=4))
    assert traffic is not None
    assert traffic.total == pytest.approx(2 * 0.75 * 0.5e9)


def test_bytes_over_the_link_are_the_least_seconds() -> None:
    known = layout(zero_stage=1)
    assert least_seconds(zero_traffic(known), known) == pytest.approx(2.0)  # 3e9 / 1.5e9


def test_the_ranks_of_one_node_move_nothing_over_its_link() -> None:
    one, two = layout(zero_stage=1, nodes=1), layout(zero_stage=1, nodes=2)
    assert least_seconds(zero_traffic(one), one) is None
    assert least_seconds(zero_traffic(two), two) == pytest.approx(2.0)


def test_what_is_not_known_is_not_guessed() -> None:
    assert zero_traffic(Layout(data_parallel=4, zero_stage=1)) is None
    assert zero_traffic(layout()) is None  # no stage
    unlinked = Layout(data_parallel=4, stages=1, zero_stage=1, parameters=1e9, element_bytes=2)
    assert least_seconds(zero_traffic(unlinked), unlinked) is None


def test_the_bubble_of_four_stages_and_four_micro_batches() -> None:
    assert bubble_share(4, 4) == pytest.approx(3 / 7)
    assert bubble_seconds(4, 4, compute=4.0) == pytest.approx(3.0)
    assert bubble_share(1, 4) == 0


def test_interleaved_stages_have_a_bubble_that_is_smaller_by_their_number_of_chunks() -> None:
    assert bubble_share(4, 4, chunks=2) == pytest.approx(3 / 11)
    assert bubble_seconds(4, 4, compute=4.0, chunks=2) == pytest.approx(1.5)


def turns(micro_batches: int, stages: list[float]) -> float:
    """Seconds of a step: one turn of a micro-batch through all stages, and the others through the
    slowest one behind it."""
    return sum(stages) + (micro_batches - 1) * max(stages)


@pytest.mark.parametrize("micro_batches", [1, 2, 8])
def test_uneven_stages_idle_and_gain_what_the_turns_of_their_micro_batches_take(
    micro_batches: int,
) -> None:
    stages = [6.0, 24.0, 6.0]
    a_step = [micro_batches * one for one in stages]
    now, even = turns(micro_batches, stages), turns(micro_batches, [12.0] * 3)
    assert saved_by_even_split(micro_batches, a_step) == pytest.approx(now - even)
    # What more micro-batches leave of it is shared by their samples: with 4 times as many a quarter
    saved = now - turns(4 * micro_batches, stages) / 4
    assert uneven_bubble(micro_batches, a_step) * 3 / 4 == pytest.approx(saved)


def test_of_even_stages_the_bubble_is_the_same_by_both_ways() -> None:
    assert uneven_bubble(4, [8.0] * 3, 2) == pytest.approx(bubble_seconds(3, 4, 8.0, 2))
    assert saved_by_even_split(4, [8.0] * 3) == 0
