"""Several trainings by Hugging Face's Trainer in one process: argv[2] says which."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import Subset
from transformers import Trainer, TrainerCallback, TrainingArguments

from dsprof.integrations.hf import DsprofCallback
from tests.hook.jobs import job
from tests.hook.jobs.hf_train import Rows

STEPS, FAILING, BATCH = 4, 3, 8


class Model(nn.Module):  # type: ignore[misc]  # where torch is not installed
    """Has no memory for a full batch from some forward on."""

    def __init__(self, fits: int) -> None:
        super().__init__()
        self.inner, self.fits = job.model(1), fits

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.fits -= 1
        if self.fits < 0 and len(x) == BATCH:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return {"loss": self.inner(x).square().mean()}


class Failing(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == FAILING:
            raise KeyError("planted")


class Asking(TrainerCallback):  # type: ignore[misc]
    """Trains another model within."""

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == FAILING:
            trainer("inner").train()


def trainer(
    name: str, *callbacks: Any, fits: int = 1000, steps: int = STEPS, **more: Any
) -> Trainer:
    """One that records to the folder `name`."""
    told = TrainingArguments(
        output_dir=str(job.out() / "trainer"), max_steps=steps, per_device_train_batch_size=BATCH,
        use_cpu=True, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True, **more,
    )  # fmt: skip
    watching = DsprofCallback(out=job.out() / name)
    return Trainer(
        model=Model(fits), args=told, train_dataset=Subset(Rows(), range(256)),
        callbacks=[watching, *callbacks],
    )  # fmt: skip


def main() -> None:
    kind = sys.argv[2]
    if kind == "failed":
        try:
            trainer("first", Failing()).train()
        except KeyError:
            trainer("second").train()
    elif kind == "smaller":
        trainer("first", fits=FAILING, auto_find_batch_size=True).train()
    elif kind == "within":
        trainer("first", Asking()).train()
    else:
        first, second = trainer("first"), trainer("second", steps=STEPS - 1)
        first.train()
        second.train()
    job.finish({})
