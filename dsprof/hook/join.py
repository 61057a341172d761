"""Record processes that already train: `dsprof attach --pid PID`.

Each of them runs a few lines of ours (`startup`), in its main thread and between two instructions
of Python: from Python 3.14 on by `sys.remote_exec`, before by a pending call (`Py_AddPendingCall`).
gdb adds that. It stops the process for about half a second, and has nothing allocated there that
Python or the C library manage: the process may be stopped while it allocates itself. The text of
the call is in a page of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from dsprof.errors import DsprofError
from dsprof.hook.startup import joining
from dsprof.output import tell
from dsprof.recording.alive import is_writing
from dsprof.recording.launches import FOLDER
from dsprof.recording.layout import SUFFIX

PATIENCE: Final = 30.0  #: seconds for an answer, and for the end of the step that is under way
_TURN: Final = 0.1  # seconds between two looks
_GDB: Final = 60.0  # seconds for gdb, which reads the symbols of Python's own program
_OWN_WAY: Final = (3, 14)  # the first Python with `sys.remote_exec`
_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PROC: Final = Path("/proc")
_GONE: Final = ("", "Z", "X")  # states of a process that runs nothing any more
_DENIED: Final = re.compile(r"Operation not permitted|ptrace: |PermissionError")
_TO_TRACE: Final = (
    "run as the job's user or as root; in a container, start it with --cap-add SYS_PTRACE; "
    "/proc/sys/kernel/yama/ptrace_scope must be 0, unless root asks"
)


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
    folder, launch = Path(out).absolute(), uuid.uuid4().hex
    asked = {}
    try:
        _make(folder, (_PROC / str(ranks[0].pid)).stat().st_uid)
        for rank in ranks:
            answer = folder / FOLDER / f"{launch}.{rank.pid}"
            lines = answer.with_name(f"{answer.name}.py")
            lines.write_text(joining(folder, launch, answer, leaving=leave), encoding="ascii")
            lines.chmod(0o644)
            if _is_asked(rank, lines):
                asked[rank] = answer
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(
            f"cannot be written: {reason}", str(folder), "name another --out"
        ) from error
    well = _answered(asked)
    if leave:
        if well:
            tell(f"dsprof: {_many(well)} no longer recorded")
    else:
        _follow(well, folder)
    return len(well) == len(ranks)


def _is_asked(rank: Rank, lines: Path) -> bool:
    """Have a process run these lines; if that fails, say why, and go on with the others."""
    try:
        _ask(rank.pid, lines)
    except DsprofError as error:
        lines.unlink()
        tell(f"dsprof: {error}")
        return False
    return True


def _make(folder: Path, owner: int) -> None:
    """The run's folder, which the job must be able to write, also if root asks."""
    inner = folder / FOLDER
    new = [one for one in (folder, inner) if not one.exists()]
    inner.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != owner:
        for one in new:
            os.chown(one, owner, -1)


