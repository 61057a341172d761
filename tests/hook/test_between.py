"""What trainers do between steps, by the methods of libraries that may not be installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from dsprof.events import Class
from dsprof.hook import between
from dsprof.hook.patches import Call, Patches


@pytest.mark.parametrize(
    ("module", "kind", "method", "phase"),
    [
        ("transformers.generation.utils", "GenerationMixin", "generate", "generate"),
        ("composer.trainer.trainer", "Trainer", "_eval_loop", "evaluation"),
    ],
)
def test_what_a_library_does_by_a_method_of_its_own_is_a_phase_until_recording_ends(
    module: str, kind: str, method: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, owner = ModuleType(module), type(kind, (), {method: lambda _, asked: asked + 1})
    setattr(library, kind, owner)
    monkeypatch.setitem(sys.modules, module, library)
    entered: list[str] = []

    def around(path: str, _: Class) -> Callable[[Call], Call]:
        def timed(raw: Call) -> Call:
            def call(*told: object) -> object:
                entered.append(path)
                return raw(*told)

            return call

        return timed

    patches = Patches()
    between.patch(patches, around)
    try:
        assert getattr(owner(), method)(1) == 2
    finally:
        patches.undo()
    assert getattr(owner(), method)(2) == 3
    assert entered == [phase]
