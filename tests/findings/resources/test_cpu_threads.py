"""Optimizers that run on the CPU, in fewer threads than they could."""

from __future__ import annotations

from typing import Any

import pytest

from tests.findings.plants import one, run_of, steps

SLOW = {"forward": 0.3, "backward_inner": 0.2, "backward_allreduce": 0.1, "optimizer_step": 0.4}
VARIABLE = "OMP_NUM_THREADS"


def advised(**told: Any) -> list[tuple[str, str]]:
    """The variable now and then, of what is advised against offloading."""
    run = run_of(steps(3, SLOW), world_size=2, zero_stage=2, **told)
    found = one(run, "offload-bound")
    return [(now, to) for setting, now, to, _ in found.advice if setting == VARIABLE]


def test_one_thread_of_each_rank_as_torchrun_sets_it_is_told_where_the_update_is_on_the_cpu() -> (
    None
):
    assert advised(offload_optimizer="cpu", **{f"env.{VARIABLE}": "1"}) == [
        ("1", "a host's cores over its ranks")
    ]
    assert advised(offload_optimizer="cpu", **{f"env.{VARIABLE}": "8"}) == []
    assert advised(offload_optimizer="cpu") == []


@pytest.mark.parametrize(
    ("threads", "cores", "expected"),
    [(1, 64, [("1", "8")]), (4, 64, [("4", "8")]), (8, 64, []), (1, 8, [])],
)
def test_a_recording_knows_how_many_cores_there_are(
    threads: int, cores: int, expected: list[tuple[str, str]]
) -> None:
    told = {"cpu_threads": threads, "cpu_cores": cores, "local_ranks": 8, f"env.{VARIABLE}": "1"}
    assert advised(offload_optimizer="cpu", **told) == expected


def test_a_limit_of_the_container_counts_where_it_allows_fewer_cores() -> None:
    told = {"cpu_threads": 1, "cpu_cores": 64, "cpu_limit": 16.5, "local_ranks": 8}
    assert advised(offload_optimizer="cpu", **told) == [("1", "2")]
