"""Modules that are not imported yet: acted on when they are, and found as ever until then."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsprof.hook.finding import Search, _Finder
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Patches

NAME = "dsprof_tests_of_finding"


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    """Where a finder notes the imports of the module `NAME`."""
    (tmp_path / f"{NAME}.py").write_text("word = 'there'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []
    finder = _Finder({NAME: seen.append}, Guard())
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield seen
    sys.modules.pop(NAME, None)


def test_a_module_is_acted_on_once_when_it_has_run(seen: list[ModuleType]) -> None:
    module = importlib.import_module(NAME)
    assert seen == [module]
    assert module.word == "there"
    assert type(module.__loader__).__module__.startswith(("importlib", "_frozen"))
    del sys.modules[NAME]
    importlib.import_module(NAME)
    assert seen == [module]


def test_asking_whether_a_module_is_there_does_not_use_up_its_action(
    seen: list[ModuleType],
) -> None:
    """As transformers and accelerate ask for torch and deepspeed before anybody imports them."""
    for _ in range(2):
        spec = importlib.util.find_spec(NAME)
        assert spec is not None
        assert spec.loader is not None
        assert spec.loader.get_source(NAME) == "word = 'there'\n"  # type: ignore[attr-defined]
    assert seen == []
    module = importlib.import_module(NAME)
    assert seen == [module]


def test_a_module_that_is_not_there_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = _Finder({f"{NAME}_missing": lambda _: None}, Guard())
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert importlib.util.find_spec(f"{NAME}_missing") is None
    with pytest.raises(ModuleNotFoundError, match=f"{NAME}_missing"):
        importlib.import_module(f"{NAME}_missing")


class OldFinder:
    """As `six` before 1.16 has one: Python before 3.12 still asks it, later ones pass over it."""

    def find_module(self, name: str, path: object = None) -> None:
        """It is not here."""


@pytest.mark.filterwarnings("ignore:.*find_spec:ImportWarning")
def test_a_finder_of_an_old_kind_hides_no_module_and_breaks_no_question(
    seen: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, *others = sys.meta_path
    actions = vars(ours)["actions"]
    actions[f"{NAME}_missing"] = actions[NAME]
    monkeypatch.setattr(sys, "meta_path", [OldFinder(), ours, *others, OldFinder()])
    assert importlib.util.find_spec(f"{NAME}_missing") is None
    assert importlib.import_module(NAME) in seen


def test_an_action_that_fails_leaves_the_import_alone(
    seen: list[ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: ModuleType) -> None:
        raise ZeroDivisionError("planted")

    sys.meta_path[0] = _Finder({NAME: fail}, Guard())
    assert importlib.import_module(NAME).word == "there"
    assert capsys.readouterr().err.count("planted") == 1
    assert seen == []


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
    found: list[tuple[object, object]] = []
    patches = Patches()
    Search(lambda *pair: found.append(pair), lambda: None).start(patches)
    try:
        net = sharded(vars(place)["fully_shard"], torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(2)).backward()
        optimizer.step()
    finally:
        patches.undo()
    assert found == [(net, optimizer)]
