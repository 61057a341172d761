"""The calls that a thread is in: the job's own and those of libraries, without ours.

No frame is kept: what ends the life of the job's objects is the job's own threads.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Final, NamedTuple

from dsprof.recording.layout import BETWEEN_CALLS, CALLS

OWN: Final = 3  # calls of the job's own code that are told, the innermost
INNER: Final = CALLS - OWN  # of libraries, inside of these
LONGEST: Final = 200  # letters of the name of a function, or of a file
DEEPEST: Final = 100  # frames in which these are looked for
FRAMES: Final = 1000  # that a thread may have, where all of them are looked at
MOST: Final = 4096  # files and functions that are remembered; torch.compile makes ever new ones

_RESUME: Final = dis.opmap.get("RESUME")
_HANDS_ON: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: What torch.compile generates: no line of it is the job's own.
_GENERATED: Final = "/torchinductor_"
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/")
_INSTALLED: Final = tuple({
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
})  # fmt: skip
_OURS: Final = str(Path(__file__).parents[2]) + os.sep

_Frame = tuple[CodeType, int, int]  #: code, line and instruction


class Call(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str  # "" for our own
    line: int  # 0 in libraries, where the function says enough
    is_own: bool  # of the job's own code

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.function} ({place})"


class Stacks:
    """Tells calls, and remembers how files are told, and which functions call phases.

    Attributes:
        loops: functions of the job, each with its file, that call phases: that something runs in
            one of them says nothing.
    """

    def __init__(self) -> None:
        self.loops: set[tuple[str, str]] = set()
        #: File of code → how it is told, and whether it is the job's own.
        self._files: dict[str, tuple[str, bool]] = {}
        self._here = _working_folder()

    def innermost(self, thread: int, *, inside: bool, exact: bool) -> tuple[Call, ...]:
        """The innermost calls of libraries, then the job's own that made them.

        Args:
            inside: in a phase, of which only what lies in it is told.
            exact: it is where it stands. Else it has run Python, and was made to stop at the next
                place where Python does that: the innermost call is then told without its line, and
                not at all if it has only been entered.
        """
        return few(self._without_ours(_frames_of(thread, DEEPEST), inside=inside, exact=exact))

    def every(self, thread: int, *, exact: bool) -> list[Call]:
        """All calls, the innermost first; none if there are too many. `exact`: see `innermost`."""
        frames = _frames_of(thread, FRAMES)
        if len(frames) == FRAMES:
            return []
        return list(self._without_ours(frames, inside=False, exact=exact))

    def of_traceback(self, raised: TracebackType | None) -> list[Call]:
        """The calls that an exception passed through, the outermost first."""
        frames = ((frame.f_code, line, frame.f_lasti) for frame, line in walk_tb(raised))
        return list(self._calls(list(islice(frames, FRAMES))))

    def _without_ours(self, frames: list[_Frame], *, inside: bool, exact: bool) -> Iterator[Call]:
        met = False
        for call in self._calls(frames if exact else _ran(frames)):
            if call.file:
                met = True
                yield call
            elif met and inside:
                break

    def find_loops(self, thread: int) -> None:
        """Of a thread that is in a phase: the job's functions outside of that call it."""
        calls = list(self._calls(_frames_of(thread, DEEPEST)))
        outer = max((n for n, call in enumerate(calls, 1) if not call.file), default=0)
        if len(self.loops) < MOST:
            self.loops.update(call[:2] for call in calls[outer:] if call.is_own)

    def _calls(self, frames: list[_Frame]) -> Iterator[Call]:
        for code, line, _ in frames:
            file, is_own = self._files.get(code.co_filename) or self._file(code.co_filename)
            name = getattr(code, "co_qualname", code.co_name)[-LONGEST:]
            yield Call("_".join(name.split()), file, line if is_own else 0, is_own)

    def _file(self, name: str) -> tuple[str, bool]:
        """How the file is told, "" for our own, and whether it is the job's and no library's: then
        it begins with / or ./, else with the name of its package."""
        if name.startswith(_OURS):
            found = "", False
        elif below := _in_library(name):
            found = below[-LONGEST:], False
        else:
            own = name.removeprefix(self._here)
            sign = "" if own.startswith(("/", "<")) else "./"
            found = sign + own[:LONGEST], not own.startswith("<")
        if len(self._files) == MOST:
            self._files.clear()
        told = found[0].replace(BETWEEN_CALLS, "_"), found[1]
        self._files[name] = told
        return told


def few(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Of some calls, the innermost first, those that are told: the innermost of libraries, and the
    job's own that made them."""
    told: list[Call] = []
    inner, own = INNER, OWN
    for call in calls:
        if own and (call.is_own or inner):
            told.append(call)
            own -= call.is_own
            inner = 0 if call.is_own else inner - 1
    return tuple(told)


def _frames_of(thread: int, most: int) -> list[_Frame]:
    """Code, line and instruction of each of the innermost frames, the innermost first."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way
    found: list[_Frame] = []
    while frame is not None and len(found) < most:
        found.append((frame.f_code, frame.f_lineno or 0, frame.f_lasti))
        frame = frame.f_back
    return found


def _ran(frames: list[_Frame]) -> list[_Frame]:
    """Those in which something has run, if the thread had to stop after it ran Python; of the
    innermost nobody knows the line.

    Python stops a thread where it enters a function or goes on with a generator, but not where a
    generator only hands on to another: of all that are then innermost, none need have run.
    """
    if frames and _is_entered(frames[0]):
        rest = 1
        while rest < len(frames) and frames[rest][0].co_flags & _HANDS_ON:
            rest += 1
        frames = frames[rest:]
    return [(code, 0, at) for code, _, at in frames[:1]] + frames[1:]


def _is_entered(frame: _Frame) -> bool:
    """Whether nothing of a function has run since it was called, or went on as a generator: it is
    at the instruction of that, or, before Python 3.11, which has none, in front of its first."""
    code, _, at = frame
    if _RESUME is None:
        return at <= 0
    return 0 <= at < len(code.co_code) and code.co_code[at] == _RESUME


def _in_library(name: str) -> str:
    """The path of an installed file, from where packages lie; "" for any other."""
    if _GENERATED in name:
        return f"torchinductor/{name.rpartition('/')[2]}"
    for mark in _LIBRARIES:
        if mark in name:
            return name.rpartition(mark)[2]
    return next((name[len(path) :] for path in _INSTALLED if name.startswith(path)), "")


def _working_folder() -> str:
    try:
        return f"{Path.cwd()}{os.sep}"
    except OSError:  # it was removed
        return os.sep
