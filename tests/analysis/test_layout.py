"""How a job is laid out, as far as its configuration tells."""

from __future__ import annotations

import pytest

from dsprof.analysis.layout import (
    Layout,
    ds_config,
    layout_of,
    offloads_optimizer,
    setting,
)

PLAIN = {"framework": "deepspeed", "world_size": 8}


def test_a_plain_job_is_data_parallel_over_all_ranks() -> None:
    found = layout_of(PLAIN, {})
    assert (found.data_parallel, found.tensor_parallel, found.stages) == (8, 1, 1)


def test_a_pipeline_of_unknown_depth_stays_unknown() -> None:
    found = layout_of(PLAIN, {}, pipeline=True)
    assert found.stages is None
    assert found.data_parallel is None


def test_a_megatron_job_is_not_taken_for_data_parallel() -> None:
    found = layout_of({"framework": "megatron", "world_size": 8}, {})
    assert found.data_parallel is found.tensor_parallel is found.stages is None


def test_data_parallelism_is_what_the_others_leave() -> None:
    config = {"world_size": 16, "tensor_parallel_size": 2, "pipeline_parallel_size": 4}
    assert layout_of(config, {}).data_parallel == 2


def test_accumulation_follows_from_the_batch() -> None:
    config = PLAIN | {"train_batch_size": 64, "micro_batch_size": 2}
    assert layout_of(config, {}).micro_batches == 4


def test_a_batch_that_does_not_divide_tells_nothing() -> None:
    config = PLAIN | {"train_batch_size": 63, "micro_batch_size": 2}
    assert layout_of(config, {}).micro_batches is None


def test_the_jobs_json_is_read_by_dotted_keys() -> None:
    config = {"ds_config": {"zero_optimization": {"stage": 2, "overlap_comm": "auto"}}}
    assert setting(config, "zero_optimization.stage") == 2
    assert setting(config, "zero_optimization.overlap_comm") is None
    assert setting(config, "zero_optimization.stage.deeper") is None
    assert layout_of(config, {}).zero_stage == 2


@pytest.mark.parametrize("broken", ["{", [1, 2], 3, None])
def test_json_that_is_none_is_no_configuration(broken: object) -> None:
    assert ds_config({"ds_config": broken}) == {}


@pytest.mark.parametrize("nonsense", [True, "many", -1, float("nan"), float("inf"), 0])
def test_a_number_of_ranks_that_is_none_is_unknown(nonsense: object) -> None:
    assert layout_of({"world_size": nonsense}, {}).world_size is None


@pytest.mark.parametrize(("ranks", "nodes"), [([0, 1], 1), ([0], None)])
def test_one_host_is_all_there_are_where_every_rank_was_recorded_on_it(
    ranks: list[int], nodes: int | None
) -> None:
    meta = {"hosts": ["a"], "recordings": [{"rank": rank} for rank in ranks]}
    assert layout_of({"world_size": 2}, meta).nodes == nodes
    assert layout_of({"world_size": 2}, {"hosts": ["a"]}).nodes is None  # a log of one host


def test_meta_data_fill_in_what_the_configuration_leaves_out() -> None:
    found = layout_of({"world_size": 8}, {"link_bytes_per_second": 1e9, "hosts": ["a", "b"]})
    assert found.link_bytes_per_second == 1e9
    assert found.nodes == 2


def test_a_replica_moves_the_bytes_of_its_own_stage_if_all_sizes_are_known() -> None:
    known = {"parameters": 1e9, "element_bytes": 2, "stages": 4}
    assert Layout(**known).replica_bytes == 0.5e9  # type: ignore[arg-type]
    for name in known:
        assert Layout(**(known | {name: None})).replica_bytes is None  # type: ignore[arg-type]


def test_parameters_of_a_gpu_are_a_part_of_the_model_that_all_sizes_tell() -> None:
    config = {"parameters_per_gpu": 1e9, "tensor_parallel_size": 2, "pipeline_parallel_size": 4}
    assert layout_of(config, {}).parameters == 8e9
    assert layout_of(config | {"parameters": 7e9}, {}).parameters == 7e9
    assert layout_of(config | {"tensor_parallel_size": None}, {}).parameters is None


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"dtype": "bf16"}, 2),
        ({"dtype": "fp32", "ds_config": {"fp16": {"enabled": True}}}, 4),
        ({"ds_config": {"fp16": {"enabled": True}}}, 2),
        ({"ds_config": {"bf16": {"enabled": True}}}, 2),
        ({"ds_config": {"zero_optimization": {"stage": 1}}}, 4),
        ({"dtype": "fp8"}, None),
        ({}, None),
    ],
)
def test_an_element_is_as_large_as_the_type_that_is_told(
    config: dict[str, object], size: int | None
) -> None:
    assert layout_of(config, {}).element_bytes == size


@pytest.mark.parametrize(("told", "stage"), [(0, 0), (3, 3), (4, None), (-1, None), (True, None)])
def test_zero_has_the_stages_0_to_3(told: object, stage: int | None) -> None:
    assert layout_of({"zero_stage": told}, {}).zero_stage == stage
    assert layout_of({"ds_config": {"zero_optimization": {"stage": told}}}, {}).zero_stage == stage


@pytest.mark.parametrize(("told", "is_off"), [("cpu", True), ("nvme", True), ("none", False)])
def test_the_optimizer_is_offloaded_to_the_host_or_a_disk(told: str, is_off: bool) -> None:
    assert offloads_optimizer({"offload_optimizer": told}) is is_off
    assert not offloads_optimizer({})
