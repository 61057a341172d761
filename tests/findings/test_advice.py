"""Advice never proposes what is so already."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsprof.events import NCCL_SWITCHES
from dsprof.findings.advice import (
    bf16,
    change,
    clipping,
    fused_optimizer,
    higher_stage,
    nccl_debug,
    shown,
)
from dsprof.findings.facts import Facts
from tests.findings.plants import EXPOSED, alone, call, metric, phase, problem, run_of, steps


def facts(ds_config: dict[str, Any] | None = None, **settings: Any) -> Facts:
    if ds_config is not None:
        settings["ds_config"] = json.dumps(ds_config)
    return Facts(run_of([metric("loss", 1, 1.0)], **settings))


@pytest.mark.parametrize(
    ("now", "to", "said"),
    [
        (1.0, "1.0", []),
        (0.5, "1.0", ["0.5"]),
        (None, "1.0", ["unset"]),
        ("auto", "1.0", ["unset"]),
    ],
)
def test_a_value_that_is_set_is_not_proposed(now: object, to: str, said: list[str]) -> None:
    job = facts({"gradient_clipping": now})
    assert [advice.now for advice in change(job, "gradient_clipping", to, "")] == said


@pytest.mark.parametrize(("now", "advised"), [(0.5, 0), ("1.0", 0), ("0.0", 1), (5, 1), (None, 1)])
def test_clipping_is_never_loosened(now: object, advised: int) -> None:
    assert len(clipping(facts({"gradient_clipping": now}), "")) == advised


def test_what_deepspeed_takes_by_itself_is_not_proposed() -> None:
    path = "zero_optimization.reduce_bucket_size"
    assert change(facts({"train_batch_size": 8}), path, "5e8", "") == ()
    assert shown(facts({"train_batch_size": 8}), path) == "unset (5e8)"
    assert len(change(facts(), path, "5e8", "")) == 1  # of a JSON that is not known


def test_more_than_enough_is_enough() -> None:
    job = facts({"zero_optimization": {"reduce_bucket_size": 1e9}})
    path = "zero_optimization.reduce_bucket_size"
    assert change(job, path, "5e8", "", least=True) == ()
    assert change(job, path, "5e8", "")[0].now == "1e9"


@pytest.mark.parametrize(
    ("size", "said"), [(5e8, "5e8"), (150_000_000, "150000000"), (16_777_216, "16777216")]
)
def test_a_number_that_is_not_round_is_not_rounded(size: float, said: str) -> None:
    path = "zero_optimization.reduce_bucket_size"
    assert shown(facts({"zero_optimization": {"reduce_bucket_size": size}}), path) == said


def test_a_switch_that_is_on_is_not_switched_on() -> None:
    on, off = (facts({"bf16": {"enabled": value}}) for value in (True, False))
    assert bf16(on, "") == ()
    assert bf16(off, "")[0][:3] == ("bf16.enabled", "false", "true")


@pytest.mark.parametrize(
    ("config", "settings", "setting"),
    [
        ({"optimizer": {"type": "Adam"}}, {}, None),
        ({"optimizer": {"type": "AdamW"}}, {"basic_optimizer": "FusedAdam"}, None),
        ({"optimizer": {"type": "SGD"}}, {}, None),
        ({"optimizer": {"type": "Adam", "params": {"torch_adam": True, "fused": True}}}, {}, None),
        ({"optimizer": {"type": "Adam", "params": {"torch_adam": True}}}, {},
         "optimizer.params.torch_adam"),
        ({"train_batch_size": 8}, {"basic_optimizer": "AdamW"}, "optimizer.type"),
        ({"train_batch_size": 8}, {"basic_optimizer": "AdamW", "accelerator": "cpu"}, None),
        (None, {}, "optimizer.type"),
    ],
)  # fmt: skip
def test_a_fused_optimizer_is_proposed_where_there_is_none(
    config: dict[str, Any] | None, settings: dict[str, Any], setting: str | None
) -> None:
    found = fused_optimizer(facts(config, **settings))
    assert [advice.setting for advice in found] == ([setting] if setting else [])


def test_there_is_no_stage_above_3_and_nothing_to_shard_on_one_rank() -> None:
    assert higher_stage(facts(zero_stage=3)) == ()
    assert higher_stage(facts(zero_stage=1, world_size=1)) == ()
    assert higher_stage(facts(zero_stage=1))[0][:3] == ("zero_optimization.stage", "1", "2")
    parts = facts(zero_stage=0, world_size=8, tensor_parallel_size=4, pipeline_parallel_size=2)
    assert higher_stage(parts) == ()


@pytest.mark.parametrize(("now", "told"), [({"zero_stage": 0}, True), ({"zero_stage": 1}, False)])
def test_no_stage_above_1_is_advised_in_a_pipeline(now: dict[str, Any], *, told: bool) -> None:
    """DeepSpeed's pipeline engine asserts that the stage is below 2."""
    found = higher_stage(facts(world_size=8, pipeline_parallel_size=4, **now))
    assert [advice.to for advice in found] == ["1"] * told
    untold = higher_stage(facts(world_size=8, pipeline_parallel_size=4))
    assert [advice.to for advice in untold] == ["1"]
    nemo = facts(world_size=8, pipeline_parallel_size=4, framework="nemo")
    assert not nemo.is_by_pipeline_engine


