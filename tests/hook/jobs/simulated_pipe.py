"""A pipeline of two stages on simulated GPUs that are slower than their hosts.

Results are, by kind, what each step but the first took, and how long the device waited in it for
messages and collectives.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import set_accelerator
from deepspeed.pipe import PipelineModule
from torch import nn

import dsprof.hook
from tests.hook.jobs import job
from tests.hook.jobs.simulated import (
    BACKWARD,
    FORWARD,
    LATE,
    LAYERS,
    WIDTH,
    Accelerator,
    Layer,
    Updating,
    timed,
)
from tests.hook.simulated import install

STEPS, MICROS, BATCH = 12, 4, 8
MESSAGE, SLOW = 0.0002, 0.008  # seconds
KINDS = ("even", "late", "slow")  # the last stage is, or messages are


def engine(kind: str) -> deepspeed.PipelineEngine:
    layers = [Layer(WIDTH, WIDTH) for _ in range(LAYERS)]
    for layer in layers[LAYERS // 2 :] if kind == "late" else ():
        layer.seconds = FORWARD * LATE, BACKWARD * LATE
    net = PipelineModule(
        layers, num_stages=2, loss_fn=nn.functional.mse_loss, partition_method="uniform"
    )
    return deepspeed.initialize(
        model=net,
        optimizer=Updating(net.parameters(), lr=1e-3),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": MICROS,
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1_000_000,
        },
    )[0]


def train(kind: str) -> list[tuple[float, float]]:
    pipe, batches = engine(kind), repeat((torch.zeros(BATCH, WIDTH), torch.ones(BATCH, WIDTH)))
    dist.barrier()
    with dsprof.hook.attach(pipe, out=job.out() / kind):
        return timed(STEPS, lambda _: pipe.train_batch(batches), partial(seconds_of, kind))


def seconds_of(kind: str, size: int) -> float:
    return SLOW if kind == "slow" and size == 4 * BATCH * WIDTH else MESSAGE


def main() -> None:
    set_accelerator(Accelerator())
    job.start_deepspeed()
    install(job.out() / "board")
    job.finish({kind: train(kind) for kind in KINDS})
