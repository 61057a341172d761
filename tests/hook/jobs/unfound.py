"""A process alone whose model nobody names: argv[2] says what it does, argv[3] its environment.

What it says on standard error to its very end is in the file `stderr`.
"""

from __future__ import annotations

import json
import os
import sys

import torch

from tests.hook.jobs import job


def main() -> None:
    code, environment = sys.argv[2:]
    os.environ.update(json.loads(environment))
    with (job.out() / "stderr").open("w") as said:
        os.dup2(said.fileno(), 2)
    os.chdir(job.out())
    import dsprof

    handle = dsprof.attach()
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    told = {"dsprof": dsprof, "handle": handle, "net": net, "optimizer": optimizer, "torch": torch}
    exec(code, told)  # what only a test gives
