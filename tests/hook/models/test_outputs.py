"""What may be asked of whatever a model returned."""

from __future__ import annotations

import io
import warnings
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsprof.hook.attach import attach
from dsprof.hook.models.outputs import held, tensors_in
from tests.hook.rows import folder


class Computes:
    """Has a loss only where it is asked for it, and then another one each time."""

    def __init__(self, logits: Any) -> None:
        self.logits = logits

    @property
    def loss(self) -> Any:
        from torch.nn.functional import dropout

        return dropout(self.logits, 0.5).sum()


class Cached(Computes):
    @cached_property
    def loss(self) -> Any:
        return Computes(self.logits).loss


class Named:
    """Holds by name, and says of any other that there is no such key."""

    def __init__(self, logits: Any) -> None:
        self.__dict__["_held"] = {"logits": logits}

    def __getattr__(self, name: str) -> Any:
        return self._held[name]


def test_of_an_object_only_what_it_holds_is_asked() -> None:
    nobody = SimpleNamespace(loss=2)
    assert (held(nobody, "loss"), held(nobody, "logits", 3)) == (2, 3)
    assert held(Named(4), "logits") == 4
    assert held(Named(4), "loss", 5) == 5
    assert list(tensors_in(Named(4))) == []


@pytest.mark.parametrize("kind", [Computes, Cached, Named])
def test_a_model_that_returns_an_object_of_its_own_trains_as_ever_and_is_recorded(
    tmp_path: Path, kind: type
) -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, batch: Any) -> Any:
            return kind(super().forward(batch))

    def train(*, watched: bool) -> list[float]:
        torch.manual_seed(0)
        model, losses = Model(2, 8), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = attach(model, optimizer=optimizer, out=tmp_path) if watched else None
        for _ in range(3):
            output = model(torch.ones(2))
            loss = output.logits.square().sum() if kind is Named else output.loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if handle:
            handle.detach()
        return losses

    losses = train(watched=True)
    assert losses == train(watched=False)
    (rank,) = folder(tmp_path)
    assert list(rank.metric("loss").values()) == losses


def test_training_that_saves_what_a_model_returned_is_not_warned_of_our_hook(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    nets = [torch.nn.Linear(2, 1) for _ in range(2)]  # of several, outputs are watched
    handles = [
        attach(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), out=tmp_path)
        for net in nets
    ]
    output = nets[0](torch.ones(2))
    assert output._backward_hooks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(output, io.BytesIO())
    for handle in handles:
        handle.detach()
