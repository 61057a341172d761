"""Recording without a line of code: `dsprof attach --out DIR -- COMMAND`.

The run folder gets a small `sitecustomize.py`, and PYTHONPATH names it: every Python process
the command starts, on whichever host, runs it first. Settings stand in that file, because
DeepSpeed's multi-node launcher forwards PYTHONPATH but no variables of ours. What it does is
wait for `deepspeed` and `torch` to be imported; see `startup` and `finding`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import dsprof
from dsprof.errors import DsprofError
from dsprof.hook import deaths
from dsprof.output import tell
from dsprof.recording import launches
from dsprof.recording.launches import FOLDER
from dsprof.recording.layout import SUFFIX

_SITECUSTOMIZE: Final = '''\
"""Written by dsprof attach: records this process's training. Safe to delete afterwards."""

import os
import sys

here = {here!r}
os.environ.setdefault("DSPROF_OUT", {out!r})
os.environ.setdefault("DSPROF_LAUNCH", {launch!r})
sys.path[:] = [path for path in sys.path if path != here] + {more!r}
try:
    from dsprof.hook.startup import start
except ImportError as error:
    print(f"dsprof: nothing is recorded: {{error}}", file=sys.stderr)
else:
    start()
'''

_UNSEEN: Final = (
    "it found no DeepSpeed engine, DDP or FSDP2 model that trains; "
    "dsprof.attach(model, optimizer=optimizer) in the script records any other"
)


def run(command: Sequence[str], out: str | os.PathLike[str]) -> int:
    """Run `command` with every rank it starts recorded to `out`; its exit code.

    Raises:
        DsprofError: the folder cannot be written, or there is no such command.
    """
    launch = os.environ.get("DSPROF_LAUNCH") or uuid.uuid4().hex
    environment = prepare(out, os.environ, launch)
    before = _recordings(out)
    try:
        process = subprocess.Popen(list(command), env=environment)  # noqa: S603 - the user's own
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(f"cannot be run: {reason}", command[0], "check its name") from error
    with _passing_on(process), deaths.told(Path(out), launch):
        code = process.wait()
    launches.end(out, launch)
    if _recordings(out) <= before:
        tell(f"dsprof: {out}: nothing was recorded ({_UNSEEN})")
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
    here = folder / FOLDER
    text = _SITECUSTOMIZE.format(here=str(here), out=str(folder), launch=launch, more=_our_path())
    try:
        here.mkdir(parents=True, exist_ok=True)
        (here / "sitecustomize.py").write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(
            f"cannot be written: {reason}", str(folder), "name another --out"
        ) from error
    paths = [str(here), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def _recordings(out: str | os.PathLike[str]) -> set[Path]:
    return set(Path(out).rglob(f"*{SUFFIX}"))


def _our_path() -> list[str]:
    """Where dsprof is imported from, if it is not installed: at the end, it hides nothing."""
    parent = Path(dsprof.__file__).absolute().parents[1]
    return [] if parent.name in {"site-packages", "dist-packages"} else [str(parent)]


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGTERM goes to the command; SIGINT reaches it by itself, and ends it, not us."""
    before = {
        signal.SIGTERM: signal.signal(
            signal.SIGTERM, lambda number, _: process.send_signal(number)
        ),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    """`python -m dsprof.hook.launch OUT COMMAND...`"""
    sys.exit(run(sys.argv[2:], sys.argv[1]))


if __name__ == "__main__":
    main()
