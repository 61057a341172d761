"""What the header of a recording says of its process."""

from __future__ import annotations

import os
from functools import partial

import pytest

pytest.importorskip("torch")

import torch

from dsprof.hook.header import environment, header_of
from dsprof.hook.process.cpu import Limit


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


def test_a_loop_of_hugging_face_s_trainer_is_told() -> None:
    """Not one of a script that only loads it."""
    loop: dict[str, object] = {
        "__name__": "transformers.trainer",
        "attach": partial(header_of, {}, ""),
    }
    exec("def train():\n    return attach(shares_launch=False)", loop)
    train = loop["train"]
    assert callable(train)
    assert train()["config"]["trainer"] == "huggingface"
    assert "trainer" not in header_of({}, "", shares_launch=False)["config"]
