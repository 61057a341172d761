"""An engine whose communication logger is on."""

from __future__ import annotations

import dsprof.hook
from tests.hook.jobs import job


def main() -> None:
    job.start_deepspeed()
    engine = job.engine(1, 1, comms_logger={"enabled": True, "verbose": False})
    with dsprof.hook.attach(engine, out=job.OUT / "run"):
        for micro in range(2):
            engine.backward(engine(job.batch(micro)).square().mean())
            engine.step()
    job.finish({})


main()
