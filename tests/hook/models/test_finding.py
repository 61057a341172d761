"""Engines, models and optimizers that a process makes are found by themselves."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dsprof.hook.models import finding
from dsprof.hook.models.finding import Search
from dsprof.hook.patches import Patches


def test_a_library_that_cannot_be_looked_into_is_imported_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A `deepspeed` without `initialize`."""
    monkeypatch.setitem(sys.modules, "deepspeed", ModuleType("deepspeed"))
    patches = Patches()
    Search(lambda *_: None, lambda: None).start(patches)
    patches.undo()
    assert "initialize" in capsys.readouterr().err


class Joinable:
    """A base of DDP, as it is of others."""

    def __init__(self) -> None:
        self.joins = False


class Ddp(Joinable):
    def __init__(self) -> None:
        super().__init__()
        warnings.warn("old", FutureWarning, stacklevel=2)


def test_a_warning_of_ddp_names_the_line_that_makes_it() -> None:
    search, before = Search(lambda *_: None, lambda: None), Joinable.__init__
    search.patches = Patches()
    search._wrapper(Ddp)
    with pytest.warns(FutureWarning) as warned:
        model, other = Ddp(), Joinable()
    assert warned[0].filename == __file__
    assert model in search._models
    assert other not in search._models
    search.patches.undo()
    assert Joinable.__init__ is before


@pytest.mark.parametrize(
    "sharded",
    [
        lambda fully_shard, model: fully_shard(model),
        lambda fully_shard, model: fully_shard(model, mesh=None),
        lambda fully_shard, model: fully_shard(mesh=None, module=model),
    ],
)
def test_a_model_that_is_sharded_by_what_pytorch_before_2_6_has_is_found(
    monkeypatch: pytest.MonkeyPatch, sharded: Callable[[Any, Any], Any]
) -> None:
    """FSDP2 had its place elsewhere then."""
    torch = pytest.importorskip("torch")
    place = ModuleType("torch.distributed._composable.fsdp")
    vars(place)["fully_shard"] = lambda module, *, mesh=None: module  # noqa: ARG005
    monkeypatch.setitem(sys.modules, place.__name__, place)
    found: list[tuple[object, ...]] = []
    patches = Patches()
    Search(lambda *told: found.append(told), lambda: None).start(patches)
    try:
        net = sharded(vars(place)["fully_shard"], torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(2)).backward()
        optimizer.step()
    finally:
        patches.undo()
    assert found == [(net, optimizer, True)]


def test_what_a_model_was_compiled_to_before_the_search_is_found_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is what the script calls."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(finding, "_has_peers", lambda: True)
    net = torch.nn.Linear(2, 1)
    faster = torch.compile(net, backend="eager")
    optimizer = torch.optim.SGD(faster.parameters(), lr=0.1)
    found: list[tuple[object, ...]] = []
    search, patches = Search(lambda *told: found.append(told), lambda: None), Patches()
    search.start(patches)
    search._wrappers.append(torch.nn.Linear)
    try:
        faster(torch.ones(2)).backward()
        optimizer.step()
    finally:
        patches.undo()
    assert [model is faster for model, *_ in found] == [True]


def test_no_model_is_looked_for_whose_parameters_the_script_has_attached_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking through all objects of a process would hold up its first step."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(finding, "_has_peers", lambda: True)
    looked: list[tuple[type, ...]] = []

    def instances(*kinds: type) -> list[Any]:
        looked.append(kinds)
        return []

    monkeypatch.setattr(finding, "instances", instances)
    mine, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    search, patches = Search(lambda *_: None, lambda: None, attached=lambda: [mine]), Patches()
    search.start(patches)
    try:
        for net, times in ((mine, 0), (other, 2)):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(2)).backward()
            optimizer.step()
            assert len(looked) == times
    finally:
        patches.undo()
