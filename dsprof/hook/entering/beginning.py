"""What a rank stands in before anything of it is recorded: where a job never begins to train, that
is all there is.

A rank that stands in the same calls for 10 s writes a file about that, again and again, which is
removed once it trains or ends by itself (`recording.beginnings`).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from time import perf_counter
from typing import Final

from dsprof.hook.looking.looker import Looker, seconds_between
from dsprof.hook.looking.stacks import Stacks
from dsprof.hook.looking.standing import Common, seen_at
from dsprof.hook.looking.watched import Watched
from dsprof.recording import beginnings
from dsprof.recording.beginnings import BUSY, LONG, OFTEN
from dsprof.recording.launches import FOLDER

WHAT: Final = "looking at what runs before training begins"
_RANK: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # what launchers give to ranks alone
_FIRST: Final = "DSPROF_RANK_OF"  # the process that was a rank first: what it starts is none


class Beginning:
    """A thread that looks at this one, until `stop` or until `trains()`."""

    def __init__(self, folder: Path, rank: int, trains: Callable[[], bool]) -> None:
        self._thread, self._rank, self._trains = get_ident(), rank, trains
        self._folder, self._file = folder, beginnings.file_of(folder, rank)
        self._watched, self._stacks, self._common = Watched(), Stacks(), Common()
        self._since = self._window = perf_counter()
        self._stack, self._told = "", 0.0  # and for how many seconds, when it was written last
        self._due, self._is_over = False, False
        self._looker = Looker(self._look, WHAT, then=self._write)

    def start(self) -> None:
        before = self._rank, os.environ.get("DSPROF_LAUNCH", "")  # an attempt of the same launch
        beginnings.forget(self._folder, lambda one: (one.rank, one.launch) == before)
        self._watched.find_clock(self._thread)
        if self._looker.start():
            atexit.register(self.stop)
            os.register_at_fork(after_in_child=self._forked)

    def stop(self) -> None:
        """No file is left. A second call does nothing."""
        self._is_over = True
        atexit.unregister(self.stop)
        self._looker.stop()
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):  # as of a file server that is gone
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
            self._due = True
        seconds = at - self._since
        self._due |= seconds <= BUSY or seconds >= self._told + OFTEN

    def _write(self) -> bool:
        """What was noted; whether to look on. A file server may not answer meanwhile."""
        if self._is_over or self._trains():
            self._remove()
            return False
        if self._due:
            self._due, self._told = False, self._window - self._since
            if self._stack:
                beginnings.write(self._file, self._rank, self._stack, self._told)
            if self._is_over or not self._stack:  # nobody knows where it stands now
                self._remove()
        return True


def begin(out: str | os.PathLike[str] | None, trains: Callable[[], bool]) -> Beginning | None:
    """Look at this thread, if this process is a rank that `dsprof attach` has started. One that was
    joined while it trains is left as it was, its environment too.

    Args:
        out: the run's folder.
        trains: whether an optimizer has stepped.
    """
    folder = Path(out or os.environ.get("DSPROF_OUT") or "")
    started = FOLDER in os.environ.get("PYTHONPATH", "") and (folder / FOLDER).is_dir()
    looks = seconds_between(os.environ.get("DSPROF_LOOKS")) > 0
    rank = rank_of_its_own() if started and looks else None
    if rank is None:
        return None
    beginning = Beginning(folder.absolute(), rank, trains)
    beginning.start()
    return beginning


def rank_of_its_own() -> int | None:
    """The rank that this process was started as; None of a launcher, and of what a rank itself
    starts, as workers and compilers, which inherit its number."""
    told = [os.environ.get(name, "") for name in _RANK]
    me = str(os.getpid())
    if not all(one.isdecimal() for one in told) or os.environ.setdefault(_FIRST, me) != me:
        return None
    rank = int(told[0])
    return rank if rank < int(told[2]) else None
