"""What the engine knows of a step: loss, learning rate, gradient norm, loss scale, skips.

Nothing is copied from a device: a number that lives there is not recorded, for reading it
would make the host wait.
"""

from __future__ import annotations

import math
import sys
import weakref
from time import perf_counter_ns as now
from typing import Any, Final

from dsprof.hook.spans import Timeline, Track
from dsprof.recording import RowKind

_METRIC: Final = int(RowKind.METRIC)
_MOST: Final = 1024  # losses of one step that are known again


class Failing:
    """Whether an exception ended what began: asked in its `finally`. Another one may be under way
    all the while, as where training goes on in an `except`."""

    def __init__(self) -> None:
        self._during: BaseException | None = None

    def begins(self) -> None:
        self._during = sys.exc_info()[1]

    def failed(self) -> bool:
        return sys.exc_info()[1] is not self._during


class Metrics:
    """Collects over the micro-batches of a step, written when it closes."""

    def __init__(self, timeline: Timeline, track: Track, *, scaled: bool) -> None:
        from torch import Tensor
        from torch._C._functorch import is_functorch_wrapped_tensor
        from torch._subclasses import FakeTensor

        self._is_of_a_transform, self._fake = is_functorch_wrapped_tensor, FakeTensor
        self._plain = Tensor
        self.track = track
        self.scaled = scaled  # fp16: the loss is scaled, and steps can be skipped
        self.losses: list[float] = []
        self._over = 0  # of them, those of micro-batches that are over
        self.given = False  # backward passes through us, so outputs need no look
        self.returned = False  # in this step the model returned its loss
        self._given_out: list[weakref.ref[Any]] = []  # what it returned, in the order of `losses`
        self._learned: list[int] = []  # of these, where backward began
        self._all_known = True  # each backward began at one of these
        self.aside = False  # an optimizer tries its closure again: no loss of the step's
        self._doubted = False  # of this step's losses some may be another model's
        self.parts = False  # the losses are parts of the step's, divided by its micro-batches
        self._divisors: list[float] = []  # by what the loop divided each last; NaN unknown
        self._kept: tuple[int, float, int, int] = (0, 0.0, 0, 0)  # as the backward under way began
        self._writer = writer = timeline.writer
        self._values = writer.values
        self._loss, self._lr, self._grad_norm, self._loss_scale, self._skipped = map(
            writer.name, ("loss", "lr", "grad_norm", "loss_scale", "skipped")
        )

    def output(self, result: Any) -> None:
        """A model that returns its loss; used where backward does not pass through us.

        One number in dimensions is what it gives for a batch of one sample, unless it is named.
        """
        loss = loss_in(result)
        is_named = loss is not result and not isinstance(result, tuple)
        if getattr(loss, "requires_grad", False) and (is_named or not loss.dim()):
            before = len(self.losses)
            self.add(loss)
            self.returned = self.returned or len(self.losses) > before
            if before == len(self._given_out) < min(len(self.losses), _MOST):
                self._given_out.append(weakref.ref(loss))

    def backward_of(self, start: Any, divisor: float | None) -> None:
        """What `backward` begins at is the loss, unless the model returned one: it may be
        divided by the micro-batches by then. Beside a library that gives its own it is part of
        how that is computed, as where a contrastive loss caches its gradients."""
        self._keep()
        if self.returned and not self.aside:
            self._begins_at(start)
        if not (self.given or self.returned or self.aside):
            self.add(start)
            if divisor is not None:
                self._divisors.append(divisor)

    def _begins_at(self, start: Any) -> None:
        """What the model returned and no backward begins at, it does not learn from: an evaluation
        with gradients. A loss that the loop made of it, as of several, says nothing of that."""
        places = (place for place, one in enumerate(self._given_out) if one() is start)
        place = next(places, -1)
        self._all_known = self._all_known and place >= 0
        if place not in self._learned:
            self._learned.append(place)

    def _learns_from(self) -> list[float]:
        known = self.returned and self._all_known and bool(self._learned)
        return [self.losses[place] for place in self._learned] if known else self.losses

    def give(self, loss: Any, *, part: bool, again: bool = False) -> None:
        """Backward passes through us: what the model returned until here is not asked any more.

        `again`: it is one more of a micro-batch's losses, which learns from their sum.
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
        """An exception ended that backward, and training survived: its loss is no step's."""
        many, last, divisors, learned = self._kept
        del self._learned[learned:]
        del self.losses[many:], self._divisors[divisors:]
        if self.returned and not self.given:
            del self.losses[-1:]  # what its forward returned
        elif self.losses:
            self.losses[-1] = last
        del self._given_out[len(self.losses) :]

    def doubt(self) -> None:
        """A second model was found: what backward began at until here may have been its loss."""
        self._doubted = bool(self.losses) and not self.returned

    def micro_batch_ends(self) -> None:
        """What is given from here on is another one's."""
        self._over = len(self.losses)

    def add(self, loss: Any) -> None:
        """One micro-batch's loss, where it lies in host memory."""
        if self.aside:
            return
        if getattr(loss, "is_cpu", False) and loss.numel() == 1 and self._is_a_number(loss):
            self.losses.append(float(loss.item()))

    def _is_a_number(self, loss: Any) -> bool:
        """Not what stands for many, as under `vmap`, or for none, as where shapes are traced; nor
        this rank's share of what several have, for whose whole all would have to be asked."""
        if self._is_of_a_transform(loss) or isinstance(loss, self._fake):
            return False
        if type(loss) is self._plain:  # the question below takes long
            return True
        return all(place.is_replicate() for place in getattr(loss, "placements", ()))

    def write(self, step: int, optimizer: Any, grad_norm: Any = None, skipped: Any = None) -> None:
        """A step closed: write what is known of it, and forget its losses."""
        begin = now()
        losses = self._learns_from()
        are_parts = self.parts or self._divisors == [len(losses)] * len(losses)
        nobody_knows = len(losses) > 1 and any(map(math.isnan, self._divisors))
        nobody_knows = nobody_knows or self._doubted
        if losses and not nobody_knows:
            self._put(self._loss, sum(losses) / (1 if are_parts else len(losses)), step, begin)
        self.losses.clear()
        self._given_out.clear()
        self._learned.clear()
        self._all_known = True
        self.returned = self._doubted = False
        self._over = 0
        self._divisors.clear()
        self._put(self._lr, learning_rate(optimizer), step, begin)
        if grad_norm is not None:
            self._put(self._grad_norm, grad_norm, step, begin)
        if self.scaled:
            self.scaling(step, loss_scale(optimizer), skipped)

    def tell_samples(self, step: int, samples: int) -> None:
        """Samples of that step, all ranks, which has others than configured."""
        self._put(self._writer.name("global_batch_size"), float(samples), step, now())

    def scaling(self, step: int, scale: Any, skipped: Any) -> None:
        """By what the loss was multiplied, and how many steps were skipped so far."""
        at = now()
        self._put(self._loss_scale, scale, step, at)
        self._put(self._skipped, skipped, step, at)

    def _put(self, name: int, value: Any, step: int, at: int) -> None:
        read = value if type(value) is float else number(value)
        if read is not None:
            self._values.append((_METRIC, 0, self.track.number, name, step, 0, at, read))


def loss_in(result: Any) -> Any:
    """What a model returned, or the loss in it: an attribute, a key, of several the only
    number that can be learned from, or what comes first."""
    if isinstance(result, dict):  # ModelOutput of transformers is one
        return result.get("loss")
    if isinstance(result, tuple):
        learned = [one for one in result if getattr(one, "requires_grad", False)]
        numbers = [one for one in learned if one.numel() == 1]
        if len(numbers) == 1:
            return numbers[0]
        return result[0] if result else None
    return getattr(result, "loss", result)


def number(value: Any) -> float | None:
    """A Python number, or a tensor of one that lies in host memory."""
    if value is None or not getattr(value, "is_cpu", True):
        return None
    return float(value.item() if hasattr(value, "item") else value)  # `item` is the quick way


def learning_rate(optimizer: Any) -> Any:
    groups = getattr(optimizer, "param_groups", None)
    return groups[0].get("lr") if groups else None


def loss_scale(optimizer: Any) -> Any:
    """Of a DeepSpeed optimizer for fp16. Without ZeRO newer ones keep it with their settings."""
    return getattr(getattr(optimizer, "loss_scale_config", optimizer), "cur_scale", None)
