"""Metrics of a step: loss, learning rate, gradient norm, loss scale, skipped steps.

Numbers in device memory are not recorded, because reading them would make the host wait.
"""

from __future__ import annotations

import math
import weakref
from time import perf_counter_ns as now
from typing import Any, Final

from dsprof.hook.models.outputs import held
from dsprof.hook.spans import Timeline, Track
from dsprof.recording import RowKind

_METRIC: Final = int(RowKind.METRIC)
_MOST: Final = 1024  # losses of one step that are recognized when backward begins at them


class Metrics:
    """Collects metrics over the micro-batches of a step and writes them when the step ends."""

    def __init__(self, timeline: Timeline, track: Track, *, scaled: bool) -> None:
        from torch import Tensor
        from torch._C._functorch import is_functorch_wrapped_tensor
        from torch._subclasses import FakeTensor

        self._is_of_a_transform, self._fake = is_functorch_wrapped_tensor, FakeTensor
        self._plain = Tensor
        self.track = track
        self.scaled = scaled  # fp16: the loss is scaled, and steps can be skipped
        self.losses: list[float] = []
        self._over = 0  # number of losses that belong to micro-batches that have ended
        self.given = False  # an engine or library gives the loss, so outputs are not examined
        self.returned = False  # the model returned its loss in this step
        self._given_out: list[weakref.ref[Any]] = []  # the tensors of `losses`, if returned
        self._learned: list[int] = []  # indices of those at which a backward began
        self._all_known = True  # each backward began at one of them
        self.aside = False  # the optimizer reevaluates its closure: not a loss of the step
        self._doubted = False  # some of this step's losses may be another model's, or divided
        self.parts = False  # the losses are already divided by the step's micro-batches
        self._divisors: list[float] = []  # what the loop divided each loss by; NaN if unknown
        self._accumulation = 0  # what it divided by where a step had just as many losses
        self._kept: tuple[int, float, int, int] = (0, 0.0, 0, 0)  # state when backward began
        self._writer = writer = timeline.writer
        self._values = writer.values
        self._loss, self._lr, self._grad_norm, self._loss_scale, self._skipped = map(
            writer.name, ("loss", "lr", "grad_norm", "loss_scale", "skipped")
        )

    def output(self, result: Any) -> None:
        """Take the loss from what a model returned; used unless an engine or library gives it.

        A tensor with one element but with dimensions may be the output for a batch of one sample;
        it counts only if it is named as the loss. If other backwards of the step began at losses
        that were not returned, those may have been divided.
        """
        loss = loss_in(result)
        is_named = loss is not result and not isinstance(result, tuple)
        if held(loss, "requires_grad") and (is_named or not loss.dim()):
            before = len(self.losses)
            self._doubted = self._doubted or (before > 0 and not self.returned)
            self.add(loss)
            self.returned = self.returned or len(self.losses) > before
            if before == len(self._given_out) < min(len(self.losses), _MOST):
                self._given_out.append(weakref.ref(loss))

    def backward_of(self, start: Any, divisor: float | None) -> None:
        """Take the tensor at which `backward` begins as the loss, unless the model returned one:
        by then the loop may have divided it by the number of micro-batches.

        If a library gives its own loss, `start` is only part of how that is computed, as where a
        contrastive loss caches its gradients.
        """
        self._keep()
        if self.returned and not self.aside:
            self._begins_at(start)
        if not (self.given or self.returned or self.aside):
            self.add(start)
            if divisor is not None:
                self._divisors.append(divisor)

    def _begins_at(self, start: Any) -> None:
        """Note which returned loss a backward begins at. A loss at which none begins is not learned
        from: it is that of an evaluation with gradients.

        If a backward begins at a tensor that the loop computed, as from several losses, nothing is
        known about which of them count.
        """
        places = (place for place, one in enumerate(self._given_out) if one() is start)
        place = next(places, -1)
        self._all_known = self._all_known and place >= 0
        if place not in self._learned:
            self._learned.append(place)

    def _learns_from(self) -> list[float]:
        known = self.returned and self._all_known and bool(self._learned)
        return [self.losses[place] for place in self._learned] if known else self.losses

    def give(self, loss: Any, *, part: bool, again: bool = False) -> None:
        """Take the loss that the loop passed to an engine or library, such as accelerate; from then
        on, what the model returns is ignored.

        Args:
            loss: a tensor.
            part: it is already divided by the step's micro-batches.
            again: it is a further loss of the same micro-batch, whose loss is their sum.
        """
        if not self.given:
            self.losses.clear()
        self.given, self.parts = True, part
        self._keep()
        before = len(self.losses)
        self.add(loss)
        if again and self._over < before < len(self.losses):
            self.losses[-2:] = [sum(self.losses[-2:])]

    def _keep(self) -> None:
        losses = self.losses
        self._kept = (
            len(losses), losses[-1] if losses else 0.0, len(self._divisors), len(self._learned)
        )  # fmt: skip

    def take_back(self) -> None:
        """Drop the loss of a backward that an exception ended, if training goes on."""
        many, last, divisors, learned = self._kept
        del self._learned[learned:]
        del self.losses[many:], self._divisors[divisors:]
        if self.returned and not self.given:
            del self.losses[-1:]  # the one that the forward returned
        elif self.losses:
            self.losses[-1] = last
        del self._given_out[len(self.losses) :]

    def doubt(self) -> None:
        """A second model was found: losses so far may be those of that model."""
        self._doubted = bool(self.losses) and not self.returned

    def micro_batch_ends(self) -> None:
        """Losses from now on belong to the next micro-batch."""
        self._over = len(self.losses)

    def add(self, loss: Any) -> None:
        """Add the loss of one micro-batch, if it is in host memory."""
        if self.aside:
            return
        if getattr(loss, "is_cpu", False) and loss.numel() == 1 and self._is_a_number(loss):
            self.losses.append(float(loss.item()))

    def _is_a_number(self, loss: Any) -> bool:
        """Whether a tensor holds one known number.

        It does not under `vmap` (it stands for many), while shapes are traced (a FakeTensor), if it
        is complex, or this rank's shard of a DTensor, whose value would need communication.
        """
        if self._is_of_a_transform(loss) or isinstance(loss, self._fake) or loss.is_complex():
            return False
        if type(loss) is self._plain:  # shortcut, because the check below is slow
            return True
        return all(place.is_replicate() for place in getattr(loss, "placements", ()))

    def write(self, step: int, optimizer: Any, grad_norm: Any = None, skipped: Any = None) -> None:
        """A step has ended: write its metrics, and forget its losses."""
        begin = now()
        self._put(self._loss, self._loss_of_step(), step, begin)
        self._forget_losses()
        self._put(self._lr, learning_rate(optimizer), step, begin)
        self._put(self._grad_norm, grad_norm, step, begin)
        if self.scaled:
            self.scaling(step, loss_scale(optimizer), skipped)

    def _loss_of_step(self) -> float | None:
        losses = self._learns_from()
        unknown = len(losses) > 1 and any(map(math.isnan, self._divisors))
        if not losses or unknown or self._doubted:
            return None
        return sum(losses) / self._whole_losses(losses)

    def _forget_losses(self) -> None:
        self.losses.clear()
        self._given_out.clear()
        self._learned.clear()
        self._divisors.clear()
        self._over = 0
        self._all_known = True
        self.returned = self._doubted = False

    def _whole_losses(self, losses: list[float]) -> float:
        """How many whole losses the losses of a step make up.

        A shorter step, as the last one of an epoch, has parts of the same size as the others.
        """
        many = len(losses)
        if self.parts:
            return 1
        if self._divisors == [many] * many:
            self._accumulation = many
        are_parts = self._divisors == [self._accumulation] * many
        return many / self._accumulation if are_parts else many

    def tell_samples(self, step: int, samples: int) -> None:
        """Record the samples of a step, over all ranks, if they differ from the configuration."""
        self._put(self._writer.name("global_batch_size"), float(samples), step, now())

    def tell_optimizer(self, step: int, index: int) -> None:
        """Record which optimizer of the model ended the step, if it was not the one (0) that ended
        the first of all."""
        if index:
            self._put(self._writer.name("optimizer_index"), float(index), step, now())

    def scaling(self, step: int, scale: Any, skipped: Any) -> None:
        """Record the loss scale, and the number of steps skipped so far."""
        at = now()
        self._put(self._loss_scale, scale, step, at)
        self._put(self._skipped, skipped, step, at)

    def _put(self, name: int, value: Any, step: int, at: int) -> None:
        read = value if type(value) is float else number(value)
        if read is not None:
            self._values.append((_METRIC, 0, self.track.number, name, step, 0, at, read))


def loss_in(result: Any) -> Any:
    """The loss in what a model returned: the attribute or key `loss`; in a tuple the only scalar
    with gradients, else the first element. Any other result is returned as it is.
    """
    if isinstance(result, dict):  # such as a ModelOutput of transformers
        return result.get("loss")
    if isinstance(result, tuple):
        learned = [one for one in result if held(one, "requires_grad")]
        numbers = [one for one in learned if one.numel() == 1]
        if len(numbers) == 1:
            return numbers[0]
        return result[0] if result else None
    return held(result, "loss", result)


def number(value: Any) -> float | None:
    """The value of a Python number or of a one-element tensor in host memory; else None."""
    if value is None or not getattr(value, "is_cpu", True):
        return None
    return float(value.item() if hasattr(value, "item") else value)  # `item` is faster


def learning_rate(optimizer: Any) -> Any:
    groups = getattr(optimizer, "param_groups", None)
    return groups[0].get("lr") if groups else None


def loss_scale(optimizer: Any) -> Any:
    """The loss scale of DeepSpeed's fp16 optimizers. Without ZeRO, new versions keep it in
    `loss_scale_config`.
    """
    return getattr(getattr(optimizer, "loss_scale_config", optimizer), "cur_scale", None)
