"""`python -m tests.hook.forked JOB LIBRARY GROUPS`: the ranks of jobs, forked from one process.

Importing torch and a trainer takes longer than all that a job of these tests trains. Here that is
done once: not by every rank, nor by torchrun too. A rank finds in its environment what torchrun
puts there. Groups of ranks, as JSON lists of how many, their folder and arguments, run in turn.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable
from importlib import import_module


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environments(ranks: int) -> list[dict[str, str]]:
    """What each of several ranks finds; a process alone knows of no ranks."""
    if ranks == 1:
        return [{}]
    shared = {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(), "TORCHELASTIC_RUN_ID": str(uuid.uuid4()),
    }  # fmt: skip
    return [shared | {"RANK": str(n), "LOCAL_RANK": str(n)} for n in range(ranks)]


def fork(main: Callable[[], None], argv: list[str], environment: dict[str, str]) -> int:
    """The process that runs `main` as a script of its own would; only its parent returns."""
    process = os.fork()
    if process:
        return process
    os.environ.update(environment)
    sys.argv[1:] = argv
    main()
    sys.exit()


def all_end_well(processes: set[int]) -> bool:
    """Waits for all; where one fails, the others would wait for it in vain."""
    well = True
    while processes:
        ended, status = os.wait()
        processes.discard(ended)
        if status and well:
            well = False
            for process in processes:
                os.kill(process, signal.SIGKILL)
    return well


def main() -> None:
    name, library, groups = sys.argv[1:]
    import_module(library)
    job = import_module(f"tests.hook.jobs.{name}").main
    for ranks, *argv in json.loads(groups):
        if not all_end_well({fork(job, argv, told) for told in environments(ranks)}):
            sys.exit(1)


if __name__ == "__main__":
    main()
