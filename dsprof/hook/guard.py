"""The boundary between the hook and training: an error in the hook never reaches training."""

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
    """Runs the hook's code. After its first error it disables the hook for good.

    That error is reported once on standard error. `on_failure` is called with its text, to put it
    into the recording; it may fail, too. `own` is the time in ns spent in the hook since a caller
    last set it to 0: the cost of recording.
    """

    def __init__(self, what: str = "recording") -> None:
        self.off = False
        self.own = 0
        self.who, self.what = "dsprof", what
        self.on_failure: Callable[[str], None] = _nothing

    def __call__(self, action: Callable[..., Result]) -> Callable[..., Result | None]:
        """Wrap `action` so that it never raises; it returns None once the guard is off."""

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
        """Wrap `raw`: `before(args, kwargs)` runs first, `after(what before returned)` last.

        None of the added calls can raise. `then(result)` is called after that, unless `raw` failed.
        All of this is one function because it runs at every phase and collective, where each extra
        call costs time.
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
        """Wrap `raw` so that `action()` runs first; an error in `action` never reaches training."""

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
        """Wrap `raw`; afterwards call `after(what, owner, args, kwargs, result, begin)`.

        `result` is what `raw` returned, `begin` when it was called, in ns of `perf_counter_ns`.
        """

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
        """Disable the hook, say so in one line, and record the error if that is still possible.

        Raises:
            Exception: `error` itself, if it belongs to training and only happened to be raised
                while the hook ran.
        """
        if _is_of_a_signal(error) or _is_of_another_thread(error):
            raise error
        if self.off:  # a later error of a call that was still open at the first one
            return
        self.off = True
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        say(f"{self.who}: {self.what} stopped, training goes on: {text}")
        with contextlib.suppress(Exception):
            self.on_failure(text)


class Failing:
    """Whether a call ended with an exception; to be asked in its `finally`.

    An exception that was already being handled when the call began does not count: training may
    continue in an `except` block.
    """

    def __init__(self) -> None:
        self._during: BaseException | None = None

    def begins(self) -> None:
        self._during = sys.exc_info()[1]

    def failed(self) -> bool:
        return sys.exc_info()[1] is not self._during


def say(line: str) -> None:
    """Write a line to standard error, at once; to nothing else, and without an error, where there
    is none: `print` would then write it to standard output.
    """
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{line}\n")


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a signal handler of training raised `error`, for example for a timeout or a
    preemption.

    A handler receives the frame that the signal interrupted. It is recognized by still holding that
    frame, even if another handler has been installed since, or else by still being installed.
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
    """Whether another thread injected `error` into this one, as a library does for a timeout.

    The class of an injected exception comes from a package that has no frame in the traceback.
    PyTorch and NumPy are exempt: they raise their own exceptions in C, which has no frames.
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
    """The code object of a function, method, partial or callable object; None for SIG_DFL."""
    while isinstance(handler, partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if callable(function) and not hasattr(function, "__code__"):
        function = type(function).__call__
    return getattr(function, "__code__", None)


def _nothing(text: str) -> None:
    """The default `on_failure`: before there is a recording, standard error has to do."""
