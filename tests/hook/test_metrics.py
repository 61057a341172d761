"""The loss in what a model returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsprof.hook.metrics import loss_in


@dataclass(frozen=True)
class Tensor:
    size: int
    requires_grad: bool = True

    def numel(self) -> int:
        return self.size


LOSS, LOGITS, NORM = Tensor(1), Tensor(64), Tensor(1, requires_grad=False)


def test_a_model_that_returns_its_loss_behind_its_logits_returns_its_loss() -> None:
    returned: tuple[Any, ...]
    for returned in ((LOGITS, LOSS), (LOSS, LOGITS), (LOGITS, NORM, LOSS), (None, LOSS, {})):
        assert loss_in(returned) is LOSS


def test_of_several_numbers_what_comes_first_is_looked_at() -> None:
    first = Tensor(1)
    assert loss_in((first, LOSS)) is first
    assert loss_in((LOGITS, first, LOSS)) is LOGITS
    assert loss_in(()) is None
