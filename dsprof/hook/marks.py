"""What the engine knows of a step: loss, learning rate, gradient norm, loss scale, skips.

Nothing is copied from a device: a number that lives there is not recorded, for reading it
would make the host wait.
"""

from __future__ import annotations

from typing import Any

from dsprof.hook.spans import Track
from dsprof.recording import Writer


class Marks:
    """Collects over the micro-batches of a step, written when it closes."""

    def __init__(self, writer: Writer, track: Track, *, scaled: bool) -> None:
        self.writer, self.track = writer, track
        self.scaled = scaled  # fp16: the loss is scaled, and steps can be skipped
        self.losses: list[float] = []
        self.given = False  # backward passes through us, so outputs need no look
        names = ("loss", "lr", "grad_norm", "loss_scale", "skipped")
        self.names = {name: writer.name(name) for name in names}

    def output(self, result: Any) -> None:
        """A model that returns its loss; used where backward does not pass through us."""
        loss = loss_in(result)
        if not self.given and getattr(loss, "requires_grad", False):  # else it is evaluation
            self.add(loss)

    def loss(self, loss: Any) -> None:
        """The loss of one micro-batch, as given to backward."""
        self.given = True
        self.add(loss)

    def add(self, loss: Any) -> None:
        """One micro-batch's loss, where it lies in host memory."""
        value = scalar(loss)
        if value is not None:
            self.losses.append(value)

    def write(self, step: int, optimizer: Any, grad_norm: Any = None, skipped: Any = None) -> None:
        """A step closed: write what is known of it, and forget its losses."""
        losses, self.losses = self.losses, []
        mean = sum(losses) / len(losses) if losses else None
        self._metric("loss", mean, step)
        self._metric("lr", learning_rate(optimizer), step)
        self._metric("grad_norm", grad_norm, step)
        if self.scaled:
            self._metric("loss_scale", getattr(optimizer, "cur_scale", None), step)
            self._metric("skipped", skipped, step)

    def _metric(self, name: str, value: Any, step: int) -> None:
        known = number(value)
        if known is not None:
            self.writer.metric(self.names[name], known, step, engine=self.track.number)


def loss_in(result: Any) -> Any:
    """What a model returned, or the loss in it: an attribute, a key, or what comes first."""
    if isinstance(result, dict):  # ModelOutput of transformers is one
        return result.get("loss")
    if isinstance(result, tuple):
        return result[0] if result else None
    return getattr(result, "loss", result)


def number(value: Any) -> float | None:
    """A Python number, or a tensor of one that lies in host memory."""
    if value is None or getattr(value, "is_cpu", True):
        return None if value is None else float(value)
    return None


def learning_rate(optimizer: Any) -> Any:
    groups = getattr(optimizer, "param_groups", None)
    return groups[0].get("lr") if groups else None


def scalar(value: Any) -> float | None:
    """The number in a tensor of one element in host memory."""
    if getattr(value, "is_cpu", False) and value.numel() == 1:
        return float(value.detach())
    return None
