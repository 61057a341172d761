"""What a model's recording keeps of what trained it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.hook.attach import _active, attach
from tests.hook.rows import folder


def test_of_optimizers_that_are_gone_nothing_is_kept_and_the_others_lose_their_hooks(
    tmp_path: Path,
) -> None:
    """A loop may make one a step."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    first = torch.optim.SGD(net.parameters(), lr=0.1)
    with attach(net, optimizer=first, out=tmp_path):
        (parts,) = _active.recorder.models.values()
        undone = len(parts.patches._undo._exit_callbacks)
        for _ in range(20):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(2)).backward()
            optimizer.step()
        assert len(parts._optimizer_steps) <= 3  # the first, and those of the last two steps
        assert len(parts.patches._undo._exit_callbacks) == undone
        assert first._optimizer_step_pre_hooks
        assert optimizer._optimizer_step_post_hooks
    for one in (first, optimizer):
        assert not one._optimizer_step_pre_hooks
        assert not one._optimizer_step_post_hooks


def test_the_step_of_an_optimizer_that_is_none_of_pytorch_s_ends_a_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)

    class Own:
        param_groups = ({"params": list(net.parameters()), "lr": 0.5},)

        def step(self) -> None:
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.sub_(0.5 * parameter.grad)

    optimizer = Own()
    with attach(net, optimizer=optimizer, out=tmp_path):
        for _ in range(3):
            net(torch.ones(2)).backward()
            optimizer.step()
    assert not vars(optimizer)
    (rank,) = folder(tmp_path)
    assert [row.step for row in rank.steps] == [1, 2, 3]
    assert [row.path for row in rank.spans] == 3 * ["forward", "backward", "step"]
    assert rank.metric("lr") == dict.fromkeys((1, 2, 3), 0.5)
