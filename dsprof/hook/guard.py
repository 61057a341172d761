"""The one edge between training and the hook: what fails here never reaches training."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter_ns as now
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


class Guard:
    """Off for good after the first failure, which is said once on standard error.

    `on_failure` gets the error's text, for the recording; it may fail too. `own` is the time,
    ns, spent behind the edge since somebody set it to 0: what recording costs.
    """

    def __init__(self, what: str = "recording") -> None:
        self.off = False
        self.own = 0
        self.who, self.what = "dsprof", what
        self.on_failure: Callable[[str], None] = _nothing

    def __call__(self, action: Callable[..., Result]) -> Callable[..., Result | None]:
        """`action`, made harmless: None once the guard is off."""

        def guarded(*args: Any) -> Result | None:
            if self.off:
                return None
            start = now()
            try:
                return action(*args)
            except Exception as error:  # noqa: BLE001 - the hook's edge: training goes on
                self.fail(error)
                return None
            finally:
                self.own += now() - start

        return guarded

    def around(
        self,
        raw: Callable[..., Any],
        before: Callable[[Any, Any], Any],
        after: Callable[[Any], Any],
        then: Callable[[Any], Any] | None = None,
    ) -> Callable[..., Any]:
        """`raw` between `before(args, kwargs)` and `after(what that gave)`, made harmless.

        `then(result)` follows unless `raw` failed. All in one function, for this is called at
        every phase and collective: each call in between costs.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            start = now()
            if self.off:
                return raw(*args, **kwargs)
            try:
                held = before(args, kwargs)
            except Exception as error:  # noqa: BLE001 - the hook's edge: training goes on
                self.fail(error)
                return raw(*args, **kwargs)
            self.own += now() - start
            try:
                result = raw(*args, **kwargs)
            finally:
                start = now()
                try:
                    after(held)
                except Exception as error:  # noqa: BLE001 - as above
                    self.fail(error)
            if then is not None:
                try:
                    then(result)
                except Exception as error:  # noqa: BLE001 - as above
                    self.fail(error)
            self.own += now() - start
            return result

        return call

    def ahead(self, raw: Callable[..., Any], action: Callable[[], Any]) -> Callable[..., Any]:
        """`action()`, made harmless, and then `raw`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            start = now()
            if not self.off:
                try:
                    action()
                except Exception as error:  # noqa: BLE001 - as above
                    self.fail(error)
            self.own += now() - start
            return raw(*args, **kwargs)

        return call

    def behind(
        self, raw: Callable[..., Any], after: Callable[..., Any], what: Any
    ) -> Callable[..., Any]:
        """`raw`, and then `after(what, owner, args, kwargs, what it gave, when it began)`."""

        def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
            begin = now()
            result = raw(owner, *args, **kwargs)
            start = now()
            if not self.off:
                try:
                    after(what, owner, args, kwargs, result, begin)
                except Exception as error:  # noqa: BLE001 - as above
                    self.fail(error)
            self.own += now() - start
            return result

        return call

    def fail(self, error: Exception) -> None:
        """Switch off, say so in one line, and record it if that is still possible.

        Raises:
            Exception: `error` again, if it is training's own: it came while we ran.
        """
        if _is_of_a_signal(error) or _is_of_another_thread(error):
            raise error
        if self.off:  # what was open around the first failure ends behind it
            return
        self.off = True
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        with contextlib.suppress(Exception):
            print(f"{self.who}: {self.what} stopped, training goes on: {text}", file=sys.stderr)
        with contextlib.suppress(Exception):
            self.on_failure(text)


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a handler of training's own raised it, as for a time-out or before a preemption.

    A handler is given the frame in which the signal came. One that has put another in its place
    since is known by that; one that keeps its arguments no longer, if it is installed still.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(map(_was_given, frames[1:], frames)):
        return True
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {_code(handler) for handler in handlers} - {None}
    return any(frame.f_code in codes for frame in frames)


def _was_given(frame: FrameType, interrupted: FrameType) -> bool:
    for value in frame.f_locals.values():
        if value is interrupted or (type(value) is tuple and any(v is interrupted for v in value)):
            return True
    return False


def _is_of_another_thread(error: Exception) -> bool:
    """Whether it was set from outside, as a time-out of a library's thread is, and not raised.

    It is of a class then that nothing knows of what ran. PyTorch and NumPy raise theirs in C,
    where no frame is.
    """
    frames = traceback.walk_tb(error.__traceback__)
    ran = {_package(frame.f_globals.get("__name__")) for frame, _ in frames}
    of = _package(type(error).__module__)
    return of not in ran | {"torch", "numpy"} and not _is_pythons_own(of)


def _is_pythons_own(package: str) -> bool:
    names = getattr(sys, "stdlib_module_names", None)  # since 3.10
    if names is not None:
        return package in names
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None:
        return package in sys.builtin_module_names
    return Path(os.__file__).parent in Path(file).parents and "site-packages" not in file


def _package(module: Any) -> str:
    return str(module).partition(".")[0]


def _code(handler: Any) -> Any:
    """Of a function, a method, a partial of one or an object that is called; None of SIG_DFL."""
    while isinstance(handler, partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if callable(function) and not hasattr(function, "__code__"):
        function = type(function).__call__
    return getattr(function, "__code__", None)


def _nothing(text: str) -> None:
    """Before there is a recording, standard error is all there is."""
