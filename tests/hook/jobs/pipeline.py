"""A pipeline of two stages, four micro-batches a step; the last stage is slow."""

from __future__ import annotations

import time

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from torch import nn
from torch.utils.data import TensorDataset

import dsprof.hook
from tests.hook.jobs import job

STEPS, MICROS, BATCH, SLEEP = 5, 4, 8, 0.004


class Slow(nn.Module):  # type: ignore[misc]  # where torch is not installed
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(SLEEP)
        return x


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(512, job.WIDTH, generator=generator)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def engine() -> deepspeed.PipelineEngine:
    net = PipelineModule([*job.model(), Slow()], num_stages=2, loss_fn=nn.functional.mse_loss)
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": MICROS,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
        "steps_per_print": 1_000_000,
    }
    return deepspeed.initialize(
        model=net, model_parameters=net.parameters(), training_data=data(), config=config
    )[0]


def train(pipe: deepspeed.PipelineEngine) -> list[str]:
    return [pipe.train_batch().item().hex() for _ in range(STEPS)]


def main() -> None:
    job.start_deepspeed()
    plain = train(engine())
    pipe = engine()
    before, held = job.issued(), set(vars(pipe))
    with dsprof.hook.attach(pipe, out=job.out() / "pipe"):
        watched = train(pipe)
        issued = job.since(before)
    checkpoint = str(job.out() / "checkpoint")
    again = engine()
    with dsprof.hook.attach(again, out=job.out() / "rollback"):
        again.train_batch()
        again.save_checkpoint(checkpoint)
        again.train_batch()
        again.load_checkpoint(checkpoint)
        again.train_batch()
    with dsprof.hook.attach(again, out=job.out() / "evaluated"):
        again.train_batch()
        again.eval_batch(iter(torch.utils.data.DataLoader(data(), BATCH)))
        again.train_batch()
    left = {"_INSTRUCTION_MAP", "train_batch", "save_checkpoint"} & (set(vars(pipe)) - held)
    job.finish({"plain": plain, "watched": watched, "issued": issued, "left": sorted(left)})
