"""Record without changing code: `dsprof attach --out DIR -- COMMAND`.

The run folder gets a small `sitecustomize.py`, and PYTHONPATH points to it: every Python process
that the command starts, on whichever host, runs it first. Settings are in that file because
DeepSpeed's multi-node launcher forwards PYTHONPATH but none of our variables. It loads this dsprof
into the process, whose environment may not have one, but nothing else that is installed beside it.
Then it waits until `torch` has been imported; only then is the hook loaded (`finding`).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from dsprof.errors import DsprofError
from dsprof.hook.entering import deaths
from dsprof.hook.entering.startup import startup
from dsprof.hook.notices import UNSEEN
from dsprof.output import tell
from dsprof.recording import beginnings, launches
from dsprof.recording.launches import FOLDER
from dsprof.recording.layout import SUFFIX
from dsprof.recording.unbegun import said_of

_UNSEEN: Final = (
    f"a process that could not record has said why; if none did, {UNSEEN}; or no Python looked: "
    "`python -E`, `-I` and `-S` do not, nor one whose PYTHONPATH was set anew, has another "
    "sitecustomize before ours or names what its user may not read; or the job still trains, and "
    "the command only started it"
)

#: Characters that a shell, srun (comma), pdsh (%) or PYTHONPATH itself (colon) may interpret.
_ODD: Final = re.compile(r"[^\w@+=./-]")

_SHELL: Final = "/bin/sh"

#: Signals that we receive and pass on. Those of a terminal's keys reach the command by themselves.
_KEYS: Final = (signal.SIGINT, signal.SIGQUIT)
_MEANT: Final = (*_KEYS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(command: Sequence[str], out: str | os.PathLike[str]) -> int:
    """Run `command`, record every rank that it starts to `out`, and return its exit code.

    Raises:
        DsprofError: the folder cannot be written, or there is no such command.
    """
    _must_exist(command[0])  # before a folder is made for it
    launch = os.environ.get("DSPROF_LAUNCH") or uuid.uuid4().hex
    environment = prepare(out, os.environ, launch)
    folder = Path(out)
    before, since = _recordings(folder), time.time()
    with _started(command, environment) as process, deaths.watching(folder, launch):
        code = _code_of(process)
    launches.end(out, launch, code)
    if not _is_recorded(folder, before, since):
        begins = said_of(folder, launch) if code else ""
        why = _UNSEEN if (folder / FOLDER).exists() else "it was removed meanwhile"
        tell(f"dsprof: {out}: nothing was recorded{f'. {begins}' if begins else f' ({why})'}")
    if not code:  # whoever told where it stood has ended well since
        beginnings.forget(folder, lambda one: one.launch == launch)
    return 128 - code if code < 0 else code


def prepare(
    out: str | os.PathLike[str], environment: Mapping[str, str], launch: str
) -> dict[str, str]:
    """The environment in which Python processes record themselves to `out`.

    Raises:
        DsprofError: the folder cannot be written.
    """
    folder = Path(out).absolute()
    if ".." in folder.parts:  # Python normalizes it away, and may then find another folder
        folder = folder.resolve()
    text = startup(folder, launch)
    try:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        here = _written(_places(folder), text)
        beginnings.forget(folder, partial(beginnings.is_over, folder))
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(
            f"cannot be written: {reason}", str(folder), "name another --out"
        ) from error
    paths = [str(here), *filter(None, [environment.get("PYTHONPATH")])]
    told = {"DSPROF_OUT": str(folder), "DSPROF_LAUNCH": launch}
    return {**environment, **told, "PYTHONPATH": os.pathsep.join(paths)}


def _places(folder: Path) -> list[Path]:
    """Where the startup file of a run folder may be, best place first: inside, if its path is
    plain.

    Otherwise beside the highest folder whose name is not plain: DeepSpeed's launcher puts
    PYTHONPATH into shell lines, arguments of mpirun and lists of srun, where special characters end
    the path or the job. PYTHONPATH itself cannot hold a colon.
    """
    above = folder
    while _ODD.search(str(above)):
        above = above.parent
    if above == folder:
        return [folder / FOLDER]
    name = _ODD.sub("-", "-".join(folder.relative_to(above).parts))
    beside = above / f"{FOLDER}-{name}"
    return [beside] if os.pathsep in str(folder) else [beside, folder / FOLDER]


def _written(places: Sequence[Path], text: str) -> Path:
    """Write the startup file to the first of these places that can be written.

    Raises:
        OSError: none can.
    """
    try:
        places[0].mkdir(exist_ok=True)
        _replace(places[0] / "sitecustomize.py", text)
    except OSError:
        if not places[1:]:
            raise
        return _written(places[1:], text)
    return places[0]


def _replace(file: Path, text: str) -> None:
    """Replace the file atomically: ranks on other nodes, or of another job, may be reading it."""
    new = file.with_name(f"{uuid.uuid4().hex}.new")
    try:
        new.write_text(text, encoding="ascii")
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _recordings(folder: Path) -> set[Path]:
    return set(folder.glob(f"*{SUFFIX}"))


def _is_recorded(folder: Path, before: set[Path], since: float) -> bool:
    """Whether new recordings have appeared.

    A script may record to a folder below this one. Those are searched only if there is nothing
    here, because folders below may hold data and take long to walk.
    """
    if _recordings(folder) - before:
        return True
    with suppress(OSError):  # a file was removed meanwhile
        return any(file.stat().st_mtime >= since for file in folder.rglob(f"*{SUFFIX}"))
    return False


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command and pass on signals that are sent to us: we end after it, if it ends.

    Handlers are installed before it starts, because a signal may arrive right away.

    Raises:
        DsprofError: there is no such command.
    """
    early: list[int] = []
    send: Callable[[int], None] = early.append

    def pass_on(number: int, _: object) -> None:
        if number not in _KEYS or not _has_a_terminal():
            send(number)

    before = {number: signal.getsignal(number) for number in _MEANT}
    for number in _MEANT:
        if before[number] is not signal.SIG_IGN:  # as set by nohup; the command inherits it
            signal.signal(number, pass_on)
    try:
        process = _begun(command, environment)
        send = process.send_signal
        for caught in early:
            send(caught)
        yield process
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _must_exist(program: str) -> None:
    """Complain of a program that is not there, or is none, as starting it would.

    Raises:
        DsprofError: it cannot be run.
    """
    if shutil.which(program) is None:
        is_path = os.sep in program and Path(program).exists()
        raise _unable(program, os.strerror(errno.EACCES if is_path else errno.ENOENT))


def _unable(program: str, reason: str) -> DsprofError:
    return DsprofError(f"cannot be run: {reason}", program, "check its name")


def _begun(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the command. It keeps files that the shell opened for it (`<(...)`, `3> file`): ours
    are all closed when it begins, as of every file that Python opens.
    """
    try:
        return subprocess.Popen(list(command), env=environment, close_fds=False)  # noqa: S603
    except OSError as error:
        if error.errno == errno.ENOEXEC and command[0] != _SHELL:  # a script without a first line
            script = str(shutil.which(command[0]))  # that says so: shells and execvp(3) do the same
            return _begun([_SHELL, script, *command[1:]], environment)
        raise _unable(command[0], error.strerror or str(error)) from error


def _code_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command; its exit code.

    Waits a second at a time: Python runs signal handlers only between calls, so a signal that
    arrived just before an endless wait would be passed on only after it.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)


def _has_a_terminal() -> bool:
    """Whether a terminal's keys reach us, and the command with us."""
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123 - no file
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def main() -> None:
    """Run as `python -m dsprof.hook.entering.launch OUT COMMAND...`."""
    sys.exit(run(sys.argv[2:], sys.argv[1]))


if __name__ == "__main__":
    main()
