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
        self.losses: list[Any] = []
        self.output_loss: Any = None
        names = ("loss", "lr", "grad_norm", "loss_scale", "skipped")
        self.names = {name: writer.name(name) for name in names}

    def output(self, result: Any) -> None:
        """A model that returns its loss; used where backward does not pass through us."""
        loss = getattr(result, "loss", result)
        self.output_loss = loss.detach() if _is_scalar(loss) else None

    def loss(self, loss: Any) -> None:
        """The loss of one micro-batch, as given to backward."""
        if _is_scalar(loss):
            self.losses.append(loss.detach())

    def write(self, step: int, optimizer: Any, grad_norm: Any = None, skipped: Any = None) -> None:
        """A step closed: write what is known of it, and forget its losses."""
        losses, self.losses = self.losses or [self.output_loss], []
        values = [value for loss in losses if (value := number(loss)) is not None]
        if values:
            self._metric("loss", sum(values) / len(values), step)
        self._metric("lr", learning_rate(optimizer), step)
        self._metric("grad_norm", grad_norm, step)
        if self.scaled:
            self._metric("loss_scale", getattr(optimizer, "cur_scale", None), step)
            self._metric("skipped", skipped, step)

    def _metric(self, name: str, value: Any, step: int) -> None:
        known = number(value)
        if known is not None:
            self.writer.metric(self.names[name], known, step, engine=self.track.number)


def number(value: Any) -> float | None:
    """A Python number, or a tensor of one that lies in host memory."""
    if value is None or getattr(value, "is_cpu", True):
        return None if value is None else float(value)
    return None


def learning_rate(optimizer: Any) -> Any:
    groups = getattr(optimizer, "param_groups", None)
    return groups[0].get("lr") if groups else None


def _is_scalar(value: Any) -> bool:
    return getattr(value, "numel", None) is not None and value.numel() == 1