def test_zenflow_brings_its_own_optimizers() -> None:
    timed = phase("selective_optimizer_step", 1, 0.001) | {"timers": "zenflow"}
    assert fused_optimizer(Facts(run_of([timed, metric("loss", 1, 1.0)]))) == ()


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ({}, True),
        ({"network": "IB"}, False),
        ({"transport": "NET/Socket/0"}, False),
        ({"NCCL_IB_DISABLE": "1"}, False),  # NCCL names what it obeys at that level alone
        ({"launch_command": "pdsh -w a,b export NCCL_DEBUG=INFO; python"}, False),
        ({"launch_command": "pdsh -w a,b export NCCL_DEBUG=WARN; python"}, True),
    ],
)
def test_nccl_is_not_asked_to_say_what_it_says_already(told: dict[str, Any], asked: bool) -> None:
    assert bool(nccl_debug(facts(**told), "")) is asked


_TOLD: tuple[tuple[dict[str, Any], bool], ...] = (({}, True), ({"network": "IB"}, False))


def test_of_a_slow_link_nccl_has_said_its_paths() -> None:
    size = 64 << 20
    rows = [call("all_reduce", step, size, size / 4e9) for step in range(1, 11)]
    rows += [metric("step_seconds", step, 1.0) for step in range(1, 11)]
    link = {"link_bytes_per_second": 10e9}
    for told, asked in _TOLD:
        found = alone(run_of(rows, link, world_size=2, **told), "slow-link")
        assert ("NCCL_DEBUG" in [advice.setting for advice in found.advice]) is asked


@pytest.mark.parametrize(
    ("told", "advised"),
    [
        ({"env.NCCL_P2P_DISABLE": "1"}, ["NCCL_P2P_DISABLE"]),  # by a recording, or the script
        ({"NCCL_SHM_DISABLE": "1"}, ["NCCL_SHM_DISABLE"]),  # by NCCL
        ({"env.NCCL_P2P_DISABLE": "0"}, []),
        ({"env.NCCL_IB_DISABLE": "1", "nodes": 2}, ["NCCL_IB_DISABLE"]),
        ({"env.NCCL_IB_DISABLE": "1", "nodes": 1}, []),
    ],
)
def test_a_way_of_nccl_that_is_switched_off_is_told_where_communication_holds_a_step_up(
    told: dict[str, Any], advised: list[str]
) -> None:
    found = alone(
        run_of(steps(10, EXPOSED), world_size=2, zero_stage=1, **told), "communication-bound"
    )
    settings = [advice.setting for advice in found.advice]
    assert [name for name in settings if name in NCCL_SWITCHES] == advised


def test_infiniband_that_is_switched_off_is_told_once_where_sockets_show_it() -> None:
    told: dict[str, Any] = {"nodes": 2, "network": "Socket", "NCCL_IB_DISABLE": "1"}
    found = alone(
        run_of(steps(10, EXPOSED), world_size=16, zero_stage=1, **told), "communication-bound"
    )
    assert [advice.setting for advice in found.advice].count("NCCL_IB_DISABLE") == 1


@pytest.mark.parametrize("rule", ["rank-died", "network-fallback"])
def test_of_a_broken_link_nccl_is_asked_only_where_it_is_silent(rule: str) -> None:
    text = "NET/IB : Got completion from peer 10.0.0.7<50123> with error 12"
    broken = problem("network-error", text, pattern="nccl.warn_network")
    on = [metric("step_seconds", step, 1.0) for step in range(1, 6)]
    ended = [] if rule == "network-fallback" else [problem("exit", "1", value=1)]
    rows = [*on[:3], broken, *(ended or on[3:])]
    for told, asked in _TOLD:
        found = alone(run_of(rows, **told), rule)
        assert ("NCCL_DEBUG" in [advice.setting for advice in found.advice]) is asked
