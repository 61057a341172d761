"""`python -m tests.hook.forked LIBRARY`: forks the ranks of jobs from one process.

Importing torch and a trainer takes longer than all that a job of these tests trains. Here that is
done once: not for every job, nor by every rank and by torchrun, too. A rank finds in its
environment what torchrun puts there. What is imported is frozen and outlives Python, or each rank
would look through all of it for garbage again as it ends, and then take it apart: a second.

A line of standard input, JSON, names a job and its groups of ranks: of each how many, their folder
and arguments. Groups run in turn. A line of standard output says whether all ranks ended well.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Final

FIRST: Final = -10  #: niceness of a rank, where that is permitted

#: What each optimizer, engine and trainer of a library imports as it is made. That Trainers import
#: DeepSpeed only then is left to them: the hook must see it.
LATER: Final = {
    "transformers": ("transformers.trainer",),
    "torch": ("torch._dynamo", "torch._inductor.compile_fx", "torch.distributed.fsdp"),
    "deepspeed": ("deepspeed.runtime.zero.muon.muon_optimizer",),
}


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


def fork(main: Callable[[], None], argv: Sequence[str] = (), **environment: str) -> int:
    """The process that runs `main` as a script of its own would; only its parent returns."""
    process = os.fork()
    if process:
        return process
    os.environ.update(environment)
    sys.argv[1:] = argv
    with suppress(PermissionError):  # else what other tests compute meanwhile delays its ranks
        os.nice(FIRST)
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


def run(name: str, groups: list[list[str]]) -> None:
    """`main` of `jobs/NAME.py` in each group; what the job imports, its ranks share."""
    job = import_module(f"tests.hook.jobs.{name}").main
    gc.freeze()
    for ranks, *argv in groups:
        if not all_end_well({fork(job, argv, **told) for told in environments(int(ranks))}):
            os._exit(1)
    os._exit(0)  # it was a rank of nothing: its end shows nothing


def import_early(library: str) -> None:
    import_module(library)
    for one, names in LATER.items():
        for name in names if one in sys.modules else ():
            with suppress(ImportError):  # other versions have other modules
                import_module(name)


def keep(modules: dict[str, ModuleType]) -> None:
    """Before Python ends: it takes apart what is in `sys.modules`, and frees what nobody has."""
    for name in modules.keys() & sys.modules.keys():
        del sys.modules[name]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))


def main() -> None:
    imported: dict[str, ModuleType] = {}
    atexit.register(keep, imported)  # the first of all, and so the last that runs
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what ranks print is no answer
    gc.disable()  # while a library is imported nothing is garbage, and to look takes a third
    early = set(sys.modules)
    import_early(sys.argv[1])
    imported |= {name: sys.modules[name] for name in sys.modules.keys() - early}
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        name, groups = json.loads(line)
        well = all_end_well({fork(partial(run, name, groups))})
        answers.write(f"{json.dumps(well)}\n")


if __name__ == "__main__":
    main()
