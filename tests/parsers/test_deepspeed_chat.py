"""Turns of RLHF: two clocks around each; the hybrid engine's speaks when the next begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsprof.run import Run, from_events
from tests.logs.reading import read

TURNS = range(1, 7)


def losses(turn: int) -> str:
    return (
        f"Epoch: 0 | Step: {turn} | PPO Epoch: 1 | Actor Loss: {turn}.5 | Critic Loss: 0.25 "
        "| Unsupervised Loss: 0.0\n"
    )


def own_clock(turn: int) -> str:
    """Generation of 6 s, training of 3 s and a tenth for each turn."""
    return (
        f"End-to-End => Latency: {9 + turn / 10:.2f}s, TFLOPs: 20.00, Samples/sec: 3.50, "
        "Time/seq 0.28s, Batch Size: 32, Total Seq. Length: 512\n"
        "Generation => Latency: 6.00s, Per-token Latency 23.44 ms, TFLOPs: 2.00, "
        "BW: 500.00 GB/sec, Answer Seq. Length: 256\n"
        f"Training   => Latency: {3 + turn / 10:.2f}s, TFLOPs: 60.00\n"
    )


def engines_clock(turn: int) -> str:
    """Printed when the next turn begins: half a second of gathering, 1.5 s of all others."""
    return (
        f"|E2E latency={11 + turn / 10:.2f}s |Gather latency=0.50s (4.5%) "
        f"|Generate time=5.50s (50.00%) |Training time={4 + turn / 10:.2f}s (36.00%) "
        "|Others=1.50 (13.00%)|CurSamplesPerSec=3.20 |AvgSamplesPerSec=3.10\n"
    )


def run_of(*lines: str) -> Run:
    return from_events(read("".join(lines).encode()).events.to_pandas())


def seconds(run: Run, step: int) -> dict[str, float]:
    of_step = run.phases[run.phases["step"] == step]
    told = zip(of_step["name"], of_step["self_seconds"].round(3), strict=True)
    return {str(name): float(value) for name, value in told}


def test_the_hybrid_engine_tells_of_the_turn_whose_losses_were_printed_last() -> None:
    run = run_of(*(line for n in TURNS for line in (losses(n), engines_clock(n))))
    assert run.steps["seconds"].round(2).to_list() == [11 + n / 10 for n in TURNS]
    assert seconds(run, 4) == {"generate": 5.5, "train": 4.4, "others": 1.0, "gather": 0.5}


def test_of_two_clocks_around_a_turn_that_of_the_hybrid_engine_counts() -> None:
    lines = ((losses(n), own_clock(n), engines_clock(n)) for n in TURNS)
    run = run_of(*(line for turn in lines for line in turn))
    assert run.steps["seconds"].round(2).to_list() == [11 + n / 10 for n in TURNS]
    assert seconds(run, 4) == {"generate": 5.5, "train": 4.4, "others": 1.0, "gather": 0.5}
    assert run.repairs.empty


def test_without_a_hybrid_engine_the_clock_of_deepspeed_chat_counts() -> None:
    run = run_of(*(line for n in TURNS for line in (losses(n), own_clock(n))))
    assert seconds(run, 4) == {"generate": 6.0, "train": 3.4}
    assert run.steps["seconds"].round(2).to_list() == [9 + n / 10 for n in TURNS]


@pytest.mark.parametrize("clock", [own_clock, engines_clock])
def test_what_several_ranks_exchange_in_a_turn_is_not_called_compute(
    clock: Callable[[int], str],
) -> None:
    run = run_of(*(line for n in TURNS for line in (losses(n), clock(n))))
    assert set(run.phases.loc[run.phases["mixed"], "name"]) == {"generate", "train"}
    assert run.steps["compute"].isna().all()
