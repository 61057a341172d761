"""The edge: the first failure switches off, for good, and says so once."""

from __future__ import annotations

import binascii
import ctypes
import io
import queue
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from dsprof.hook.guard import Failing, Guard, say


def fail(*_: object) -> None:
    raise ZeroDivisionError("planted\non two lines")


def test_what_does_not_fail_passes_through() -> None:
    assert Guard()(lambda a, b: a + b)(1, 2) == 3


def test_the_first_failure_is_said_in_one_line_and_the_next_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guard = Guard()
    broken = guard(fail)
    assert broken(1) is None
    assert broken(2) is None
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "dsprof: recording stopped, training goes on: ZeroDivisionError: planted on two lines\n"
    )


@pytest.mark.parametrize("closed", [True, False])
def test_where_there_is_no_standard_error_nothing_is_said_anywhere_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """It is None if the parent process closed it, as of a daemon."""
    broken = io.StringIO()
    broken.close()
    monkeypatch.setattr(sys, "stderr", broken if closed else None)
    assert Guard()(fail)() is None
    say("a line")
    assert capsys.readouterr().out == ""


def test_after_a_failure_nothing_that_is_guarded_runs_any_more() -> None:
    guard, calls = Guard(), list[int]()
    record = guard(calls.append)
    record(1)
    guard(fail)()
    record(2)
    assert calls == [1]


def test_a_failure_is_passed_on_to_the_recording_even_if_that_fails_too() -> None:
    guard, told = Guard(), list[str]()

    def tell(text: str) -> None:
        told.append(text)
        raise OSError("the disk is full as well")

    guard.on_failure = tell
    assert guard(fail)() is None
    assert told == ["ZeroDivisionError: planted on two lines"]


def test_what_is_no_exception_of_ours_passes_through() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    guard = Guard()
    with pytest.raises(KeyboardInterrupt):
        guard(interrupt)()
    assert not guard.off


def test_what_is_put_around_a_function_changes_neither_its_result_nor_its_error() -> None:
    seen: list[object] = []
    around = Guard().around(divmod, lambda args, _: args[0] - 2, seen.append)
    assert around(9, 4) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        around(9, 0)
    assert seen == [7, 7]


@pytest.mark.parametrize("fails_before", [True, False])
def test_a_failure_around_a_function_switches_off_and_the_function_runs_once(
    capsys: pytest.CaptureFixture[str], *, fails_before: bool
) -> None:
    guard, calls = Guard(), list[int]()
    before, after = (fail, list[object]().append) if fails_before else (lambda *_: None, fail)
    around = guard.around(calls.append, before, after)
    around(1)
    around(2)
    assert guard.off
    assert calls == [1, 2]
    assert capsys.readouterr().err.count("planted") == 1


def test_what_follows_gets_the_result_and_nothing_after_an_error() -> None:
    seen: list[object] = []
    around = Guard().around(divmod, lambda *_: None, lambda _: None, seen.append)
    around(9, 4)
    with pytest.raises(ZeroDivisionError):
        around(9, 0)
    assert seen == [(2, 1)]


def test_a_failure_of_what_follows_leaves_the_result() -> None:
    guard = Guard()
    assert guard.around(divmod, lambda *_: None, lambda _: None, fail)(9, 4) == (2, 1)
    assert guard.off


def test_what_comes_behind_a_call_gets_all_of_it_and_its_failure_leaves_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guard, seen = Guard(), list[tuple[object, ...]]()
    behind = guard.behind(divmod, lambda *call: seen.append(call[:-1]), "division")
    assert behind(9, 4) == (2, 1)
    assert seen == [("division", 9, (4,), {}, (2, 1))]
    with pytest.raises(ZeroDivisionError):
        behind(9, 0)
    assert len(seen) == 1
    assert guard.behind(divmod, fail, "division")(9, 4) == (2, 1)
    assert guard.off
    assert behind(9, 4) == (2, 1)
    assert len(seen) == 1
    assert capsys.readouterr().err.count("planted") == 1


def test_what_runs_behind_the_edge_is_counted_and_what_trains_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = 0

    def lasting(length: int) -> Callable[..., None]:
        def passes(*_: Any) -> None:
            nonlocal time
            time += length

        return passes

    monkeypatch.setattr("dsprof.hook.guard.now", lambda: time)
    guard, training = Guard(), lasting(1000)
    guard.around(training, lasting(1), lasting(2), lasting(4))()
    guard.behind(training, lasting(8), None)(None)
    guard.ahead(training, lasting(16))()
    guard(lasting(32))()
    assert (guard.own, time) == (63, 3063)


def stop(*_: object) -> None:
    raise TimeoutError("of training")


def come(*_: object) -> None:
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("handler", [stop, partial(stop, 1), partial(partial(stop, 1), 2)])
def test_what_a_signal_handler_of_training_raises_is_no_failure_of_ours(
    handler: Callable[..., None],
) -> None:
    """A time-out or a preemption may come while the hook runs."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        guard = Guard()
        for call in (
            guard.around(int, come, come),
            guard.around(int, lambda *_: None, come),
            guard(come),
        ):
            with pytest.raises(TimeoutError, match="of training"):
                call()
            assert not guard.off
    finally:
        signal.signal(signal.SIGALRM, before)


class PreemptionError(Exception):
    """Of training's own."""


@pytest.mark.parametrize("kind", [PreemptionError, TimeoutError])
def test_a_handler_that_another_one_has_followed_by_the_time_it_raises_is_training_s_too(
    kind: type[Exception],
) -> None:
    """It shall be asked once: save, and stop."""

    def once(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise kind

    before = signal.getsignal(signal.SIGALRM)
    try:
        guard = Guard()
        for call in (guard(come), guard.around(int, lambda *_: None, come)):
            signal.signal(signal.SIGALRM, once)
            with pytest.raises(kind):
                call()
            assert not guard.off
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_another_thread_raises_in_ours_is_no_failure_of_ours() -> None:
    """As time-outs are made that use no signal."""

    def raised_from_outside() -> None:
        own, error = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(FromOutside)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(own, error)
        for _ in range(1000):
            pass

    FromOutside = type("FromOutside", (Exception,), {"__module__": "timing_out"})  # noqa: N806
    guard = Guard()
    with pytest.raises(FromOutside):
        guard(raised_from_outside)()
    assert not guard.off


@pytest.mark.parametrize("kind", [queue.Empty, binascii.Error, TypeError])
def test_what_python_raises_in_ours_is_our_failure_also_where_it_cannot_name_its_modules(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.10."""

    def fails() -> None:
        raise kind

    monkeypatch.delattr(sys, "stdlib_module_names")
    test_what_another_thread_raises_in_ours_is_no_failure_of_ours()
    guard = Guard()
    guard(fails)()
    assert guard.off


def test_what_fails_in_code_of_training_that_we_look_at_does_not_reach_it() -> None:
    class Output:
        @property
        def loss(self) -> float:
            raise PreemptionError

    guard = Guard()
    guard(lambda output: output.loss)(Output())
    assert guard.off


def test_what_fails_is_told_from_what_runs_while_another_exception_is_handled() -> None:
    """As a loop that goes on in an `except`."""
    said: list[bool] = []

    def run(action: Any) -> None:
        failing = Failing()
        failing.begins()
        try:
            action()
        finally:
            said.append(failing.failed())

    try:
        run(lambda: 1 / 0)
    except ZeroDivisionError:
        run(lambda: None)
        with pytest.raises(KeyError):
            run(lambda: dict[int, int]()[0])
    run(lambda: None)
    assert said == [True, False, True, False]
