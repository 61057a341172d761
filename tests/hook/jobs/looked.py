"""A plain model whose script sleeps between its steps, or whose data set does: argv[2] says."""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

import dsprof.hook
from tests.hook.jobs import job

STEPS = 12
SECONDS = 0.05
OFTEN = "0.004"  # seconds between two looks


class Images(Dataset):  # type: ignore[misc]
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((job.WIDTH,), 0.1 * place)


def score(seconds: float) -> None:
    time.sleep(seconds)


def trained(seconds: float, *, looks: str) -> list[float]:
    """With such pauses between steps, or without in the data set."""
    os.environ["DSPROF_LOOKS"] = looks
    between, inside = (seconds, 0.0) if sys.argv[2] == "between" else (0.0, seconds)
    net, losses = job.model(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with dsprof.hook.attach(net, optimizer=optimizer, out=job.out() / f"looks-{looks}"):
        for batch in DataLoader(Images(inside), batch_size=1):
            loss = net(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            score(between)
    return losses


def main() -> None:
    losses = [trained(SECONDS, looks=looks) for looks in (OFTEN, "0")]
    threads = [one.name for one in threading.enumerate()]
    job.finish({"losses": losses, "threads": threads})
