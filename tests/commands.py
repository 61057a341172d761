"""Runs of the command line, forked from one process that has made a report already (`tests.warm`).

What only the first one does takes longer than most of these runs do. Each is a process of its own
all the same, with its own folder, environment, streams and exit code. That commands import no more
than they must, and that their streams may be closed, tests see that start Python anew.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from dsprof import cli

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__, "tests.warm"])
_SECONDS = 60
_HANDING = Path(__file__).with_name("handing.py")


class Started:
    """`dsprof ARGUMENTS...` in that folder, with those files as its streams."""

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: Iterable[int],
    ) -> None:
        self._arguments = arguments
        handed = [Connection(os.dup(number)) for number in streams]  # what a fork can be given
        self._process = _SERVER.Process(
            target=_main, args=(arguments, folder, dict(environment), handed)
        )
        self._process.start()
        for one in handed:
            one.close()

    def end(self) -> int:
        """Its exit code.

        Raises:
            TimeoutExpired: it has not ended after a minute.
        """
        self._process.join(_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            raise subprocess.TimeoutExpired(self._arguments, _SECONDS)
        return self._process.exitcode


def run(
    arguments: list[str], folder: Path, environment: Mapping[str, str], given: str | None
) -> subprocess.CompletedProcess[str]:
    """What `dsprof ARGUMENTS...` says in that folder, with `given` as its standard input."""
    with ExitStack() as stack:
        files = [_file(stack) for _ in range(3)]
        files[0].write(given or "")
        files[0].seek(0)
        code = Started(arguments, folder, environment, [file.fileno() for file in files]).end()
        return _said(arguments, code, files[1:])


def shell(
    script: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What a script of bash says that runs `dsprof` once, with streams of the script's choosing.

    A failing pipe fails.
    """
    with ExitStack() as stack:
        asked = stack.enter_context(socket.socket(socket.AF_UNIX))
        asked.bind(name := f"{stack.enter_context(TemporaryDirectory())}/asked")
        asked.listen()
        asked.settimeout(_SECONDS)
        files = [_file(stack) for _ in range(2)]
        function = f'dsprof() {{ "{sys.executable}" -IS "{_HANDING}" "{name}" "$@"; }}; '
        command = ["bash", "-o", "pipefail", "-c", function + script]
        bash = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=files[0], stderr=files[1]
        )
        one, _ = asked.accept()
        with one:
            arguments, streams, _, _ = socket.recv_fds(one, 1 << 16, 3)
            started = Started(arguments.decode().split("\0"), folder, environment, streams)
            for number in streams:
                os.close(number)
            one.send(bytes([started.end()]))
        return _said(command, bash.wait(_SECONDS), files)


def _file(stack: ExitStack) -> IO[str]:
    return stack.enter_context(TemporaryFile("w+", encoding="utf-8"))


def _said(command: list[str], code: int, files: list[IO[str]]) -> subprocess.CompletedProcess[str]:
    for file in files:
        file.seek(0)
    out, err = (file.read() for file in files)
    return subprocess.CompletedProcess(command, code, out, err)


def _main(
    arguments: list[str], folder: Path, environment: dict[str, str], streams: list[Connection]
) -> None:
    """In the fork: becomes a process as a shell would have started it."""
    for number, one in enumerate(streams):
        os.dup2(one.fileno(), number)
        one.close()
    told: dict[str, Any] = {
        "encoding": environment.get("PYTHONIOENCODING", "utf-8"),
        "closefd": False,
    }
    sys.stdin = open(0, **told)  # noqa: SIM115 - for as long as it runs
    sys.stdout = open(1, "w", **told)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, **told)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["dsprof", *arguments]
    cli.main()
