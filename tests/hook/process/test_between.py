"""What trainers do between steps, by the methods of libraries that may not be installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from dsprof.events import Class
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches
from dsprof.hook.process import between


def noting(entered: list[str]) -> Callable[[str, Class], Callable[[Call], Call]]:
    """Decorators that note the phase of each call."""

    def around(path: str, _: Class) -> Callable[[Call], Call]:
        def timed(raw: Call) -> Call:
            def call(*told: object) -> object:
                entered.append(path)
                return raw(*told)

            return call

        return timed

    return around


@pytest.mark.parametrize(
    ("module", "kind", "method", "phase"),
    [
        ("transformers.generation.utils", "GenerationMixin", "generate", "generate"),
        ("composer.trainer.trainer", "Trainer", "_eval_loop", "evaluation"),
        ("mmengine.runner.loops", "ValLoop", "run", "evaluation"),
        ("torch.profiler.profiler", "profile", "step", "profiler"),
        ("torch.profiler.profiler", "profile", "stop", "profiler"),
    ],
)
def test_what_a_library_does_by_a_method_of_its_own_is_a_phase_until_recording_ends(
    module: str, kind: str, method: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, owner = ModuleType(module), type(kind, (), {method: lambda _, asked: asked + 1})
    setattr(library, kind, owner)
    monkeypatch.setitem(sys.modules, module, library)
    entered: list[str] = []
    patches = Patches()
    between.patch(patches, noting(entered), Guard())
    try:
        assert getattr(owner(), method)(1) == 2
    finally:
        patches.undo()
    assert getattr(owner(), method)(2) == 3
    assert entered == [phase]


def test_a_library_that_is_imported_only_when_it_is_needed_is_recorded_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts often import what saves in the function that saves."""
    monkeypatch.setattr(between, "_FUNCTIONS", (("saves_late", "save"), ("saves_later", "save")))
    for name in ("saves_late", "saves_later"):
        (tmp_path / f"{name}.py").write_text("def save(): return 1", encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    entered: list[str] = []
    patches = Patches()
    between.patch(patches, noting(entered), Guard())
    try:
        late = import_module("saves_late")
        assert late.save() == 1
    finally:
        patches.undo()
    later = import_module("saves_later")
    assert late.save() == later.save() == 1
    assert entered == ["checkpoint"]
