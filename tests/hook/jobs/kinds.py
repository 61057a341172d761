"""Engines beyond the plain one, without the hook and with it; argv[2:] are the kinds."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

import dsprof.hook
from tests.hook.jobs import job

STEPS, OVERFLOW = 5, 1
SETTINGS: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}},
    "offload": {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "zero_force_ds_cpu_optimizer": False,
    },
    "fp16": {"fp16": {"enabled": True}, "zero_optimization": {"stage": 1}},
    "moe": {},
    "muon": {"zero_optimization": {"stage": 2}},
    "logged": {"comms_logger": {"enabled": True, "verbose": False}},
}

#: An older DeepSpeed has none.
MUON: dict[str, Any] = {}
if find_spec("deepspeed.runtime.zero.muon"):
    MUON["optimizer"] = {"type": "Muon", "params": {"lr": 1e-2}}


class Experts(nn.Module):  # type: ignore[misc]  # where torch is not installed
    """Two experts, one on each rank, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        from deepspeed.moe.layer import MoE

        torch.manual_seed(0)
        self.first = nn.Linear(job.WIDTH, job.WIDTH)
        expert = nn.Sequential(nn.Linear(job.WIDTH, job.WIDTH), nn.ReLU())
        self.moe = MoE(job.WIDTH, expert, num_experts=2, ep_size=2, k=1, use_rts=False)
        self.last = nn.Linear(job.WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, balance, _ = self.moe(self.first(x))
        return self.last(found) + balance


def of_matrices() -> nn.Module:
    """A model for Muon alone: beside it an Adam for biases would be compiled for a minute."""
    net = job.model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            layer.bias = None
            layer.weight.use_muon = True
    return net


def engine(kind: str) -> Any:
    if kind == "muon":
        return job.engine(2, 1, net=of_matrices(), **SETTINGS[kind] | MUON)
    if kind != "moe":
        return job.engine(0, 1, **SETTINGS[kind])
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split

    net = Experts()
    groups = split({"params": list(net.parameters()), "name": "all"})
    return job.engine(0, 1, net=net, groups=groups, gradient_clipping=0.0)


def train(engine: Any) -> list[str]:
    kind = next(engine.module.parameters()).dtype
    losses = []
    for step in range(STEPS):
        loss = engine(job.batch(step).to(kind)).float().square().mean()
        if kind is torch.float16 and step == OVERFLOW:
            loss = loss * 1e30
        engine.backward(loss)
        engine.step()
        losses.append(loss.item().hex())
    weights = [parameter.detach().double().sum().item().hex() for parameter in engine.parameters()]
    return losses + weights


def both_ways(kind: str) -> dict[str, Any]:
    plain = train(engine(kind))
    made = engine(kind)
    held, before = set(vars(made)), job.issued()
    with dsprof.hook.attach(made, out=job.out() / kind):
        watched = train(made)
        issued = job.since(before)
    return {
        "plain": plain, "watched": watched, "issued": sum(issued.values()),
        "left": sorted(set(vars(made)) ^ held), "skipped": made.skipped_steps,
    }  # fmt: skip


def main() -> None:
    job.start_deepspeed()
    tells = torch.__version__ >= (2, 7)  # what it is built for, without asking for devices
    for_cpus = tells and torch.version.cuda is None
    if MUON:  # its update would be compiled for half a minute
        torch.compiler.set_stance("force_eager")
    result = {kind: both_ways(kind) for kind in sys.argv[2:]}
    job.finish(result | {"accelerator": "cpu" if for_cpus else None, "has muon": bool(MUON)})