def _answered(asked: dict[Rank, Path]) -> list[Rank]:
    """Those that answered that they do it; of the others it is said why not."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not all(
        answer.exists() or _state(rank.pid) in _GONE for rank, answer in asked.items()
    ):
        time.sleep(_TURN)
    well = []
    for rank, answer in asked.items():
        said = _taken(answer)
        if said is None:
            tell(f"dsprof: process {rank.pid} {_silence(rank.pid, answer.parent)}")
        elif said:
            tell(f"dsprof: process {rank.pid}: {said}")
        else:
            well.append(rank)
    return well


def _silence(pid: int, folder: Path) -> str:
    """Why a process has not answered."""
    state = _state(pid)
    if state in _GONE:
        return "has ended"
    since = f"has not answered within {PATIENCE:g} s: "
    if state in "Tt":
        return f"{since}it is stopped. Once it goes on, it does what it was asked"
    where = f"it is in a call of C code, as of a collective that hangs (py-spy dump --pid {pid})"
    otherwise = f"Or it cannot write to {folder}"
    return f"{since}{where}. Once that returns, it does what it was asked. {otherwise}"


def _follow(ranks: Sequence[Rank], folder: Path) -> None:
    """Wait until all are recorded, and say so."""
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
                "recorded from the end of its next one on, if a DeepSpeed engine, DDP or FSDP "
                "trains in it"
            )


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
    """The process itself, or the ranks below it: the topmost ones that have loaded PyTorch and got
    a RANK, else those that `torch.multiprocessing.spawn` started.

    Raises:
        DsprofError: there is no such process, or it is in another container.
    """
    if not (_PROC / str(pid)).is_dir():
        raise DsprofError("there is no such process on this host", f"--pid {pid}", "see `ps -ef`")
    found = list(_topmost(pid, _is_rank)) or list(_topmost(pid, _is_spawned)) or [pid]
    return [_rank(one) for one in found]


def _topmost(pid: int, wanted: Callable[[int], bool]) -> Iterator[int]:
    if wanted(pid):
        yield pid
        return
    for child in _children(pid):
        yield from _topmost(child, wanted)


def _is_rank(pid: int) -> bool:
    with suppress(OSError):
        names = {one.partition(b"=")[0] for one in _bytes_of(pid, "environ").split(b"\0")}
        return {b"RANK", b"LOCAL_RANK"} <= names and b"libtorch" in _bytes_of(pid, "maps")
    return False


def _is_spawned(pid: int) -> bool:
    with suppress(OSError):
        return b"spawn_main(" in _bytes_of(pid, "cmdline") and b"libtorch" in _bytes_of(pid, "maps")
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in (_PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_bytes().split())
    return found


def _rank(pid: int) -> Rank:
    """Raises:
    DsprofError: the process is in another container, whose files are others.
    """
    try:
        ours, its = ((_PROC / one / "ns" / "mnt").readlink() for one in ("self", str(pid)))
    except OSError as error:
        raise _denied(pid) from error
    if ours != its:
        what = "is in a container, or this is one: they share no files"
        raise DsprofError(what, f"--pid {pid}", "run dsprof in the same one")
    pid = int(_status(pid, "Tgid") or pid)  # `htop` shows the numbers of threads, too
    return Rank(pid, int((_status(pid, "NSpid") or str(pid)).split()[-1]))


def _status(pid: int, name: str) -> str:
    """What Linux says of a process by that name; "" if it says nothing."""
    with suppress(OSError):
        found = re.search(rf"^{name}:\s*(.*)$", _bytes_of(pid, "status").decode(), re.MULTILINE)
        return found[1] if found else ""
    return ""


def _state(pid: int) -> str:
    """The letter of its state; "" if there is no such process."""
    return _status(pid, "State")[:1]


def _bytes_of(pid: int, name: str) -> bytes:
    return (_PROC / str(pid) / name).read_bytes()


def _ask(pid: int, lines: Path) -> None:
    """Have a process run the lines of a file.

    Raises:
        DsprofError: it cannot be made to.
    """
    version, program = _python_of(pid)
    if version >= _OWN_WAY:
        own = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
        command = [program, "-I", "-S", "-c", own, str(pid), str(lines)]
    else:
        command = _with_gdb(pid, lines.read_text(encoding="ascii"))
    code, said = _done(command)
    if code is None:
        raise DsprofError(f"did not stop within {_GDB:g} s", f"--pid {pid}", "try again")
    if "\n$1 = 0\n" in said or (version >= _OWN_WAY and not code):
        return
    if "\n$1 = -2\n" in said:
        raise _between(pid)
    if _DENIED.search(said):
        raise _denied(pid)
    if "No symbol" in said:
        raise DsprofError("is no Python process", f"--pid {pid}", "name a rank, or its launcher")
    last = (said.strip() or "gdb said nothing").splitlines()[-1]
    raise DsprofError(f"cannot be asked: {last}", f"--pid {pid}", "see if gdb can attach to it")


def _done(command: Sequence[str]) -> tuple[int | None, str]:
    """A command's exit code, None if it takes too long, and what it said.

    A gdb that ends in the middle of a call would leave the process in that. So no key of our
    terminal reaches it, or ends us meanwhile, and it does not write to a pipe of ours, whom SIGTERM
    may end. On SIGTERM gdb lets go of the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"LC_ALL": "C"},  # its words are looked for below
            )
            try:
                process.wait(_GDB)
            except subprocess.TimeoutExpired:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GDB)
                return None, ""
            said.seek(0)
            return process.returncode, said.read().decode(errors="replace")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _python_of(pid: int) -> tuple[tuple[int, int], str]:
    """The version of its Python, (0, 0) if that is not in the name of a file, and the program.

    Raises:
        DsprofError: it is no Python process, or may not be looked at.
    """
    try:
        program = str((_PROC / str(pid) / "exe").readlink())
        files = _bytes_of(pid, "maps").decode(errors="replace")
    except OSError as error:
        raise _denied(pid) from error
    if not files:
        raise _between(pid)
    if "python" not in files:
        raise DsprofError("is no Python process", f"--pid {pid}", "name a rank, or its launcher")
    named = re.search(r"python(\d)\.(\d+)$", program) or re.search(
        r"/libpython(\d)\.(\d+)\w*\.so", files
    )
    return (int(named[1]), int(named[2])) if named else (0, 0), program


