"""What a rank stands in before anything of it is recorded: where a job never begins to train, that
is all there is.

A rank that stood in the same calls for 10 s, 20, 40 and so on writes a file about that, which is
removed when its training is found, or the process ends by itself (`recording.beginnings`).
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from threading import get_ident
from time import perf_counter
from typing import Final

from dsprof.hook.looker import Looker
from dsprof.hook.stacks import Stacks
from dsprof.hook.standing import Common, seen_at
from dsprof.hook.watched import Watched
from dsprof.recording import beginnings
from dsprof.recording.launches import FOLDER

WHAT: Final = "looking at what runs before training begins"
EVERY: Final = 0.5  # seconds between two looks
LONG: Final = 10.0  # seconds
OFTEN: Final = 60.0  # seconds between two writes at most
_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK")


class Beginning:
    """A thread that looks at this one, until `stop`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._thread, self._rank = get_ident(), rank
        self._file = beginnings.file_of(folder, rank)
        self._watched, self._stacks, self._common = Watched(), Stacks(), Common()
        self._since = self._window = perf_counter()
        self._stack, self._told = "", 0.0  # and for how many seconds, when it was written last
        self._looker = Looker(self._look, WHAT, EVERY)

    def start(self) -> None:
        self._watched.find_clock(self._thread)
        if self._looker.start():
            atexit.register(self.stop)
            os.register_at_fork(after_in_child=self._forked)

    def stop(self) -> None:
        """No file is left. A second call does nothing."""
        atexit.unregister(self.stop)
        self._looker.stop()
        self._file.unlink(missing_ok=True)

    def _forked(self) -> None:
        """Whoever looks, and the file, are the parent's."""
        self._looker.collect_again()
        atexit.unregister(self.stop)

    def _look(self, late: float) -> None:
        glance = self._watched.glance(self._thread, late)
        self._common.add(seen_at(glance, self._thread, self._watched, self._stacks))
        at = perf_counter()
        if at - self._window >= LONG:
            self._note(at)

    def _note(self, at: float) -> None:
        """Of 10 s; if they are as those before, of all of them."""
        stack, begun = self._common.stack, self._window
        self._common, self._window = Common(), at
        if stack != self._stack:
            self._stack, self._since, self._told = stack, begun, 0.0
        seconds = at - self._since
        if stack and seconds >= min(2 * self._told, self._told + OFTEN):
            self._told = seconds
            beginnings.write(self._file, self._rank, stack, seconds)


def begin(out: str | os.PathLike[str] | None) -> Beginning | None:
    """Look at this thread, if this process is a rank that `dsprof attach` has started; `out` is the
    run's folder."""
    folder, rank = Path(out or os.environ.get("DSPROF_OUT") or ""), rank_of_its_own()
    if rank is None or not (folder / FOLDER).is_dir():
        return None
    beginning = Beginning(folder.absolute(), rank)
    beginning.start()
    return beginning


def rank_of_its_own() -> int | None:
    """The rank that this process was started as; None of a launcher, or what a rank itself starts,
    as workers and compilers, which inherit its number."""
    mine = {name: os.environ[name] for name in _RANKS if os.environ.get(name, "").isdecimal()}
    try:
        above = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        above = []
    if not mine or any(f"{name}={number}".encode() in above for name, number in mine.items()):
        return None
    return int(next(iter(mine.values())))
