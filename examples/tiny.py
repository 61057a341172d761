"""What the example scripts share: a small task, and start-up code that needs no compiler."""

from __future__ import annotations

import argparse
from typing import Any

import deepspeed
import torch
from torch import nn
from torch.utils.data import TensorDataset

HELP = argparse.RawDescriptionHelpFormatter
WIDTH, CLASSES = 256, 10
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def layers(depth: int) -> list[nn.Module]:
    """`depth` residual blocks and a classifier, the same weights on every rank."""
    torch.manual_seed(0)
    return [*(Residual() for _ in range(depth)), nn.Linear(WIDTH, CLASSES)]


def dataset(dtype: str, size: int = 4096) -> TensorDataset:
    """Random vectors labelled by a fixed linear map: it can be learned, so the loss falls."""
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(size, WIDTH, generator=generator)
    labels = (vectors @ torch.randn(WIDTH, CLASSES, generator=generator)).argmax(dim=1)
    return TensorDataset(vectors.to(DTYPES[dtype]), labels)


def cross_entropy(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.float(), labels)


def start() -> None:
    """Join the process group over gloo."""
    # Else DeepSpeed compiles a shared-memory collective: half a minute of g++ at the first run.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")


def base_config(
    dtype: str, accumulation: int, steps_per_print: int, log_level: str | None
) -> dict[str, Any]:
    """The part of a DeepSpeed config every example has."""
    config = {
        "train_micro_batch_size_per_gpu": 32,
        "gradient_accumulation_steps": accumulation,
        "steps_per_print": steps_per_print,
        "gradient_clipping": 1.0,
        # torch's own Adam: DeepSpeed's CPU Adam is compiled at first use.
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if log_level:
        config["log_level"] = log_level
    return config
