"""How large a wrapped model is, and on how many ranks; what may be a part of it is left out."""

from __future__ import annotations

from typing import Any

from dsprof.hook.models.sizes import parameters_of, sizes_of, wrapped_in, wrapper_of

WHOLE = {"parameters": 12, "data_parallel_size": 4}


class Parameter:
    def __init__(self, *, packed: bool = False, learned: bool = True, **more: Any) -> None:
        self.packed, self.requires_grad = packed, learned
        vars(self).update(more)

    def numel(self) -> int:
        return 6

    def is_floating_point(self) -> bool:
        return not self.packed


class Mesh:
    def __init__(self, *shape: int) -> None:
        self.ndim, self.ranks = len(shape), shape[0] * shape[-1] if len(shape) > 1 else shape[0]

    def size(self) -> int:
        return self.ranks


class Model:
    def __init__(self, *parameters: Parameter) -> None:
        self.parameters_to_ignore: set[str] = set()
        self.process_group = Mesh(4)
        self._parameters = parameters
        self.parts: tuple[Model, ...] = ()

    def parameters(self) -> tuple[Parameter, ...]:
        return self._parameters

    def modules(self) -> tuple[Model, ...]:
        return (self, *self.parts)


class DistributedDataParallel(Model):
    __module__ = "torch.nn.parallel.distributed"


class FSDPModule(Model):
    __module__ = "torch.distributed.fsdp"


class OfMegatron(Model):
    __module__, __qualname__ = "megatron.core.distributed", "DistributedDataParallel"


OfMegatron.__name__ = OfMegatron.__qualname__


def sharded(*meshes: Mesh | None) -> FSDPModule:
    return FSDPModule(*(Parameter(device_mesh=one) if one else Parameter() for one in meshes))


def test_a_replica_or_what_is_sharded_over_all_ranks_is_all_of_the_model() -> None:
    one = Mesh(4)
    assert sizes_of(DistributedDataParallel(Parameter(), Parameter()), 4) == WHOLE
    assert sizes_of(sharded(one, one), 4) == WHOLE


def test_what_wraps_a_model_is_named_by_its_class() -> None:
    assert wrapper_of(DistributedDataParallel()) == "DDP"
    assert wrapper_of(sharded(Mesh(4))) == "FSDP2"
    assert wrapper_of(Model()) is None


def test_what_is_wrapped_inside_of_a_model_is_the_model_if_it_holds_all_of_it() -> None:
    """A LightningModule is not sharded itself: the network in it is."""
    one, other = Parameter(), Parameter()
    network, layer, module = FSDPModule(one, other), FSDPModule(one), Model(one, other)
    module.parts = (network, layer)
    assert wrapped_in(module) is network
    assert wrapped_in(network) is network
    module.parts = (layer,)
    assert wrapped_in(module) is module


def test_ranks_beside_those_that_hold_a_model_may_hold_other_parts_of_it() -> None:
    """As the stages of a pipeline do."""
    one = Mesh(4)
    for model in (DistributedDataParallel(Parameter(), Parameter()), sharded(one, one)):
        assert sizes_of(model, 8) == {"data_parallel_size": 4}


def test_of_a_mesh_of_several_axes_one_may_split_what_fsdp_shards() -> None:
    one = Mesh(2, 2)
    assert sizes_of(sharded(one, one), 4) == {"parameters": 12}


def test_where_experts_are_on_other_ranks_than_the_rest_nothing_is_known() -> None:
    assert sizes_of(sharded(Mesh(4), Mesh(2)), 4) == {}
    assert sizes_of(sharded(Mesh(4), None), 4) == {}


def test_packed_parameters_and_such_as_differ_between_ranks_are_not_counted() -> None:
    packed = DistributedDataParallel(Parameter(), Parameter(packed=True))
    own = DistributedDataParallel(Parameter(), Parameter())
    own.parameters_to_ignore = {"expert"}
    for model in (packed, own):
        assert sizes_of(model, 4) == {"data_parallel_size": 4}


def test_of_a_model_that_nothing_wraps_nothing_is_known() -> None:
    assert sizes_of(Model(Parameter()), 1) == {}


def test_of_a_model_that_is_not_all_learned_its_gradients_are_fewer_than_its_parameters() -> None:
    adapted = DistributedDataParallel(Parameter(learned=False), Parameter())
    assert sizes_of(adapted, 4) == {"data_parallel_size": 4}


def test_a_parameter_of_which_zero_keeps_a_part_counts_whole_and_experts_not_at_all() -> None:
    assert parameters_of(Model(Parameter(ds_numel=24), Parameter())) == 30
    assert parameters_of(Model(Parameter(allreduce=False), Parameter())) == 0


def test_a_class_of_another_library_with_the_name_of_pytorchs_is_none() -> None:
    """Megatron's reduces by itself, and has no process group of that name."""
    other = OfMegatron(Parameter())
    assert wrapper_of(other) is None
    assert sizes_of(other, 4) == {}
