"""What `torch.compile` makes of a model after us, and of functions that call us."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from dsprof.hook.parts import unless_compiling
from dsprof.hook.patches import Call
from dsprof.hook.recorder import Recorder


class Compiling:
    """A model's forward is timed also when it is compiled; our own functions never are."""

    def __init__(self, recorder: Recorder) -> None:
        import torch

        self.models = recorder.models
        self._compiled = recorder.guard(self._made)
        _hide()
        recorder.patches.method(torch, "compile", self._around)

    def _around(self, raw: Call) -> Call:
        def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            made = raw(model, *args, **kwargs)
            found = self._compiled(model, made)
            return made if found is None else found

        return compile_

    def _made(self, given: Any, made: Any) -> Any:
        for parts in self.models.values():
            made = parts.compiled(given, made)
        return made


def _hide() -> None:
    """A compiled function runs what it cannot hold as it is, with the compiler listening: of our
    functions it would make graphs of their own."""
    frames = importlib.import_module("torch._C._dynamo.eval_frame")
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction  # noqa: SLF001
        skip = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)  # noqa: SLF001
        listens = unless_compiling.__name__  # what leads to a model's own forward
        for code in (code for code in _ours() if not code.co_qualname.startswith(listens)):
            frames.set_code_exec_strategy(code, skip)


def _ours() -> Iterator[CodeType]:
    """The code of all functions of this package, and of those inside them."""
    package = __package__ or ""
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            held = list(vars(module).values())
            held += [one for kind in held if isinstance(kind, type) for one in vars(kind).values()]
            for one in held:
                code = getattr(getattr(one, "fget", one), "__code__", None)
                if isinstance(code, CodeType):
                    yield from _inside(code)


def _inside(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _inside(constant)
