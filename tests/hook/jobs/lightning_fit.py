"""Lightning's Trainer with the callback: argv[2] is its strategy, "failing" or "failed"."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from dsprof.integrations.lightning import DsprofCallback
from tests.hook.jobs import job

STEPS = 6
EVALUATED = 4  # the step behind which the trainer evaluates


class Module(lightning.LightningModule):  # type: ignore[misc]  # where it is not installed
    def __init__(self) -> None:
        super().__init__()
        self.inner = job.model()

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss: torch.Tensor = self.inner(batch[0]).square().mean()
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.inner(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-2)


def train(strategy: str, *callbacks: Any) -> list[str]:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(512, job.WIDTH, generator=generator))
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", strategy=strategy, devices=1 if strategy == "auto" else 2,
        max_steps=STEPS, accumulate_grad_batches=2, callbacks=list(callbacks), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(job.out()), val_check_interval=EVALUATED * 2,
    )  # fmt: skip
    asked = DataLoader(Subset(data, range(48)), batch_size=8)
    trainer.fit(module, DataLoader(data, batch_size=8), asked)
    return [parameter.detach().sum().item().hex() for parameter in module.parameters()]


class Failing(lightning.Callback):  # type: ignore[misc]  # where it is not installed
    def on_train_batch_start(self, *told: Any) -> None:
        if told[-1] == STEPS:  # the number of the batch
            raise ValueError("planted")


def main() -> None:
    strategy = sys.argv[2]
    if strategy == "failing":
        train("auto", DsprofCallback(out=job.out() / "run"), Failing())
    if strategy == "failed":
        with contextlib.suppress(ValueError):
            train("auto", DsprofCallback(out=job.out() / "run"), Failing())
        train("auto", DsprofCallback(out=job.out() / "behind"))
        return
    plain = train(strategy)
    watched = train(strategy, DsprofCallback(out=job.out() / "run"))
    job.finish({"plain": plain, "watched": watched})
