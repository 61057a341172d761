"""How many threads compute on the CPU in each rank."""

from __future__ import annotations

from typing import Final

from dsprof.findings.advice import environment
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice

_VARIABLE: Final = "OMP_NUM_THREADS"
_ON_CPU: Final = "the update runs on the CPU"


def threads_and_room(facts: Facts) -> tuple[int, int] | None:
    """In how many threads a rank computes on the CPU, and how many CPUs there are for it: its part
    of the host's, or of what a limit of its container allows; at least 1.
    """
    told = facts.run.config
    threads, cores, ranks = (told.get(name) for name in ("cpu_threads", "cpu_cores", "local_ranks"))
    if not threads or not cores or not ranks:
        return None
    cpus = min(cores, told.get("cpu_limit") or cores)
    return int(threads), max(int(cpus // ranks), 1)


def more_threads(facts: Facts) -> tuple[Advice, ...]:
    """Where the optimizer runs on the CPU: to let it use the cores that are there.

    torchrun sets one thread for each rank unless the variable is set.
    """
    known = threads_and_room(facts)
    if known:
        threads, room = known
        if room < 2 * threads:
            return ()
        why = f"{_ON_CPU}, where each rank has {room:,} cores"
        return (Advice(_VARIABLE, f"{threads:,}", f"{room:,}", why),)
    if environment(facts).get(_VARIABLE) != "1":
        return ()
    return (Advice(_VARIABLE, "1", "a host's cores over its ranks", f"{_ON_CPU}, in one thread"),)


def fewer_threads(facts: Facts) -> tuple[Advice, ...]:
    """Where ranks wait for a CPU: to compute in no more threads than there are CPUs."""
    known = threads_and_room(facts)
    if not known or known[0] <= known[1]:
        return ()
    threads, room = known
    why = f"each rank computes in {threads:,} threads and has {room:,} of the CPUs"
    return (Advice(_VARIABLE, f"{threads:,}", f"{room:,}", why),)
