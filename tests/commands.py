"""Runs of the command line, forked from one process that has made a report already (`tests.warm`).

What only the first one does takes longer than most of these runs do. Each is a process of its own
all the same, with its own folder, environment, streams and exit code. That commands import no more
than they must, tests see that start Python anew.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dsprof import cli

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "tests.warm"])
_STREAMS = ("in", "out", "err")
_SECONDS = 60


def run(
    arguments: list[str], folder: Path, environment: Mapping[str, str], given: str | None
) -> subprocess.CompletedProcess[str]:
    """What `dsprof ARGUMENTS...` says in that folder, with `given` as its standard input.

    Raises:
        TimeoutExpired: it has not ended after a minute.
    """
    with TemporaryDirectory() as name:
        told = {stream: Path(name) / stream for stream in _STREAMS}
        told["in"].write_text(given or "", encoding="utf-8")
        process = _SERVER.Process(
            target=_main, args=(arguments, folder, dict(environment), list(told.values()))
        )
        process.start()
        process.join(_SECONDS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(arguments, _SECONDS)
        out, err = (told[stream].read_text(encoding="utf-8") for stream in _STREAMS[1:])
        return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


def _main(
    arguments: list[str], folder: Path, environment: dict[str, str], streams: list[Path]
) -> None:
    """In the fork: becomes a process as a shell would have started it."""
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as it runs
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["dsprof", *arguments]
    cli.main()
