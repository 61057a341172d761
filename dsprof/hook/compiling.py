"""Keep our hooks out of what `torch.compile` makes of attached models, of functions that call us,
and of functions that step optimizers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial, update_wrapper
from types import CodeType
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.parts import unless_compiling
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase

_LISTENING: Final[list[Compiling]] = []  # the recording's, while there is one
_WATCHED: Final = "_steps_for_dsprof"  # on what looks already


class Compiling:
    """A model's forward is timed also when it is compiled; our own functions never are."""

    def __init__(self, recorder: Recorder) -> None:
        import torch

        self.models, self.timeline, guard = recorder.models, recorder.timeline, recorder.guard
        self._compiled, self._begins = guard(self._made), guard(self._given)
        step = self.timeline.phase("step", Class.OPTIMIZER)
        begin = partial(self._begin, step)
        self.timed: Call = lambda made: guard.around(made, begin, self._end)
        self.seen: Call = lambda made: guard.around(made, self._begin_first, self._end)
        _hide()
        recorder.patches.method(torch, "compile", self._around)
        _LISTENING.append(self)
        recorder.patches.undo_with(lambda: _LISTENING.remove(self))

    def _around(self, raw: Call) -> Call:
        def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            begins = self._begins(model)
            given = model if begins is None else begins
            made = raw(given, *args, **kwargs)
            found = self._compiled(given, made)
            return made if found is None else found

        return compile_

    def _given(self, given: Any) -> Any:
        """What the compiler gets. From now on something is compiled: see `held_if_compiled`."""
        for parts in self.models.values():
            if not _knows_strategies():
                parts.patches.hold()
            given = parts.to_compile(given)
        return given

    def _made(self, given: Any, made: Any) -> Any:
        for parts in self.models.values():
            made = parts.compiled(given, made)
        return stepping(given, made)

    def _begin(self, step: Phase, args: Any, kwargs: Any) -> Frame | None:
        """Of what does nothing but step optimizers, unless a closure is passed that trains."""
        timeline = self.timeline
        parts = self.models.get(timeline.current)
        if args or kwargs or parts is None or timeline.stack or timeline.is_elsewhere():
            return None
        return timeline.enter(parts.track, step)

    def _begin_first(self, *_: Any) -> None:
        """A forward that is compiled with the step cannot begin the first one."""
        if self.timeline.current is None and len(self.models) == 1:
            for parts in self.models.values():
                self.timeline.begin(parts.track)

    def _end(self, frame: Frame | None) -> None:
        self.timeline.leave(frame)
        for parts in list(self.models.values()):
            parts.look_at_compiled(is_timed=frame is not None)


def held_if_compiled(patches: Patches) -> None:
    """Let methods hold their model if something was compiled that may call it: before PyTorch 2.6
    the compiler follows no weak reference."""
    if _has_compiled() and not _knows_strategies():
        patches.hold()


def stepping(given: Any, made: Any, also: Callable[[], Any] | None = None) -> Any:
    """What `torch.compile` made of a function, with a look behind each call at the optimizers that
    stepped in it, if it may step any; then `also` looks.

    One that steps and has no backward is a phase, with whatever else it does.
    """
    optimizer, code = getattr(given, "__self__", None), getattr(given, "__code__", None)
    is_step = (
        hasattr(optimizer, "register_step_pre_hook") and getattr(given, "__name__", "") == "step"
    )
    names = code.co_names if isinstance(code, CodeType) else ()
    if not (is_step or "step" in names) or made == given or hasattr(made, _WATCHED):
        return made
    only = is_step or "backward" not in names

    def watched(*args: Any, **kwargs: Any) -> Any:
        run = made
        for one in _LISTENING:
            run = one.timed(made) if only else one.seen(made)
        result = run(*args, **kwargs)
        if also is not None:
            also()
        return result

    call = update_wrapper(unless_compiling(made, watched), made)
    setattr(call, _WATCHED, True)
    return call


def _hide() -> None:
    """A compiled function runs what it cannot hold as it is, with the compiler listening: of our
    functions it would make graphs of their own."""
    skip = _skipping()
    for code in _ours():
        skip(code)


def _skipping() -> Callable[[CodeType], object]:
    """What has the compiler leave code out, and still listen to what that calls."""
    from torch._C._dynamo import eval_frame  # before PyTorch 2.6 no module that can be imported

    if _knows_strategies():
        action = eval_frame._FrameAction  # noqa: SLF001
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)  # noqa: SLF001
        return lambda code: eval_frame.set_code_exec_strategy(code, strategy)
    return eval_frame.skip_code  # type: ignore[no-any-return]


def _knows_strategies() -> bool:
    """Whether the compiler is that of PyTorch 2.7 or later."""
    from torch._C._dynamo import eval_frame

    return hasattr(eval_frame, "set_code_exec_strategy")


def _has_compiled() -> bool:
    """Whether something may have been compiled before us that calls what is attached."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None)
    if backends is None:  # before PyTorch 2.2 nobody knows, once the compiler is there
        return frames is not None
    return any(one is not None for one in backends.values())  # None: what is not to be compiled


def _ours() -> Iterator[CodeType]:
    """The code of all functions of this package, and of those inside them."""
    package = (__package__ or "").partition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            held = list(vars(module).values())
            held += [one for kind in held if isinstance(kind, type) for one in vars(kind).values()]
            for one in held:
                code = getattr(getattr(one, "fget", one), "__code__", None)
                if isinstance(code, CodeType):
                    yield from _inside(code)


def _inside(code: CodeType) -> Iterator[CodeType]:
    if code.co_name == unless_compiling.__name__:  # what leads to a model's own forward: it listens
        return
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _inside(constant)
