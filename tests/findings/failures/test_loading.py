"""Jobs that were killed for a host's memory before their first step."""

from __future__ import annotations

import pytest

from tests.findings.plants import alone
from tests.loaded import run_of_text

_KILLED = (
    "[2026-03-04 10:11:12,500] [ERROR] [launch.py:325:sigkill_handler] ['python', 'a.py'] exits "
    "with return code = -9\n"
)
_BAR = "Loading checkpoint shards: {:3d}%|████      | {}/4 [00:10<00:10,  5.01s/it]"
_READ = (
    "[2026-03-04 10:11:10,500] [INFO] [engine.py:3014:_get_all_zero_checkpoint_state_dicts] "
    "successfully read 2 ZeRO state_dicts for rank 0\n"
)
_SET_UP = "Loading extension module utils...\nTime to load utils op: 16.5 seconds\n"
_STEP = (
    "[2026-03-04 10:11:10,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0, "
    "lr=[1e-05], mom=[(0.9, 0.95)]\n"
)
_WORKERS = "DataLoader(num_workers=...)"
_OFFLOAD = "zero_optimization.offload_optimizer.device"
_DMESG = "dmesg on that host"


@pytest.mark.parametrize(
    ("before", "advised", "said"),
    [
        (
            _BAR.format(0, 0) + "\n" + _BAR.format(50, 2),
            ["loading of the model"],
            "It had read 2 of 4 parts of its weights.",
        ),
        (
            _BAR.format(100, 4) + "\n",
            ["loading of the model", _WORKERS],
            "is that it had read its weights.",
        ),
        (
            _READ,
            ["loading of the checkpoint", _WORKERS, _OFFLOAD],
            "is that it had read ZeRO's states of a checkpoint.",
        ),
        (_READ + _SET_UP, [_OFFLOAD], ""),
        (_SET_UP, [_OFFLOAD], ""),  # a loader has no workers yet
        (_READ + _STEP, [_WORKERS, _OFFLOAD], ""),
        (_BAR.format(100, 4) + "\n" + _STEP, [_WORKERS, _OFFLOAD], ""),
        (_STEP, [_WORKERS, _OFFLOAD], ""),
    ],
)
def test_what_a_job_was_loading_when_it_was_killed_is_told_and_advised_on(
    before: str, advised: list[str], said: str
) -> None:
    found = alone(run_of_text(before, _KILLED), "rank-died")
    assert [one.setting for one in found.advice] == [_DMESG, *advised]
    assert said in found.summary
    assert bool(said) == ("had read" in found.summary)


def test_no_key_of_deepspeed_is_advised_for_memory_where_nothing_shows_deepspeed() -> None:
    killed = "failed (exitcode: -9) local_rank: 0 (pid: 3787) of binary: /opt/bin/python\n"
    line = "E0902 00:42:54.953000 13334 torch/distributed/elastic/multiprocessing/api.py:833] "
    found = alone(run_of_text(line + killed), "rank-died")
    assert [one.setting for one in found.advice] == [_DMESG, _WORKERS]


def test_a_gpu_that_is_full_while_weights_are_read_is_no_matter_of_the_batch() -> None:
    bar = _BAR.format(50, 2) + "\n"
    full = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    reading, trained = (alone(run_of_text(bar, more, full), "oom") for more in ("", _STEP))
    assert "It had read 2 of 4 parts of its weights." in reading.summary
    assert "deepspeed.zero.Init()" in [one.setting for one in reading.advice]
    assert "activation checkpointing" not in [one.setting for one in reading.advice]
    assert "activation checkpointing" in [one.setting for one in trained.advice]
