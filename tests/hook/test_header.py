"""What the header of a recording says of its process."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

import torch

from dsprof.hook.cpu import Limit
from dsprof.hook.header import environment


def test_variables_that_are_set_threads_and_cores_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("OMP_NUM_THREADS", "3"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    limit = Limit().cpus  # of the container that the test is in
    assert environment() == ({"cpu_limit": limit} if limit else {}) | {
        "env.OMP_NUM_THREADS": "3",
        "cpu_threads": torch.get_num_threads(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "local_ranks": 2,
    }
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "two")
    assert "local_ranks" not in environment()
