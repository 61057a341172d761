"""What a model's recording keeps of what trained it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.hook.attach import _active, attach


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
