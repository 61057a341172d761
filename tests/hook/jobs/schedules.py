"""Pipelines of PyTorch's own: a stage of a model on each of two ranks, in two orders of work."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
import torch.distributed as dist

import dsprof.hook
from tests.hook.jobs import job

KINDS = ("ScheduleGPipe", "Schedule1F1B")
STEPS, MICROS = 3, 4


def train(kind: str, watched: bool) -> list[str]:
    from torch.distributed import pipelining

    net, rank = job.model(), dist.get_rank()
    half = torch.nn.Sequential(*list(net)[4 * rank : 4 * rank + 4])
    stage = pipelining.PipelineStage(half, rank, 2, torch.device("cpu"))
    made = getattr(pipelining, kind)
    schedule = made(stage, n_microbatches=MICROS, loss_fn=lambda out, _: out.square().mean())
    optimizer = torch.optim.SGD(half.parameters(), lr=1e-2)
    handle = watched and dsprof.hook.attach(half, optimizer=optimizer, out=job.out() / kind)
    told = []
    for step in range(STEPS):
        losses: list[torch.Tensor] = []
        if rank:
            schedule.step(target=torch.zeros(8, 1), losses=losses)
        else:
            schedule.step(job.batch(step))
        optimizer.step()
        optimizer.zero_grad()
        told += [loss.item().hex() for loss in losses]
    if handle:
        handle.detach()
    return told


def trained(kind: str) -> dict[str, Any]:
    return {"plain": train(kind, watched=False), "watched": train(kind, watched=True)}


def main() -> None:
    dist.init_process_group("gloo")
    if importlib.util.find_spec("torch.distributed.pipelining") is None:
        job.finish({"cannot": "before PyTorch 2.4 there are no pipelines of its own"})
        return
    job.finish(job.each_kind(KINDS, trained))
