"""What an older PyTorch lacks is found where that one has it."""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dsprof
from dsprof.hook.calls import groups
from dsprof.hook.guard import Guard
from dsprof.hook.models import compiling, given, parts
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


@pytest.mark.parametrize("compiled_first", [True, False])
@pytest.mark.parametrize("is_old", [True, False])
def test_before_pytorch_2_6_the_compiler_finds_a_model_by_what_its_methods_hold(
    is_old: bool, compiled_first: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiling, "_has_compiled", lambda: compiled_first)
    monkeypatch.setattr(compiling, "_knows_strategies", lambda: not is_old)
    monkeypatch.setattr(compiling, "_hide", lambda: None)
    monkeypatch.setattr(torch, "compile", lambda given: given)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with dsprof.attach(model, optimizer=optimizer, out=tmp_path):
        if not compiled_first:
            torch.compile(lambda: None)
        reference = weakref.ref(model)
        del model, optimizer
        assert (reference() is not None) == is_old


@pytest.mark.parametrize(
    ("frames", "may"),
    [
        ({"cached_backends": {}}, False),
        ({"cached_backends": {1: None}}, False),  # an optimizer's step, which is not to be
        ({"cached_backends": {1: None, 2: print}}, True),
        ({}, True),  # before PyTorch 2.2, which does not tell
    ],
)
def test_something_may_have_been_compiled_if_the_compiler_has_had_a_backend_or_does_not_tell(
    frames: dict[str, object], may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", SimpleNamespace(**frames))
    assert compiling._has_compiled() == may


def test_before_pytorch_2_2_groups_are_named_by_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed: Any = importlib.import_module("torch.distributed.distributed_c10d")
    group, unknown = object(), object()
    monkeypatch.setitem(distributed._world.pg_names, group, "7")
    assert [groups._name_of(one) for one in (group, unknown)] == ["7", ""]


def beside(
    accelerator: type, trainer: type, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, given.Given]:
    """A recorder, and what it is given, where these are the libraries' own classes."""
    libraries = {"accelerate.accelerator": accelerator, "transformers.trainer": trainer}
    for module, kind in libraries.items():
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{kind.__name__: kind}))
    recorder: Any = SimpleNamespace(patches=Patches(), guard=Guard())
    return recorder, given.Given(recorder)


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
    recorder, known = beside(Accelerator, Trainer, monkeypatch)
    loss = object()
    assert Trainer().training_step(loss) == (loss, gives_parts, None)
    recorder.patches.undo()


@pytest.mark.parametrize(
    ("version", "of_all_items", "parts"),
    [
        ("4.46.1", False, False),
        ("4.46.1", True, False),  # each is given times the number of micro-batches
        ("4.46.3", False, False),
        ("4.46.3", True, True),
        ("4.47.1", False, False),
        ("4.47.1", True, True),
        ("4.48.0", False, True),
        ("5.0.0", True, True),
    ],
)
def test_transformers_4_46_and_4_47_give_a_part_of_a_steps_loss_only_where_it_is_of_all_its_items(
    version: str, of_all_items: bool, parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Accelerator:
        def backward(self, loss: object) -> given.Loss:
            return known.loss_of(loss)

    class Trainer:
        def get_batch_samples(self) -> None: ...

        def training_step(self, _: object, loss: object, *__: object, **___: object) -> given.Loss:
            return Accelerator().backward(loss)

    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__=version))
    recorder, known = beside(Accelerator, Trainer, monkeypatch)
    items = 12 if of_all_items else None
    loss = object()
    for told in (
        Trainer().training_step(None, loss, items),
        Trainer().training_step(None, loss, num_items_in_batch=items),
    ):
        assert told == (loss, parts, None)
    recorder.patches.undo()
