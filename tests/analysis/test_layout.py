"""How a job is laid out, as far as its configuration tells."""

from __future__ import annotations

import pytest

from dsprof.analysis.layout import ds_config, layout_of, setting

PLAIN = {"framework": "deepspeed", "world_size": 8}


def test_a_plain_job_is_data_parallel_over_all_ranks() -> None:
    found = layout_of(PLAIN, {})
    assert (found.data_parallel, found.tensor_parallel, found.stages) == (8, 1, 1)


def test_a_pipeline_of_unknown_depth_stays_unknown() -> None:
    found = layout_of(PLAIN, {}, pipeline=True)
    assert found.stages is None
    assert found.data_parallel is None


def test_a_megatron_job_is_not_taken_for_data_parallel() -> None:
    assert layout_of({"framework": "megatron", "world_size": 8}, {}).data_parallel is None


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
