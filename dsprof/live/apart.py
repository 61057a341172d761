"""The watch in a process of its own: whatever it computes or waits for holds up no key.

    screens ◄─ pictures, answers ─── this module run as a program: refreshes a Watch
            ───── questions ────────►

The program ends when the screens have gone. What it says on standard error (it should say
nothing) is kept from the terminal and told when it dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dsprof.errors import DsprofError
from dsprof.live.picture import Bar, Lines, Picture, Tail

if TYPE_CHECKING:
    from dsprof.live.watch import Watch

_T = TypeVar("_T")

_SAID: Final = 3  # last lines that are told: where, what, why

#: It is to stay small beside a training job: Arrow takes its memory from the C library, of which
#: blocks from 128 KiB on go back to the machine when they are freed. Of 512 ranks it then holds
#: 260 MB at most, else 340 MB, in the same CPU time.
_FRUGAL: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}


class Apart:
    """A `Watch` elsewhere, with what screens need of it.

    Attributes:
        asked: `time.monotonic()` of when the files were asked, 0 once they have answered.
    """

    def __init__(self, paths: Sequence[str], every: float, pipe: int = 0, **more: Any) -> None:
        """Start it; `more` is for `Watch`. `every`: seconds between two refreshes, at least.

        Raises:
            DsprofError: it cannot be started.
        """
        self.asked = 0.0
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        here, there = zip(*(Pipe() for _ in range(3)), strict=True)
        self._process = self._started([end.fileno() for end in there], pipe)
        for end in there:
            end.close()
        self._pictures = here[0]
        with suppress(BrokenPipeError):  # it has died: whoever asks for a picture says so
            self._pictures.send((every, {"paths": list(paths), "pipe": pipe, **more}))
        self._questions, self._orders = map(_Line, here[1:])  # what takes long has its own

    def _started(self, ends: Sequence[int], pipe: int) -> subprocess.Popen[bytes]:
        path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        try:
            return subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-P", "-m", __name__, *map(str, ends)],
                stdin=subprocess.DEVNULL, stdout=self._words, stderr=self._words,
                pass_fds=[*ends, *([pipe] if pipe else [])], start_new_session=True,
                env=_FRUGAL | os.environ | path,
            )  # fmt: skip
        except OSError as error:
            what = f"the watching process cannot be started: {error.strerror}"
            raise DsprofError(what, sys.executable, "use --once") from error

    def refresh(self) -> Picture:
        """The next picture, when there is one.

        Raises:
            DsprofError: the watch cannot begin, or its process has ended.
        """
        try:
            while isinstance(said := self._pictures.recv(), float):
                self.asked = said
        except (EOFError, OSError):
            what = f"the watching process has ended: {self._last_words()}"
            raise DsprofError(what, "", "the job goes on; start dsprof live again") from None
        if isinstance(said, DsprofError):
            raise said
        picture: Picture = said
        return picture

    def tail(self, source: str) -> Tail | None:
        """The last lines of a log, as of the last picture; None if there is no such log."""
        found: Tail | None = self._questions.ask("tail", source)
        return found

    def excerpt(self, source: str, line: int) -> Lines | None:
        """The lines around one of a log; None if it cannot be read."""
        found: Lines | None = self._questions.ask("excerpt", source, line)
        return found

    def bars_of(self, rank: int) -> list[Bar]:
        """The last steps of one rank."""
        found: list[Bar] = self._questions.ask("bars_of", rank)
        return found

    def report(self, path: Path) -> None:
        """Write the HTML report of all that is kept of the run.

        Raises:
            DsprofError: the file cannot be written.
        """
        self._orders.ask("report", path)

    def close(self) -> None:
        """End it, even where a file system holds it: nobody waits for it."""
        self._process.kill()

    def _last_words(self) -> str:
        """What it said at last, on one line; else what ended it."""
        code = self._process.wait()
        self._words.seek(0)
        said = self._words.read().decode("utf-8", "replace").splitlines()
        last = [line.strip() for line in said if line.strip(" ^~")][-_SAID:]
        if last or code >= 0:
            return " / ".join(last) or f"exit code {code}"
        name = signal.Signals(-code).name
        return f"{name}, as where memory runs out" if name == "SIGKILL" else name


class _Line:
    """Questions and their answers, one at a time."""

    def __init__(self, end: Connection[Any, Any]) -> None:
        self._end, self._lock = end, threading.Lock()

    def ask(self, name: str, *args: object) -> Any:
        try:
            with self._lock:
                self._end.send((name, args))
                answer = self._end.recv()
        except (EOFError, OSError):
            raise DsprofError("the watching process has gone") from None
        if isinstance(answer, DsprofError):
            raise answer
        return answer


def main() -> None:
    """Watch for the screens that hold the other ends of the pipes."""
    pictures, *lines = (Connection(int(fd)) for fd in sys.argv[1:])
    every, options = pictures.recv()
    from dsprof.live.watch import Watch
    from dsprof.run import strings

    strings.of_python()
    try:
        watch = Watch(**options)
    except DsprofError as error:
        pictures.send(error)
        return
    for line in lines:
        threading.Thread(target=_answer, args=(watch, line), daemon=True).start()
    try:
        _show(watch, pictures, every)
    except BrokenPipeError:  # the screens have gone
        return


def _show(watch: Watch, pictures: Connection[Any, Any], every: float) -> None:
    """How far the job is and who died is seen at each look, what it means more rarely."""
    from dsprof.live.headless import pause

    pictures.send(_asked(watch.begin, pictures))
    new, due = False, 0.0
    while True:
        begun = time.process_time()
        new |= _asked(watch.read, pictures)
        pictures.send(watch.glance())
        read = time.process_time()
        if time.monotonic() >= due:
            pictures.send(watch.look(new))
            cost = time.process_time() - read if due else 0.0  # what is imported comes once
            new, due = False, time.monotonic() + pause(cost)
        if watch.is_due:
            pictures.send(watch.look_back())
        rest = min(every, max(0.0, due - time.monotonic())) if new else every
        time.sleep(max(rest, pause(read - begun)))


def _asked(files: Callable[[], _T], pictures: Connection[Any, Any]) -> _T:
    """What they answer; that they do not is seen from there."""
    pictures.send(time.monotonic())
    answer = files()
    pictures.send(0.0)
    return answer


def _answer(watch: Watch, line: Connection[Any, Any]) -> None:
    ask: Mapping[str, Any] = {
        "tail": watch.tail, "excerpt": watch.excerpt, "bars_of": watch.bars_of,
        "report": watch.report,
    }  # fmt: skip
    try:
        while True:
            name, args = line.recv()
            line.send(_answer_of(ask[name], args))
    except (EOFError, OSError):  # the screens have gone, and a stalled file is no reason to stay
        os._exit(0)


def _answer_of(ask: Any, args: tuple[Any, ...]) -> Any:
    try:
        return ask(*args)
    except DsprofError as error:
        return error
    except Exception as error:  # noqa: BLE001 - who asks must not wait for ever
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return DsprofError(f"bug: {said}", "", "please report it")


if __name__ == "__main__":
    main()
