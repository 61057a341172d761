"""Modules that are not imported yet: acted on when they are, and found as ever until then."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsprof import imports
from dsprof.imports import when_imported

NAME = "dsprof_tests_of_imports"


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    """Where the imports of the module `NAME` are noted."""
    (tmp_path / f"{NAME}.py").write_text("word = 'there'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before, seen = list(sys.meta_path), list[ModuleType]()
    take_back = when_imported(NAME, seen.append)
    yield seen
    sys.modules.pop(NAME, None)
    take_back()
    assert sys.meta_path == before


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


def test_a_module_that_is_there_is_acted_on_at_once_and_leaves_no_finder() -> None:
    before, seen = list(sys.meta_path), list[ModuleType]()
    when_imported("json", seen.append)
    assert seen == [sys.modules["json"]]
    assert sys.meta_path == before


def test_what_is_taken_back_is_not_called(seen: list[ModuleType]) -> None:
    other: list[ModuleType] = []
    when_imported(NAME, other.append)()
    assert importlib.import_module(NAME) in seen
    assert other == []


def test_what_is_asked_for_while_a_module_is_imported_waits_until_it_is_whole(
    seen: list[ModuleType], tmp_path: Path
) -> None:
    """DeepSpeed imports torch, at whose end the hook asks for DeepSpeed, and for torch itself."""
    text = f"import {NAME}_inner\nword = 'whole'\n"
    (tmp_path / f"{NAME}.py").write_text(text, encoding="utf-8")
    (tmp_path / f"{NAME}_inner.py").write_text("word = 'whole'\n", encoding="utf-8")
    words: list[str] = []

    def ask(_: ModuleType) -> None:
        for name in (NAME, f"{NAME}_inner"):
            when_imported(name, lambda module: words.append(f"{module.__name__} {module.word}"))

    when_imported(f"{NAME}_inner", ask)
    try:
        importlib.import_module(NAME)
    finally:
        sys.modules.pop(f"{NAME}_inner", None)
    assert words == [f"{NAME}_inner whole", f"{NAME} whole"]
    assert len(seen) == 1


def test_a_module_that_fails_is_waited_for_as_before(
    seen: list[ModuleType], tmp_path: Path
) -> None:
    file = tmp_path / f"{NAME}.py"
    file.write_text("raise ImportError('planted')\n", encoding="utf-8")
    with pytest.raises(ImportError, match="planted"):
        importlib.import_module(NAME)
    assert seen == []
    file.write_text("word = 'mended, and of another length'\n", encoding="utf-8")
    importlib.invalidate_caches()
    assert importlib.import_module(NAME) in seen


def test_a_module_that_is_not_there_is_not_found() -> None:
    take_back = when_imported(f"{NAME}_missing", lambda _: None)
    try:
        assert importlib.util.find_spec(f"{NAME}_missing") is None
        with pytest.raises(ModuleNotFoundError, match=f"{NAME}_missing"):
            importlib.import_module(f"{NAME}_missing")
    finally:
        take_back()


class OldFinder:
    """As `six` before 1.16 has one: Python before 3.12 still asks it, later ones pass over it."""

    def find_module(self, name: str, path: object = None) -> None:
        """It is not here."""


@pytest.mark.filterwarnings("ignore:.*find_spec:ImportWarning")
def test_a_finder_of_an_old_kind_hides_no_module_and_breaks_no_question(
    seen: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_back = when_imported(f"{NAME}_missing", lambda _: None)
    monkeypatch.setattr(sys, "meta_path", [OldFinder(), *sys.meta_path, OldFinder()])
    assert importlib.util.find_spec(f"{NAME}_missing") is None
    assert importlib.import_module(NAME) in seen
    monkeypatch.undo()
    take_back()


class AskingFinder:
    """As other libraries have one that acts on imports: it asks all finders but itself."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> object:
        finders: list[Any] = sys.meta_path
        others = [one for one in finders if one is not self and hasattr(one, "find_spec")]
        found = (finder.find_spec(name, path, target) for finder in others)
        return next((spec for spec in found if spec is not None), None)


@pytest.mark.parametrize("place", [0, 1])
def test_finders_that_ask_all_others_do_not_ask_each_other_for_ever(
    seen: list[ModuleType], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours is such a one, too: whoever loads dsprof anew has two of it."""
    ours = imports._Finder()
    ours.actions[NAME] = [seen.append]
    finders: list[Any] = [AskingFinder(), ours]
    monkeypatch.setattr(sys, "meta_path", [*finders[:place], *sys.meta_path, *finders[place:]])
    module = importlib.import_module(NAME)
    assert module in seen
    assert module.word == "there"
    monkeypatch.undo()


class PuttingFinder:
    """Finds `NAME` with a loader of its own."""

    def __init__(self, loader: Callable[[Any], Any]) -> None:
        self.loader = loader

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> object:  # noqa: ARG002
        spec = PathFinder.find_spec(name) if name == NAME else None
        if spec is not None:
            spec.loader = self.loader(spec.loader)
        return spec


class OldLoader:
    """As those of Python 3.3 and before."""

    def __init__(self, _: object) -> None:
        """It makes what it likes."""

    def load_module(self, name: str) -> ModuleType:
        module = sys.modules.setdefault(name, ModuleType(name))
        vars(module)["word"] = "old"
        return module


def test_a_module_that_is_loaded_when_it_is_first_used_is_acted_on_then(
    seen: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    finders = [*sys.meta_path[:1], PuttingFinder(importlib.util.LazyLoader), *sys.meta_path[1:]]
    monkeypatch.setattr(sys, "meta_path", finders)
    module = importlib.import_module(NAME)
    assert seen == []
    assert module.word == "there"
    assert seen == [module]
    monkeypatch.undo()


@pytest.mark.filterwarnings("ignore:.*load_module:ImportWarning")
@pytest.mark.skipif(sys.version_info >= (3, 15), reason="such loaders are not asked any more")
def test_a_loader_of_an_old_kind_is_called_as_ever(
    seen: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    finders = [*sys.meta_path[:1], PuttingFinder(OldLoader), *sys.meta_path[1:]]
    monkeypatch.setattr(sys, "meta_path", finders)
    assert importlib.import_module(NAME).word == "old"
    assert seen == []
    monkeypatch.undo()
