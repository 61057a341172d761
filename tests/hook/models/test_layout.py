"""How many ranks have samples of their own, and how many samples a step has, by its engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dsprof.hook.models.layout import Batch, samples, sizes
from tests.hook.models.test_sizes import Model, Parameter


def engine(data: int | None, *, told: float = 4, micro: int = 2, **more: Any) -> SimpleNamespace:
    """One of 4 ranks that accumulates 3 micro-batches. `data`: ranks of a data parallel group;
    `told`: what the configuration takes them for."""
    return SimpleNamespace(
        dp_world_size=data,
        _config=SimpleNamespace(world_size=told),
        train_micro_batch_size_per_gpu=lambda: micro,
        gradient_accumulation_steps=lambda: 3,
        train_batch_size=lambda: int(micro * 3 * told),
        **more,
    )


def test_every_rank_of_a_plain_engine_has_samples_of_its_own() -> None:
    plain = engine(4, mp_world_size=1, sequence_parallel_size=1)
    assert sizes(plain) == {
        "data_parallel_size": 4,
        "tensor_parallel_size": 1,
        "sequence_parallel_size": 1,
        "train_batch_size": 24,
    }


def test_ranks_that_share_tensors_have_the_same_samples_whatever_the_configuration_counts() -> None:
    tensors = sizes(engine(2, mp_world_size=2))
    assert tensors["data_parallel_size"] == tensors["tensor_parallel_size"] == 2
    assert tensors["train_batch_size"] == 12


@pytest.mark.parametrize("data", [None, 4])  # as groups say it of a sequence parallel model
def test_ranks_that_share_a_sequence_have_the_same_samples(data: int | None) -> None:
    sequence = sizes(engine(data, told=2.0, sequence_parallel_size=2))
    assert sequence["data_parallel_size"] == sequence["sequence_parallel_size"] == 2
    assert sequence["train_batch_size"] == 12


def test_stages_of_a_pipeline_are_no_tensor_parallel_ranks() -> None:
    stages = sizes(engine(1, told=1, mp_world_size=4, num_stages=2))
    assert stages["pipeline_parallel_size"] == stages["tensor_parallel_size"] == 2


def test_a_step_has_the_samples_of_all_micro_batches_that_ran() -> None:
    assert samples(engine(4), 5) == 40
    assert samples(engine(4), 2) == samples(engine(4)) == 24  # recording began in the midst of it


def test_of_an_engine_that_knows_no_ranks_the_batch_is_what_it_says() -> None:
    assert samples(SimpleNamespace(train_batch_size=lambda: 7), 5) == 7


def test_a_step_of_another_batch_is_told_whether_the_loop_or_the_settings_made_it() -> None:
    one = engine(4)
    batch = Batch(one)
    assert batch.other(one, 3) is None
    assert batch.other(one, 5) == 40
    one.train_micro_batch_size_per_gpu, one.train_batch_size = (lambda: 4), (lambda: 48)
    assert batch.other(one, 3) == 48


@pytest.mark.parametrize(
    ("data", "more", "told"),
    [
        (4, {}, 12),
        (2, {"sequence_parallel_size": 2}, 12),
        (2, {"mp_world_size": 2}, None),  # a half of each layer
        (4, {"num_stages": 1}, None),  # a stage may be all, or not
    ],
)
def test_a_model_of_which_each_rank_has_all_is_as_large_as_that(
    data: int, more: dict[str, int], told: int | None
) -> None:
    module = Model(Parameter(), Parameter())
    found = sizes(engine(data, told=data, world_size=4, module=module, **more))
    assert found.get("parameters") == told


def test_experts_are_spread_over_as_many_ranks_as_their_layers_say() -> None:
    layers = [SimpleNamespace(), SimpleNamespace(ep_size=2), SimpleNamespace(ep_size=1)]
    module = SimpleNamespace(modules=lambda: layers, parameters=tuple)
    plain: dict[str, Any] = {"mp_world_size": 1, "sequence_parallel_size": 1, "module": module}
    assert sizes(engine(4, has_moe_layers=True, **plain))["expert_parallel_size"] == 2
    assert "expert_parallel_size" not in sizes(engine(4, has_moe_layers=False, **plain))
