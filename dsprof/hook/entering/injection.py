"""Have another Python process run a few lines: by its own way from Python 3.14 on, else by gdb.

It runs them in its main thread, between two instructions: from Python 3.14 on by `sys.remote_exec`,
before by a pending call (`Py_AddPendingCall`). gdb adds that. It stops the process for one to two
tenths of a second, and has nothing allocated there that Python or the C library manage: the process
may be stopped while it allocates itself. The text of the call is in a page of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dsprof.errors import DsprofError

PROC: Final = Path("/proc")
GONE: Final = ("", "Z", "X")  # states of a process that runs nothing any more
_GDB: Final = 60.0  # seconds for gdb, which reads the symbols of Python's own program
_OWN_WAY: Final = (3, 14)  # the first Python with `sys.remote_exec`
_OLDEST: Final = (3, 9)
_UNKNOWN: Final = (0, 0)
_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_DENIED: Final = re.compile(r"Operation not permitted|ptrace: |PermissionError")
_NOT_RUNNING: Final = re.compile(r"^\$1 = -2$|find a running interpreter", re.MULTILINE)
_FORBIDDEN: Final = "Remote debugging is not enabled"
_TO_TRACE: Final = (
    "run as the job's user or as root; in a container, start it with --cap-add SYS_PTRACE; "
    "/proc/sys/kernel/yama/ptrace_scope must be 0, unless root asks"
)


@contextmanager
def undisturbed() -> Iterator[None]:
    """No key of our terminal ends this thread, nor those that it starts meanwhile: a gdb that ends
    in the middle of a call would leave the process in that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_lines(pid: int, lines: Path) -> None:
    """Have a process run the lines of a file.

    Raises:
        DsprofError: it cannot be made to.
    """
    version, program = _python_of(pid)
    if _UNKNOWN < version < _OLDEST:
        has, needs = (".".join(map(str, one)) for one in (version, _OLDEST))
        raise DsprofError(f"runs Python {has}, {needs} or later is needed", f"--pid {pid}")
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
    if _NOT_RUNNING.search(said):
        raise _between(pid)
    if _DENIED.search(said):
        raise denied(pid)
    if _FORBIDDEN in said:
        how = "start it without PYTHON_DISABLE_REMOTE_DEBUG and -X disable-remote-debug"
        raise DsprofError("runs no lines of others, as it was told", f"--pid {pid}", how)
    if "No symbol" in said:
        raise DsprofError("is no Python process", f"--pid {pid}", "name a rank, or its launcher")
    last = (said.strip() or "nothing was said").splitlines()[-1]
    raise DsprofError(f"cannot be asked: {last}", f"--pid {pid}", "see if gdb can attach to it")


def status_of(pid: int, name: str) -> str:
    """What Linux says of a process by that name; "" if it says nothing."""
    with suppress(OSError):
        found = re.search(rf"^{name}:\s*(.*)$", bytes_of(pid, "status").decode(), re.MULTILINE)
        return found[1] if found else ""
    return ""


def state_of(pid: int) -> str:
    """The letter of its state; "" if there is no such process."""
    return status_of(pid, "State")[:1]


def bytes_of(pid: int, name: str) -> bytes:
    return (PROC / str(pid) / name).read_bytes()


def _done(command: Sequence[str]) -> tuple[int | None, str]:
    """A command's exit code, None if it takes too long, and what it said.

    No key of our terminal reaches it, or ends us meanwhile, and it does not write to a pipe of
    ours, whom SIGTERM may end. On SIGTERM gdb lets go of the process.
    """
    with undisturbed(), tempfile.TemporaryFile() as said:
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


def _python_of(pid: int) -> tuple[tuple[int, int], str]:
    """The version of its Python, `_UNKNOWN` if that is not in the name of a file, and the program.

    Raises:
        DsprofError: it is no Python process, or may not be looked at.
    """
    try:
        program = str((PROC / str(pid) / "exe").readlink())
        files = bytes_of(pid, "maps").decode(errors="replace")
    except OSError as error:
        raise denied(pid) from error
    if not files:
        raise _between(pid)
    if "python" not in files:
        raise DsprofError("is no Python process", f"--pid {pid}", "name a rank, or its launcher")
    named = re.search(r"python(\d)\.(\d+)$", program) or re.search(
        r"/libpython(\d)\.(\d+)\w*\.so", files
    )
    return (int(named[1]), int(named[2])) if named else _UNKNOWN, program


def _between(pid: int) -> DsprofError:
    return DsprofError("is just starting or ending", f"--pid {pid}")


def denied(pid: int) -> DsprofError:
    """Why a process cannot be traced, or be looked at."""
    where, tracer = f"--pid {pid}", status_of(pid, "TracerPid")
    if state_of(pid) in GONE:
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

    It reads names of functions alone: with all that Python was compiled with for debuggers, the
    process would stand still three times as long.

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
    call = f"(&PyUnicode_AsUTF8 ? {call} : -1)"  # Python 2 has none, and would raise in training
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
    return [gdb, "-nx", "-batch", "-readnever", "-p", str(pid), *words]
