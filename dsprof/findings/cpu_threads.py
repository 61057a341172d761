"""How many threads compute on the CPU in each rank."""

from __future__ import annotations

from typing import Final

from dsprof.findings.advice import environment
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice

_VARIABLE: Final = "OMP_NUM_THREADS"
_ON_CPU: Final = "the update runs on the CPU"


def more_threads(facts: Facts) -> tuple[Advice, ...]:
    """Where the optimizer runs on the CPU: to let it use the cores that are there.

    torchrun sets one thread for each rank unless the variable is set.
    """
    told = facts.run.config
    threads, cores, ranks = (told.get(name) for name in ("cpu_threads", "cpu_cores", "local_ranks"))
    if threads and cores and ranks:
        room = int(cores // ranks)
        if room < 2 * threads:
            return ()
        why = f"{_ON_CPU}, where {int(cores):,} cores are for {int(ranks):,} ranks"
        return (Advice(_VARIABLE, f"{int(threads):,}", f"{room:,}", why),)
    if environment(facts).get(_VARIABLE) != "1":
        return ()
    return (Advice(_VARIABLE, "1", "a host's cores over its ranks", f"{_ON_CPU}, in one thread"),)
