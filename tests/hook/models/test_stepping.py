"""Attaching and detaching by a hook that the training itself has put on its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dsprof.hook import Handle, attach
from dsprof.recording import RowKind, read_rows

torch = pytest.importorskip("torch")
every: Any = import_module("torch.optim.optimizer")  # torch.optim hides this name
STEPS, WHEN = 4, 2
WAYS = ("before", "after", "before any", "after any")


class Training:
    """Steps of a model, in one of which a hook acts that has neighbours on both sides."""

    def __init__(self, way: str) -> None:
        self.net = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.register = {
            "before": self.optimizer.register_step_pre_hook,
            "after": self.optimizer.register_step_post_hook,
            "before any": every.register_optimizer_step_pre_hook,
            "after any": every.register_optimizer_step_post_hook,
        }[way]
        self.act: Callable[[], Any] = lambda: None
        self.steps = 0
        self.hooks = [self.register(self._hook)]

    def _hook(self, *_: Any) -> None:
        if self.steps == WHEN:
            self.act()

    def run(self) -> None:
        self.hooks.append(self.register(lambda *_: None))
        for self.steps in range(1, STEPS + 1):
            self.net(torch.ones(2)).backward()
            self.optimizer.step()
        for hook in self.hooks:
            hook.remove()

    def attach(self, out: Path) -> Handle:
        return attach(self.net, optimizer=self.optimizer, out=out)

    def left(self) -> int:
        """The number of hooks that steps of the optimizer still call."""
        own = self.optimizer._optimizer_step_pre_hooks, self.optimizer._optimizer_step_post_hooks
        of_any = every._global_optimizer_pre_hooks, every._global_optimizer_post_hooks
        return sum(map(len, (*own, *of_any)))


def recorded(folder: Path, engine: int = 0) -> list[int]:
    rows = read_rows(RowKind.STEP, folder).to_pylist()
    return [row["step"] for row in rows if row["engine"] == engine]


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_of_the_optimizer_may_end_the_recording(tmp_path: Path, way: str) -> None:
    """PyTorch raises if a hook goes while it calls the others, which would end the training."""
    training = Training(way)
    handle = training.attach(tmp_path)
    training.act = handle.detach
    training.run()
    assert recorded(tmp_path)[0] == 1
    assert recorded(tmp_path)[-1] <= WHEN
    training.attach(tmp_path / "again").detach()
    assert training.left() == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_of_the_optimizer_may_end_one_recording_of_two(tmp_path: Path, way: str) -> None:
    training, other = Training(way), Training("before")
    handle, kept = training.attach(tmp_path), other.attach(tmp_path)
    training.act = handle.detach
    training.run()
    other.run()
    kept.detach()
    assert recorded(tmp_path)[-1] <= WHEN
    assert recorded(tmp_path, engine=1) == list(range(1, STEPS + 1))
    assert training.left() == other.left() == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("found", [True, False], ids=["found", "told"])
def test_a_hook_of_the_optimizer_that_asks_for_a_recording_gets_none_and_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str, found: bool
) -> None:
    training = Training(way)
    training.act = (lambda: attach(out=tmp_path)) if found else lambda: training.attach(tmp_path)
    training.run()
    (said,) = capsys.readouterr().err.splitlines()
    assert "in a hook of an optimizer" in said
    assert list(tmp_path.iterdir()) == []
    assert training.left() == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_of_the_optimizer_may_end_the_search_for_models(tmp_path: Path, way: str) -> None:
    training = Training(way)
    training.act = attach(out=tmp_path).detach
    training.run()
    attach(out=tmp_path).detach()
    assert training.left() == 0
