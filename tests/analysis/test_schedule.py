"""How long the stages of a pipeline take that run one forward, then one backward."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.analysis.schedule import last_backwards, seconds_of_turns
from dsprof.run.table import Numbers


def of_stage(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """Forwards until the first gradient can come, then backward and forward in turns."""
    ahead = min(stages - stage, micro_batches)
    order = [("forward", micro) for micro in range(ahead)]
    for micro in range(micro_batches):
        order.append(("backward", micro))
        if ahead + micro < micro_batches:
            order.append(("forward", ahead + micro))
    return order


def one_by_one(
    micro_batches: int, starts: list[float], forwards: list[float], backwards: list[float]
) -> list[float]:
    """Run whatever is next in a stage, as soon as what it needs is there."""
    stages, at, done = len(starts), list(starts), dict[tuple[str, int, int], float]()
    left = [of_stage(stage, stages, micro_batches) for stage in range(stages)]
    while any(left):
        for stage, order in enumerate(left):
            if not order:
                continue
            way, micro = order[0]
            before = stage - 1 if way == "forward" else stage + 1
            if 0 <= before < stages and (way, before, micro) not in done:
                continue
            order.pop(0)
            comes = done.get((way, before, micro), 0.0)
            at[stage] = max(at[stage], comes) + (forwards if way == "forward" else backwards)[stage]
            done[way, stage, micro] = at[stage]
    return at


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_a_stage_ends_when_what_each_of_its_parts_needs_has_come(
    stages: int, micro_batches: int
) -> None:
    chance = np.random.default_rng(stages * micro_batches)
    starts, forwards, backwards = chance.integers(0, 20, (3, stages, 4)).astype(float)
    ended = last_backwards(micro_batches, starts, forwards, backwards)
    for replica in range(4):
        mine = (one[:, replica].tolist() for one in (starts, forwards, backwards))
        assert ended[:, replica].tolist() == one_by_one(micro_batches, *mine)


def each(*seconds: float, micro_batches: int = 4) -> Numbers:
    return np.asarray(seconds) * micro_batches


def test_of_even_stages_each_takes_a_turn_before_and_behind_all_of_its_micro_batches() -> None:
    assert seconds_of_turns(4, each(4, 4, 4), each(8, 8, 8)) == pytest.approx((4 + 2) * 12)


def test_a_slow_first_stage_runs_forward_while_others_run_backward_and_a_slow_last_one_cannot() -> (
    None
):
    assert seconds_of_turns(4, each(4, 8), each(8, 16)) == pytest.approx(12 + 4 * 24)
    assert seconds_of_turns(4, each(8, 4), each(16, 8)) == pytest.approx(4 + 4 * 24)


def test_very_many_micro_batches_take_as_many_turns_of_the_slowest_stage() -> None:
    many = 10**8  # one by one they take hours
    took = seconds_of_turns(many, *(each(*one, micro_batches=many) for one in ([4, 8], [8, 16])))
    assert took == pytest.approx(12 + many * 24)
