"""Record processes that already train: `dsprof attach --pid PID`.

Each of them runs a few lines of ours (`startup`, `injection`) and answers in a file.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.hook.entering.injection import (
    GONE,
    PROC,
    denied,
    run_lines,
    state_of,
    status_of,
    undisturbed,
)
from dsprof.hook.entering.ranks import ranks_below, trainer_of
from dsprof.hook.entering.startup import MAKES_BATCHES, NOT_NOW, calls_of, joining, leaving
from dsprof.hook.entering.together import leave_out
from dsprof.output import tell
from dsprof.recording.alive import is_writing
from dsprof.recording.launches import FOLDER
from dsprof.recording.layout import SUFFIX

PATIENCE: Final = 30.0  #: seconds for an answer, and for the end of the step that is under way
_TURN: Final = 0.1  # seconds between two looks
_AT_ONCE: Final = 16  # processes that are asked at a time, each by a gdb
_TIMES: Final = 5  # that a process is asked again which answers that it cannot right now


class Rank(NamedTuple):
    """A process to record, and its number among the processes of its own container."""

    pid: int
    inner: int


def join(pids: Iterable[int], out: str | os.PathLike[str], *, leave: bool = False) -> bool:
    """Record training processes to `out` from their next step on, or (`leave`) no longer.

    Says of each what became of it. Whether all of them answered that they do.

    Args:
        pids: ranks, or what launched them, whose ranks on this host are then meant.
        out: the run's folder.
        leave: end what is recorded of them.

    Raises:
        DsprofError: there is no such process, it cannot be asked, or the folder cannot be written.
    """
    ranks = list(dict.fromkeys(rank for pid in pids for rank in _ranks_of(pid)))
    folder = Path(out).absolute()
    launch, launch_of_trainers = uuid.uuid4().hex, uuid.uuid4().hex
    try:
        made = _made(folder, (PROC / str(ranks[0].pid)).stat().st_uid)
        well, workers = _asked(ranks, folder, launch, leave=leave)
        trainers = list(dict.fromkeys(_rank(trainer_of(one.pid)) for one in workers))
        if trainers:
            well += _asked(trainers, folder, launch_of_trainers, leave=leave)[0]
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(
            f"cannot be written: {reason}", str(folder), "name another --out"
        ) from error
    if leave:
        if well:
            tell(f"dsprof: {_many(well)} no longer recorded")
    elif _follow(well, folder):
        for one in (launch, launch_of_trainers):
            _clean(folder / FOLDER, one)
    for new in reversed(made):
        with suppress(OSError):  # it holds something
            new.rmdir()
    return len(well) == len(ranks) - len(workers) + len(trainers)


def _clean(folder: Path, launch: str) -> None:
    """Remove what the ranks told each other, unless one has not answered yet, and may read it."""
    files = list(folder.glob(f"{launch}.*"))
    if not any(one.suffix == ".py" for one in files):
        for one in files:
            one.unlink()


def _asked(
    ranks: Sequence[Rank], folder: Path, launch: str, *, leave: bool
) -> tuple[list[Rank], list[Rank]]:
    """Ask processes: those that answered that they do it, and those that make batches for the one
    that could. Of the others it is said why not.

    Raises:
        OSError: the folder cannot be written.
    """
    answers = {rank: folder / FOLDER / f"{launch}.{rank.pid}" for rank in ranks}

    def ask(rank: Rank) -> bool:
        answer = answers[rank]
        lines = answer.with_name(f"{answer.name}.py")
        text = leaving(answer) if leave else joining(folder, launch, answer, [*answers.values()])
        lines.write_text(text, encoding="ascii")
        lines.chmod(0o644)
        return _is_asked(rank, lines)

    well, workers = [], []
    told = _answered({rank: answers[rank] for rank in _each_at_once(ask, ranks)})
    for _ in range(_TIMES):
        again = [rank for rank, said in told.items() if said == NOT_NOW]
        if not again:
            break
        told |= _answered({rank: answers[rank] for rank in _each_at_once(ask, again)})
    for rank, answer in answers.items():
        is_over = told.get(rank, "") is not None or state_of(rank.pid) in GONE
        if is_over and not leave and not calls_of(answer).exists():
            leave_out(calls_of(answer))
    for rank, said in told.items():
        if said == MAKES_BATCHES:
            workers.append(rank)
        elif said:
            tell(f"dsprof: process {rank.pid}: {said}")
        elif said is None:
            tell(f"dsprof: process {rank.pid} {_silence(rank.pid, folder / FOLDER)}")
        else:
            well.append(rank)
    return well, workers


def _each_at_once(ask: Callable[[Rank], bool], ranks: Sequence[Rank]) -> list[Rank]:
    """Those that could be asked. While gdb holds one of them the others wait for it in their next
    collective: one after the other, training would stand still for as long as all take together.
    """
    with undisturbed(), ThreadPoolExecutor(_AT_ONCE) as pool:
        return [rank for rank, is_asked in zip(ranks, pool.map(ask, ranks)) if is_asked]


def _is_asked(rank: Rank, lines: Path) -> bool:
    """Have a process run these lines; if that fails, say why, and go on with the others."""
    try:
        run_lines(rank.pid, lines)
    except DsprofError as error:
        lines.unlink()
        tell(f"dsprof: {error}")
        return False
    return True


def _made(folder: Path, owner: int) -> list[Path]:
    """Make the run's folder, which the job must be able to write, also if root asks; what is new
    of it.
    """
    inner = folder / FOLDER
    new = [one for one in (folder, inner) if not one.exists()]
    inner.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != owner:
        for one in new:
            os.chown(one, owner, -1)
    return new


def _answered(asked: dict[Rank, Path]) -> dict[Rank, str | None]:
    """What they answered; None of those that have not yet."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not all(
        answer.exists() or state_of(rank.pid) in GONE for rank, answer in asked.items()
    ):
        time.sleep(_TURN)
    return {rank: _taken(answer) for rank, answer in asked.items()}


