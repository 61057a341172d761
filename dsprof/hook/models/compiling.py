"""Keep hooks out of what `torch.compile` makes of attached models, of functions that call the hook,
and of functions that step optimizers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial, update_wrapper
from types import CodeType
from typing import Any, Final

from dsprof.events import Class
from dsprof.hook.models.parts import unless_compiling
from dsprof.hook.patches import Call, Patches
from dsprof.hook.recorder import Recorder
from dsprof.hook.spans import Frame, Phase

_LISTENING: Final[list[Compiling]] = []  # the `Compiling` of the current recording, if there is one
_WATCHED: Final = "_steps_for_dsprof"  # set on functions that `see_steps` has already wrapped


class Compiling:
    """Times the forward of compiled models as well, and keeps dsprof's functions from being
    compiled.
    """

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
        """What to pass to the compiler. From now on compiled code exists: see
        `held_if_compiled`.
        """
        for parts in self.models.values():
            if not _knows_strategies():
                parts.patches.hold()
            given = parts.to_compile(given)
        return given

    def _made(self, given: Any, made: Any) -> Any:
        for parts in self.models.values():
            made = parts.compiled(given, made)
        return see_steps(given, made)

    def _begin(self, step: Phase, args: Any, kwargs: Any) -> Frame | None:
        """Begin the phase `step` for a function that only steps optimizers.

        Not if it is called with arguments, which may include a closure that trains.
        """
        timeline = self.timeline
        parts = self.models.get(timeline.current)
        if args or kwargs or parts is None or timeline.stack or timeline.is_elsewhere():
            return None
        return timeline.enter(parts.track, step)

    def _begin_first(self, *_: Any) -> None:
        """Begin the first step here: a forward that is compiled together with the step cannot."""
        if self.timeline.current is None and len(self.models) == 1:
            for parts in self.models.values():
                self.timeline.begin(parts.track)

    def _end(self, frame: Frame | None) -> None:
        self.timeline.leave(frame)
        for parts in list(self.models.values()):
            parts.look_at_compiled(frame)


def held_if_compiled(patches: Patches) -> None:
    """If something was compiled that may call the model, let wrapped methods hold it strongly: the
    compiler of PyTorch 2.6 and before does not follow weak references.
    """
    if _has_compiled() and not _knows_strategies():
        patches.hold()


def see_steps(given: Any, made: Any, also: Callable[[], Any] | None = None) -> Any:
    """`made`, which `torch.compile` returned for `given`, extended by a look at the optimizers that
    stepped in each call; then `also` is called. Unchanged if it cannot step an optimizer.

    A function that steps and has no backward is recorded as the phase `step`, with whatever else it
    does.
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
    """Keep Dynamo from compiling dsprof's functions.

    At a graph break, compiled code calls them as they are, but with Dynamo still active, which
    would make graphs of their own of them.
    """
    skip = _skipping()
    for code in _ours():
        skip(code)


def _skipping() -> Callable[[CodeType], object]:
    """A function that makes Dynamo skip a code object, but not what that calls."""
    from torch._C._dynamo import eval_frame  # not importable as a module before PyTorch 2.6

    if _knows_strategies():
        action = eval_frame._FrameAction  # noqa: SLF001
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)  # noqa: SLF001
        return lambda code: eval_frame.set_code_exec_strategy(code, strategy)
    return eval_frame.skip_code  # type: ignore[no-any-return]


def _knows_strategies() -> bool:
    """Whether this is the compiler of PyTorch 2.7 or later."""
    from torch._C._dynamo import eval_frame

    return hasattr(eval_frame, "set_code_exec_strategy")


def _has_compiled() -> bool:
    """Whether something that calls an attached model may have been compiled before attaching."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None)
    if backends is None:  # before PyTorch 2.2: unknown once the compiler is loaded
        return frames is not None
    return any(one is not None for one in backends.values())  # None: code that is not compiled


def _ours() -> Iterator[CodeType]:
    """The code objects of all functions of dsprof that are loaded, including nested ones."""
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
    if code.co_name == unless_compiling.__name__:  # calls the model's forward, to be compiled
        return
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _inside(constant)
