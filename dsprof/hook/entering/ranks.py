"""Which processes of this host are the ranks of a job, by what Linux tells of them.

A rank has loaded PyTorch and got its number in its environment, or is a process of
`torch.multiprocessing`, or at least has connections: who trains with others, or could, has some. A
launcher or a worker of a data loader may look like one, so what lies above or below a rank is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.hook.entering.injection import PROC, bytes_of, status_of

_NUMBERS: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SCRIPT: Final = re.compile(r"[\w.-]{1,80}\.py")


class _Found(NamedTuple):
    pid: int
    number: str  # its rank, by the environment that it began with; "" if that has none
    job: str  # the same for all ranks of a job


def ranks_below(pid: int) -> list[int]:
    """The process itself, or the ranks that it or a process below it launched on this host.

    Raises:
        DsprofError: they are of several jobs.
    """
    found: dict[int, _Found] = {}
    for way in (_launched, _beside_rank_0, _spawned, _numbered, _connected):
        above = {other for one in found for other in _above(one)} | found.keys()
        new = {one.pid: one for one in way(pid) if one.pid not in above}
        found |= {one: what for one, what in new.items() if not found.keys() & set(_above(one))}
    jobs: dict[str, list[_Found]] = {}
    for one in found.values():
        jobs.setdefault(one.job, []).append(one)
    numbers = [[one.number for one in job if one.number] for job in jobs.values()]
    if len(jobs) > 1 or any(len(set(some)) < len(some) for some in numbers):
        told = ", ".join(map(_told, jobs.values()))
        raise DsprofError(f"holds several jobs: {told}", f"--pid {pid}", "name one of them")
    return list(found) or [pid]


def trainer_of(worker: int) -> int:
    """The process that has the batches which `worker` makes; 0 if that has ended."""
    above = parent_of(worker)
    return parent_of(above) if b"multiprocessing.forkserver" in _read(above, "cmdline") else above


def parent_of(pid: int) -> int:
    """0 if it has none, or has ended."""
    return int(status_of(pid, "PPid") or 0)


def _launched(pid: int) -> Iterator[_Found]:
    """As by torchrun, accelerate or deepspeed."""

    def is_one(one: int) -> bool:
        return {"RANK", "LOCAL_RANK"} <= _environment(one).keys() and _may_train(one)

    return map(_of_its_job, _topmost(pid, is_one))


def _beside_rank_0(pid: int) -> Iterator[_Found]:
    """Lightning's rank 0 is the script that was started, and starts the others of its host."""

    def is_one(one: int) -> bool:
        names = _environment(one).keys()
        return {"LOCAL_RANK", "NODE_RANK"} <= names and "RANK" not in names and _may_train(one)

    for one in _topmost(pid, is_one):
        first = parent_of(one)
        if _has_torch(first):
            yield _Found(first, "", str(first))
            yield _Found(one, "", str(first))


def _spawned(pid: int) -> Iterator[_Found]:
    """By `torch.multiprocessing.spawn`."""
    for one in _topmost(pid, lambda one: _is_of_multiprocessing(one) and _may_train(one)):
        yield _Found(one, "", str(parent_of(one)))


def _numbered(pid: int) -> Iterator[_Found]:
    """By srun, mpirun or a shell. srun's number is inherited by all that a rank starts, and by all
    of a batch script, so it tells less.
    """

    def is_one(one: int) -> bool:
        return bool(_number(one)) and _has_torch(one) and _is_connected(one)

    return map(_of_its_job, _topmost(pid, is_one))


def _connected(pid: int) -> Iterator[_Found]:
    """By whatever; two of them need not belong together."""
    for one in _topmost(pid, lambda one: _has_torch(one) and _is_connected(one)):
        yield _Found(one, "", str(one))


def _of_its_job(pid: int) -> _Found:
    environment = _environment(pid)
    port = environment.get("MASTER_PORT")
    job = f"{environment.get('MASTER_ADDR')}:{port}" if port else str(parent_of(pid))
    return _Found(pid, _number(pid), job)


def _number(pid: int) -> str:
    environment = _environment(pid)
    return next((environment[name] for name in _NUMBERS if environment.get(name)), "")


def _told(job: list[_Found]) -> str:
    """A job, and by what number it can be named."""
    parents = {parent_of(one.pid) for one in job}
    named = next(iter(parents)) if len(job) > 1 and len(parents) == 1 else job[0].pid
    words = re.split(rb"[\0/]", _read(job[0].pid, "cmdline"))
    names = (one.decode(errors="replace") for one in words)
    script = next((f" of {name}" for name in names if _SCRIPT.fullmatch(name)), "")
    many = "1 process" if len(job) == 1 else f"{len(job)} processes"
    return f"{named} ({many}{script})"


def _topmost(pid: int, wanted: Callable[[int], bool]) -> Iterator[int]:
    if wanted(pid):
        yield pid
        return
    for child in _children(pid):
        yield from _topmost(child, wanted)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_bytes().split())
    return found


def _above(pid: int) -> Iterator[int]:
    while pid := parent_of(pid):
        yield pid


def _may_train(pid: int) -> bool:
    """Not a worker of a process that trains alone: only that one has connections."""
    if not _has_torch(pid):
        return False
    if not _is_of_multiprocessing(pid):
        return True
    return _is_connected(pid) or not _is_connected(parent_of(pid))


def _has_torch(pid: int) -> bool:
    return b"libtorch" in _read(pid, "maps")


def _is_of_multiprocessing(pid: int) -> bool:
    return b"spawn_main(" in _read(pid, "cmdline")


def _environment(pid: int) -> dict[str, str]:
    """What it began with."""
    entries = _read(pid, "environ").decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _is_connected(pid: int) -> bool:
    """Whether it has sockets of TCP, as for the store where ranks meet."""
    lines = _read(pid, "net/tcp").splitlines()[1:] + _read(pid, "net/tcp6").splitlines()[1:]
    sockets = {f"socket:[{line.split()[9].decode()}]" for line in lines}
    with suppress(OSError):
        return any(_target(link) in sockets for link in (PROC / str(pid) / "fd").iterdir())
    return False


def _target(link: Path) -> str:
    with suppress(OSError):
        return str(link.readlink())
    return ""


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return bytes_of(pid, name)
    return b""
