"""Hugging Face's Trainer with the callback: argv[2] is "deepspeed", "ddp" or "plain"."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainingArguments

from dsprof.integrations.hf import DsprofCallback
from tests.hook.jobs import job

STEPS, SAVED = 6, 3


class Rows(Dataset):  # type: ignore[misc]  # where torch is not installed
    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(job.WIDTH, generator=generator)}


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = job.model()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": 1e3 * self.inner(x).square().mean()}  # transformers 4 logs four decimals


def arguments(kind: str) -> TrainingArguments:
    more: dict[str, Any] = {}
    if kind == "deepspeed":
        more["deepspeed"] = {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "fp16": {"enabled": "auto"},  # unsaid it is on, for transformers 4
            "zero_optimization": {"stage": 1},
            "optimizer": {"type": "Adam", "params": {"lr": "auto", "torch_adam": True}},
            "zero_allow_untested_optimizer": True,
        }
    return TrainingArguments(
        output_dir=str(job.out() / "trainer"), max_steps=STEPS, per_device_train_batch_size=8,
        gradient_accumulation_steps=2, use_cpu=True, report_to=[], save_steps=SAVED,
        eval_strategy="steps", eval_steps=SAVED, logging_steps=1, disable_tqdm=True, **more,
    )  # fmt: skip


def train(kind: str, *callbacks: Any, resumed: str | None = None) -> tuple[list[str], list[float]]:
    """The weights, and the loss that the trainer logs of each step."""
    trainer = Trainer(
        model=Model(), args=arguments(kind), train_dataset=Rows(), callbacks=list(callbacks),
        eval_dataset=Subset(Rows(), range(16)),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resumed)
    weights = [parameter.detach().sum().item().hex() for parameter in trainer.model.parameters()]
    return weights, [line["loss"] for line in trainer.state.log_history if "loss" in line]


def _to_cpu(storage: Any, place: str) -> Any:
    return storage if place.startswith("cpu:") else None


def main() -> None:
    # transformers 4 loads an optimizer to accelerate's "cpu:0", of which PyTorch knows nothing.
    torch.serialization.register_package(0, lambda _: None, _to_cpu)
    kind = sys.argv[2]
    if kind == "deepspeed":
        job.start_deepspeed()
    plain, _ = train(kind)
    first = DsprofCallback(out=job.out() / "run")
    watched, logged = train(kind, first)
    first._search.detach()  # it would find the next training, too
    resumed = str(job.out() / "trainer" / f"checkpoint-{SAVED}")
    again, _ = train(kind, DsprofCallback(out=job.out() / "resumed"), resumed=resumed)
    job.finish({"plain": plain, "watched": watched, "resumed": again, "logged": logged})
