"""What an older PyTorch lacks is found where that one has it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dsprof.hook import collectives, given, parts
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Patches

torch = pytest.importorskip("torch")


def test_before_pytorch_2_3_scalers_are_those_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given.scaler() is torch.amp.GradScaler
    monkeypatch.delattr(torch.amp, "GradScaler")
    assert given.scaler() is torch.cuda.amp.GradScaler


@pytest.mark.parametrize(("compiles", "ran"), [(True, "raw"), (False, "timed")])
def test_before_pytorch_2_3_another_function_tells_whether_something_is_compiled(
    compiles: bool, ran: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.compiler, "is_compiling")
    monkeypatch.setattr(torch._utils, "is_compiling", lambda: compiles, raising=False)
    says: Callable[[str], Callable[[], str]] = lambda name: lambda: name  # noqa: E731
    assert parts.unless_compiling(says("raw"), says("timed"))() == ran


def test_before_pytorch_2_2_groups_are_named_by_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed: Any = importlib.import_module("torch.distributed.distributed_c10d")
    group, unknown = object(), object()
    monkeypatch.setitem(distributed._world.pg_names, group, "7")
    assert [collectives._name_of(one) for one in (group, unknown)] == ["7", ""]


@pytest.mark.parametrize("gives_parts", [True, False])
def test_before_transformers_4_46_what_a_trainer_gives_is_the_loss_of_a_micro_batch(
    gives_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Accelerator:
        def backward(self, loss: object) -> given.Loss:
            return known.loss_of(loss)

    class Trainer:
        def training_step(self, loss: object) -> given.Loss:
            return Accelerator().backward(loss)

    if gives_parts:
        Trainer.get_batch_samples = None  # type: ignore[attr-defined]
    libraries = (("accelerate.accelerator", Accelerator), ("transformers.trainer", Trainer))
    for module, kind in libraries:
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{kind.__name__: kind}))
    recorder: Any = SimpleNamespace(patches=Patches(), guard=Guard())
    known = given.Given(recorder)
    loss = object()
    assert Trainer().training_step(loss) == (loss, gives_parts, None)
    recorder.patches.undo()
