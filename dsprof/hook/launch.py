"""Recording without a line of code: `dsprof attach --out DIR -- COMMAND`.

The run folder gets a small `sitecustomize.py`, and PYTHONPATH names it: every Python process that
the command starts, on whichever host, runs it first. Settings are in that file, because
DeepSpeed's multi-node launcher forwards PYTHONPATH but none of our variables. It loads this very
dsprof into the process, whose environment may not have one, and nothing of what is installed
beside it. Then it waits until `torch` has been imported: only then is the hook loaded
(`finding`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import dsprof
from dsprof.errors import DsprofError
from dsprof.hook import deaths
from dsprof.output import tell
from dsprof.recording import launches
from dsprof.recording.launches import FOLDER
from dsprof.recording.layout import SUFFIX

#: Any Python may come upon it: what it says is understood by all of them, from 2.7 on.
_SITECUSTOMIZE: Final = '''\
"""Written by dsprof attach: records this process's training. Safe to delete afterwards."""

import os
import sys

# Names of files are bytes: another locale than that of dsprof attach has other letters for them.
text = getattr(os, "fsdecode", str)
here, home = os.path.dirname(__file__), text({home!a})
sys.path[:] = [path for path in sys.path if path != here]


class Home(object):
    """Finds this dsprof, wherever it is installed, and nothing else that is there."""

    def find_spec(self, name, path=None, target=None):
        init = os.path.join(home, "__init__.py")
        if name == "dsprof" and os.path.isfile(init):
            from importlib.machinery import PathFinder  # importlib.util would take 5 ms

            return PathFinder.find_spec(name, [os.path.dirname(home)])


def wait():
    """Until torch has been imported: other programs run as ever."""
    if sys.version_info < (3, 9):
        raise ImportError("Python 3.9 or later is needed, this is " + sys.version.split()[0])
    out = os.environ.setdefault("DSPROF_OUT", text({out!a}))
    os.environ.setdefault("DSPROF_LAUNCH", {launch!a})
    if "dsprof" not in sys.modules:
        sys.meta_path.insert(0, Home())
    from dsprof.imports import when_imported

    def begin(torch):
        try:
            from dsprof.hook.attach import attach

            attach(out=out)
        except Exception as error:
            tell(str(error))

    when_imported("torch", begin)
    when_imported("deepspeed", lambda _: None)  # imports torch: its own end is asked for in there


def tell(why):
    why = " ".join(why.split())
    if not os.path.isdir(home):
        why += " (dsprof attach ran from " + home + ", which cannot be read here)"
    try:
        sys.stderr.write("dsprof: nothing is recorded: " + why + "\\n")
    except Exception:
        pass


class Unrecorded(object):
    """Says why as training begins: of other programs nobody wants to hear."""

    def __init__(self, why):
        self.why = why

    def find_spec(self, name, path=None, target=None):
        if name == "torch" and self.why:
            why, self.why = self.why, ""
            tell(why)

    find_module = find_spec


try:
    wait()
except Exception as error:
    sys.meta_path.insert(0, Unrecorded(str(error)))

# The one that Python would have run without us. It may fail, as it would have.
own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", own)
'''

_UNSEEN: Final = (
    "no DeepSpeed engine, DDP or FSDP model trained: "
    "dsprof.attach(model, optimizer=optimizer) in the script records any other; "
    "or no Python looked: `python -E`, `-I` and `-S` do not, nor one whose PYTHONPATH was set anew "
    "or names what its user may not read"
)

#: Letters that a shell, srun (a comma), pdsh (%) or PYTHONPATH itself (a colon) may read otherwise.
_ODD: Final = re.compile(r"[^\w@+=./-]")

#: What is sent to us and meant for the command. Of a terminal's own keys it has heard by itself.
_KEYS: Final = (signal.SIGINT, signal.SIGQUIT)
_MEANT: Final = (*_KEYS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(command: Sequence[str], out: str | os.PathLike[str]) -> int:
    """Run `command` with every rank it starts recorded to `out`; its exit code.

    Raises:
        DsprofError: the folder cannot be written, or there is no such command.
    """
    launch = os.environ.get("DSPROF_LAUNCH") or uuid.uuid4().hex
    environment = prepare(out, os.environ, launch)
    folder = Path(out)
    before, since = _recordings(folder), time.time()
    with _started(command, environment) as process, deaths.told(folder, launch):
        code = _code_of(process)
    launches.end(out, launch, code)
    if not _is_recorded(folder, before, since):
        why = _UNSEEN if (folder / FOLDER).exists() else "it was removed meanwhile"
        tell(f"dsprof: {out}: nothing was recorded ({why})")
    return 128 - code if code < 0 else code


def prepare(
    out: str | os.PathLike[str], environment: Mapping[str, str], launch: str
) -> dict[str, str]:
    """The environment in which Python processes record themselves to `out`.

    Raises:
        DsprofError: the folder cannot be written.
    """
    folder = Path(out).absolute()
    if ".." in folder.parts:  # Python takes it out of PYTHONPATH: the place would be two places
        folder = folder.resolve()
    home = os.fsencode(Path(dsprof.__file__).absolute().parent)
    text = _SITECUSTOMIZE.format(home=home, out=os.fsencode(folder), launch=launch)
    try:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        here = _written(_places(folder), text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(
            f"cannot be written: {reason}", str(folder), "name another --out"
        ) from error
    paths = [str(here), *filter(None, [environment.get("PYTHONPATH")])]
    told = {"DSPROF_OUT": str(folder), "DSPROF_LAUNCH": launch}
    return {**environment, **told, "PYTHONPATH": os.pathsep.join(paths)}


def _places(folder: Path) -> list[Path]:
    """Where the startup file of a run folder may lie, the best first: in it, if its name is plain.

    Else beside the highest folder whose name is not: DeepSpeed's launcher puts PYTHONPATH into
    lines of a shell, arguments of mpirun, lists of srun, where other letters end the name or the
    job. A colon PYTHONPATH cannot have at all.
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
    """The first of these places that takes the startup file.

    Raises:
        OSError: none does.
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
    """At once: ranks of another node, or of another job, may be reading it."""
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
    """Whether more is there than before. A script may name a folder in this one: that we look for
    in the end alone, for what lies below may be data, and long to walk through."""
    if _recordings(folder) - before:
        return True
    with suppress(OSError):  # it goes as we look
        return any(file.stat().st_mtime >= since for file in folder.rglob(f"*{SUFFIX}"))
    return False


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The command, to which signals go that are sent to us: it ends or not, and we end after it.

    They are caught before it begins, for a signal may be as quick as its first line.

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
        if before[number] is not signal.SIG_IGN:  # as nohup wants it, of the command, too
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


def _begun(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), env=environment)  # noqa: S603 - the user's own
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(f"cannot be run: {reason}", command[0], "check its name") from error


def _code_of(process: subprocess.Popen[bytes]) -> int:
    """How it ended. We look up now and then: Python passes a signal on only between two calls,
    and one that comes just before a wait without end would be passed on when all is over."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)


def _has_a_terminal() -> bool:
    """Whether keys of a terminal reach us, and with us the command."""
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123 - no file
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def main() -> None:
    """`python -m dsprof.hook.launch OUT COMMAND...`"""
    sys.exit(run(sys.argv[2:], sys.argv[1]))


if __name__ == "__main__":
    main()
