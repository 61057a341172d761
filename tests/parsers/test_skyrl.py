"""SkyRL's turns are counted by their ends, whatever bars stand between."""

from __future__ import annotations

import pytest

from dsprof.findings import findings_of
from tests.loaded import run_of_text

LINE = (
    "(skyrl_entrypoint pid=812) 2026-03-26 15:1{n}:17.560 | INFO     | skyrl.train.trainer:train:"
    "210 - Finished: '{}', time cost: {:.2f}s\n"
)
BARS = (
    "(skyrl_entrypoint pid=812) %|█         | 512/5120 [00:10<01:37, 47.35it/s]\n"
    "Generating Trajectories: 100%|██████████| 5120/5120 [01:18<00:00, 65.35it/s]\n"
)


def turns(generating: float) -> str:
    parts = {
        "generate": generating,
        "fwd_logprobs_values_reward": 20.0,
        "policy_train": 40.0,
        "train_critic_and_policy": 40.0,
        "sync_weights": 5.0,
        "step": generating + 66.0,
    }
    done = "Training Batches Processed:  {0}0%|█▍ | {0}/7 [{0}0:36<2:15:37, 96.1s/it]\n"
    return "".join(
        BARS + "".join(LINE.format(*part, n=n) for part in parts.items()) + done.format(n)
        for n in range(1, 6)
    )


def test_turns_are_counted_and_their_parts_divided_once() -> None:
    run = run_of_text(turns(30.0))
    assert run.steps["step"].tolist() == [1, 2, 3, 4, 5]
    assert run.steps["seconds"].tolist() == [96.0] * 5
    assert run.steps["mixed"].tolist() == pytest.approx([60.0] * 5)  # with communication in it
    assert run.steps["other"].tolist() == pytest.approx([96.0] * 5)


def test_generating_that_takes_most_of_a_turn_is_the_verdict() -> None:
    found = findings_of(run_of_text(turns(300.0)))[0]
    assert (found.rule, found.title) == ("generation-bound", "82 % of a step is generating")
