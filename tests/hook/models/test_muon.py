"""What DeepSpeed's Muon computes while it reduces gradients."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dsprof import load
from dsprof.hook.attach import _active, attach
from dsprof.hook.models.muon import _MODULE, time_updates


class Muon:
    """Stands for DeepSpeed's, which is known by its name."""


def test_an_update_that_several_engines_have_patched_is_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    module = ModuleType(_MODULE)
    vars(module)["muon_update"] = lambda gradient: gradient
    monkeypatch.setitem(sys.modules, _MODULE, module)
    nets = [torch.nn.Linear(2, 1) for _ in range(2)]
    steps = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    with (
        attach(nets[0], optimizer=steps[0], out=tmp_path),
        attach(nets[1], optimizer=steps[1], out=tmp_path),
    ):
        for parts in _active.recorder.models.values():
            time_updates(SimpleNamespace(basic_optimizer=Muon()), parts)
        for net, optimizer in zip(nets, steps, strict=True):
            net.weight.register_hook(module.muon_update)
            for _ in range(3):
                net(torch.ones(2)).sum().backward()
                optimizer.step()
    phases = load(tmp_path).phases
    updates = phases[phases["name"] == "muon_update"]
    assert len(updates) == 6, "one for each backward"
    assert set(updates["class"]) == {"optimizer"}