def _silence(pid: int, folder: Path) -> str:
    """Why a process has not answered."""
    state = state_of(pid)
    if state in GONE:
        return "has ended"
    since = f"has not answered within {PATIENCE:g} s: "
    if state in "Tt":
        return f"{since}it is stopped. Once it goes on, it does what it was asked"
    where = f"it is in a call of C code, as of a collective that hangs (py-spy dump --pid {pid})"
    otherwise = f"Or it cannot write to {folder}"
    return f"{since}{where}. Once that returns, it does what it was asked. {otherwise}"


def _follow(ranks: Sequence[Rank], folder: Path) -> bool:
    """Wait until all are recorded, and say so. Whether they are."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not all(_is_recorded(rank, folder) for rank in ranks):
        time.sleep(_TURN)
    begun = [rank for rank in ranks if _is_recorded(rank, folder)]
    if begun:
        tell(f"dsprof: {_many(begun)} recorded: dsprof live {folder}")
    for rank in ranks:
        if rank not in begun:
            tell(
                f"dsprof: process {rank.pid} has ended no step within {PATIENCE:g} s: it is "
                "recorded from the end of its next one on, if a DeepSpeed engine trains in it, or "
                "DDP or FSDP in a group of all ranks that were asked"
            )
    return begun == ranks


def _many(ranks: Sequence[Rank]) -> str:
    if len(ranks) == 1:
        return f"process {ranks[0].pid} is"
    return f"{len(ranks)} processes are"


def _is_recorded(rank: Rank, folder: Path) -> bool:
    """Whether it is right now: an earlier recording of it may be there, too."""
    files = folder.glob(f"rank-*.{rank.inner}*{SUFFIX}")
    return any(is_writing(rank.pid, path) for path in files)


def _taken(answer: Path) -> str | None:
    """What a process answered; None if it has not yet."""
    try:
        said = answer.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    answer.unlink()
    answer.with_name(f"{answer.name}.py").unlink()
    return said


def _ranks_of(pid: int) -> list[Rank]:
    """Raises:
    DsprofError: there is no such process, it is in another container, or holds several jobs.
    """
    if not (PROC / str(pid)).is_dir():
        raise DsprofError("there is no such process on this host", f"--pid {pid}", "see `ps -ef`")
    return [_rank(one) for one in ranks_below(pid)]


def _rank(pid: int) -> Rank:
    """Raises:
    DsprofError: the process is in another container, whose files are others.
    """
    try:
        ours, its = ((PROC / one / "ns" / "mnt").readlink() for one in ("self", str(pid)))
    except OSError as error:
        raise denied(pid) from error
    if ours != its:
        what = "is in a container, or this is one: they share no files"
        raise DsprofError(what, f"--pid {pid}", "run dsprof in the same one")
    pid = int(status_of(pid, "Tgid") or pid)  # `htop` shows the numbers of threads, too
    return Rank(pid, int((status_of(pid, "NSpid") or str(pid)).split()[-1]))
