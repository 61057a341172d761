"""Work that several processes share: whoever is free takes the next job.

Jobs lie in a folder. A process takes one by creating a file for it, which only one can, and
leaves the result in another. The process that shares its work does as much of it as it can:
one that starts late, or dies, costs time and nothing else. What a dead one had begun, and
what raises an error there, is done again here, where the error can be told.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

_JOBS: Final = "jobs"
_POLL: Final = 0.002  # seconds


def shared(
    jobs: Sequence[Job], work: Callable[[Job], Result], processes: int
) -> Generator[Result, None, None]:
    """`work` of each job, in their order, done by this process and `processes - 1` others.

    Args:
        work: a function of a module, or a partial of one; jobs and results can be pickled.
    """
    if min(processes, len(jobs)) < 2:
        yield from map(work, jobs)
        return
    with TemporaryDirectory(prefix="dsprof-") as name:
        folder = Path(name)
        (folder / _JOBS).write_bytes(pickle.dumps((os.getpid(), work, jobs), protocol=5))
        with _started(folder, min(processes, len(jobs)) - 1) as others:
            yield from _together(folder, jobs, work, others)


def _together(
    folder: Path,
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    others: Sequence[subprocess.Popen[bytes]],
) -> Iterator[Result]:
    """Results in order, each as soon as it is there and this process has no job to do."""
    own: dict[int, Result] = {}
    given = 0
    for number in range(len(jobs)):
        if not _taken(folder, number):
            continue
        own[number] = work(jobs[number])
        while given in own or _finished(folder, given):
            yield own.pop(given) if given in own else _result(folder, given)
            given += 1
    for number in range(given, len(jobs)):
        while not (number in own or _finished(folder, number)):
            if all(other.poll() is not None for other in others) and not _finished(folder, number):
                own[number] = work(jobs[number])
            else:
                time.sleep(_POLL)
        yield own.pop(number) if number in own else _result(folder, number)


@contextmanager
def _started(folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Other processes at work on the jobs in `folder`; none is left behind."""
    others: list[subprocess.Popen[bytes]] = []
    try:
        with suppress(OSError):  # no more processes are to be had: those that are there do
            others.extend(_start(folder) for _ in range(count))
        yield others
    finally:
        for other in others:
            other.kill()
        for other in others:
            other.wait()


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """A process apart from the terminal: an interrupt is ours to hear."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-P", "-m", __name__, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def _taken(folder: Path, number: int) -> bool:
    """Whether this process got the job: the first one that asks does."""
    try:
        (folder / f"{number}.taken").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _finished(folder: Path, number: int) -> bool:
    return (folder / f"{number}.done").exists()


def _result(folder: Path, number: int) -> Any:
    """Of another process; its file is given back."""
    file = folder / f"{number}.done"
    with file.open("rb") as stream:
        result = pickle.load(stream)  # noqa: S301  # written by a process of ours just now
    file.unlink()
    return result


def _help(folder: Path) -> None:
    """Does jobs of the folder until none is left, or nobody waits for them any more."""
    parent, work, jobs = pickle.loads((folder / _JOBS).read_bytes())  # noqa: S301  # as above
    for number, job in enumerate(jobs):
        if os.name == "posix" and os.getppid() != parent:
            break
        if _taken(folder, number):
            begun = folder / f"{number}.begun"
            with begun.open("wb") as stream:
                pickle.dump(work(job), stream, protocol=5)
            begun.rename(folder / f"{number}.done")


if __name__ == "__main__":
    _help(Path(sys.argv[1]))