def _between(pid: int) -> DsprofError:
    return DsprofError("is just starting or ending", f"--pid {pid}")


def _denied(pid: int) -> DsprofError:
    """Why a process cannot be traced, or be looked at."""
    where, tracer = f"--pid {pid}", _status(pid, "TracerPid")
    if _state(pid) in _GONE:
        return DsprofError("has ended", where, "see `ps -ef`")
    if tracer not in ("", "0"):
        return DsprofError(f"is traced by process {tracer}", where, "end that, and try again")
    return DsprofError("may not be traced by this user", where, _TO_TRACE)


def _with_gdb(pid: int, lines: str) -> list[str]:
    """The command by which gdb adds the pending call.

    A call that fails would raise in training, and `__main__`, where it runs, may have other things
    by the names of Python's own functions. gdb goes on after a command that failed, and would stop
    at a signal that arrives while it calls, and leave the process there. A Python that is ending
    has nothing left to add a call to.

    Raises:
        DsprofError: there is no gdb.
    """
    gdb = shutil.which("gdb")
    if gdb is None:
        what = "needs gdb for a Python before 3.14, and there is none"
        raise DsprofError(what, "attach --pid", "install the package gdb on this host")
    text = (
        f"try: __import__('builtins').exec({lines!a},{{'__name__':'dsprof_joins'}})\n"
        "except __import__('builtins').Exception: pass\n"
    )
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    size = len(text) + 1
    page = "((char *(*)(void *, unsigned long, int, int, int, long)) mmap)"
    call = "((int (*)(void *, void *)) Py_AddPendingCall)((void *) PyRun_SimpleString, $page)"
    lives = "((int (*)(void)) Py_IsInitialized)"
    first = (
        "set auto-solib-add off",
        "set debuginfod enabled off",
        "set auto-load off",
        "set language c",
        "handle all nostop noprint pass",
        "handle SIGINT nostop noprint pass",
        "handle SIGSEGV SIGBUS stop nopass",  # of our own calls, which are then undone
        "set unwindonsignal on",
    )
    then = (
        "sharedlibrary /libc[.-]",  # not libcudnn, which is large
        "sharedlibrary libpython",
        f"set $page = {page}(0, {size}, 3, 34, -1, 0)",  # to read and write, private, anonymous
        f'set {{char[{size}]}}$page = "{quoted}"',
        f"set $lives = {lives}()",
        f"print (long) $page > 0 ? $lives ? {call} : -2 : -1",
    )
    options = [("-iex", one) for one in first] + [("-ex", one) for one in then]
    words = [word for option in options for word in option]
    return [gdb, "-nx", "-batch", "-p", str(pid), *words]
