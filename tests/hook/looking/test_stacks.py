"""Which calls a thread is in, by real frames."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

import dsprof.recording
from dsprof import imports
from dsprof.hook.looking import stacks
from dsprof.hook.looking.stacks import LONGEST, MOST, OWN, Stacks
from dsprof.recording.layout import BETWEEN_CALLS, CALLS


def here(**how: Any) -> list[str]:
    found = Stacks().innermost(get_ident(), **({"inside": False, "exact": True} | how))
    return [call.function.rpartition(".")[2] for call in found if "stacks" in call.file]


def events_of(job: Callable[[], object]) -> list[tuple[str, stacks._Frame]]:
    """What Python tells a tracer of this module's functions, with where they are then."""
    met: list[tuple[str, stacks._Frame]] = []

    def notes(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            met.append((event, (frame.f_code, frame.f_lineno, frame.f_lasti)))
        return notes

    before = sys.gettrace()
    sys.settrace(notes)
    try:
        job()
    finally:
        sys.settrace(before)
    return met


def two_numbers() -> Iterator[int]:
    yield 1
    yield 2


def test_a_function_that_has_only_been_entered_is_told_from_one_that_runs() -> None:
    met = events_of(lambda: list(two_numbers()))
    of_generator = [(event, frame) for event, frame in met if frame[0].co_name == "two_numbers"]
    for event, frame in of_generator:
        assert stacks._is_entered(frame) == (event == "call") or event == "return"
    assert sum(event == "call" for event, _ in of_generator) == 3  # it goes on twice


def frame(function: Callable[..., object], line: int, *, is_entered: bool = False) -> stacks._Frame:
    code: CodeType = function.__code__
    resume = stacks._RESUME
    starts = -1 if resume is None else code.co_code.index(resume)
    return code, line, starts if is_entered else len(code.co_code) - 2


def test_what_was_made_to_stop_has_run_in_the_function_around_those_it_has_only_entered() -> None:
    assert stacks._ran([]) == []
    runs = [frame(here, 7), frame(events_of, 9)]
    assert [line for _, line, _ in stacks._ran(runs)] == [0, 9]
    entered = [frame(events_of, 3, is_entered=True), *runs]
    assert [(code.co_name, line) for code, line, _ in stacks._ran(entered)] == [
        ("here", 0), ("events_of", 9),
    ]  # fmt: skip


def test_generators_that_only_hand_on_have_not_run_either() -> None:
    hands_on = [frame(two_numbers, 3, is_entered=True), frame(two_numbers, 4), frame(here, 7)]
    assert [code.co_name for code, _, _ in stacks._ran(hands_on)] == ["here"]
    assert [code.co_name for code, _, _ in stacks._ran(hands_on[1:])] == ["two_numbers", "here"]


def test_few_calls_are_told_of_a_deep_stack() -> None:
    def deeper(levels: int) -> list[str]:
        return deeper(levels - 1) if levels else here()

    assert deeper(200) == ["here", *["deeper"] * (OWN - 1)]
    assert OWN < CALLS


def test_of_a_call_the_line_is_told_and_of_one_into_a_library_its_package() -> None:
    told: list[str] = []
    stack = Stacks()

    def compares(match: re.Match[str]) -> str:
        told.extend(map(str, stack.innermost(get_ident(), inside=False, exact=True)))
        return match[0]

    re.compile("a").sub(compares, "a")
    assert re.fullmatch(r".*compares \((\./|/).*test_stacks\.py:\d+\)", told[0])
    stack._files.clear()
    assert stack._file("/opt/venv/lib/python3.11/site-packages/numpy/core/x.py") == (
        "numpy/core/x.py", False,
    )  # fmt: skip


def test_names_hold_nothing_that_would_part_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = here.__code__.replace(co_name="a < b", co_filename="/home/a < b/c.py")
    if hasattr(odd, "co_qualname"):
        odd = odd.replace(co_qualname="a < b")
    monkeypatch.setattr(stacks, "_frames_of", lambda *_: [(odd, 3, 2)])
    (call,) = Stacks().innermost(0, inside=False, exact=True)
    assert BETWEEN_CALLS not in str(call)
    assert str(call) == "a_<_b (/home/a_b/c.py:3)"


def test_files_without_end_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Stacks()
    for n in range(MOST + 10):
        kept._file(f"/tmp/torchinductor/{n}.py")
    assert len(kept._files) <= MOST
    assert len(kept._file("/x" * 500)[0]) == LONGEST
    monkeypatch.setattr(Path, "cwd", lambda: (_ for _ in ()).throw(FileNotFoundError()))
    assert Stacks()._file("/work/a.py") == ("./work/a.py", True)


def test_code_that_torch_compile_generates_is_none_of_the_jobs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = here.__code__.replace(co_filename="/tmp/torchinductor_me/xl/cxlhen55.py")
    monkeypatch.setattr(stacks, "_frames_of", lambda *_: [(made, 3, 2)])
    (call,) = Stacks().innermost(0, inside=False, exact=True)
    assert (call.file, call.line, call.is_own) == ("torchinductor/cxlhen55.py", 0, False)


@pytest.mark.parametrize("module", [stacks, imports, dsprof.recording])
def test_files_of_all_of_dsprof_are_ours_and_not_the_jobs(module: ModuleType) -> None:
    assert Stacks()._file(str(module.__file__)) == ("", False)
