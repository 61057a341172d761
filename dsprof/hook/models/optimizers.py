"""Ends the steps of a model without an engine when its optimizers, one or several, have stepped."""

from __future__ import annotations

import importlib
import weakref
from functools import partial
from time import perf_counter_ns as now
from typing import Any

from dsprof.hook.byid import ById
from dsprof.hook.models.finding import most_trained
from dsprof.hook.models.given import scaler
from dsprof.hook.models.metrics import number
from dsprof.hook.models.parts import Parts, nothing, unless_compiling
from dsprof.hook.models.stepping import take_off
from dsprof.hook.recorder import Recorder


class Steps:
    """Ends the steps of one model.

    If there are several optimizers, a step ends with the same one that ended the step before. If
    that one does not step this time, the step ends where the next forward begins. If optimizers
    step inside backward, each for a part of the model, the step ends with backward.

    A gradient scaler leaves an optimizer's step out if gradients overflowed. That also ends our
    step, which counts as skipped if none of the optimizers stepped in it.
    """

    def __init__(self, parts: Parts, optimizer: Any) -> None:
        self.parts, self.backward = parts, parts.recorder.backward
        self._told = weakref.ref(optimizer)  # the one whose learning rate is recorded
        self._last = id(optimizer)  # the optimizer whose step ends ours
        self._pending = 0  # id of another one that stepped last and may have ended the step
        self._enders: dict[int, int] = {}  # id of each that has ended a step → its number
        self._begun = False  # a forward or backward has run since the last step ended
        self._learned = False  # an optimizer has stepped since then
        self._skipped: int | None = None  # skipped steps; None without a scaler that may skip
        self._scale: Any = None  # loss scale of this step
        parts.forward_begins = self._forward
        self.add(optimizer)

    def add(self, optimizer: Any) -> None:
        """Add an optimizer that trains the model."""
        self.backward.optimizers.known[optimizer] = self
        self.parts.optimizer(optimizer, "step", self._stepped)

    def trains_by(self, optimizer: Any) -> bool:
        """Whether this optimizer is one of those that train the model."""
        known = self.backward.optimizers.known
        return optimizer in known and known[optimizer] is self

    def _stepped(self, optimizer: Any) -> None:
        self._learned, self.backward.optimizers.stepped = True, now()
        self.made(optimizer)

    def scales(self, scale: Any, *, tells: bool) -> None:
        """A gradient scaler handles one of our optimizers. `tells`: it skips the optimizer's step
        if gradients overflowed, so skipped steps can be counted.
        """
        self._scale = scale
        if tells and self._skipped is None:
            self._skipped = 0

    def made(self, optimizer: Any) -> None:
        """`optimizer` has stepped, or a scaler skipped its step."""
        if self.parts.timeline.is_open(self.parts.backward):
            if self.close not in self.backward.ending:
                self.backward.ending.append(self.close)
            return
        one = id(optimizer)
        if one in {self._last, self._pending}:
            self._last = one
            self.close()
        elif self._begun:
            self._pending = one
            self.parts.forward_begins = self._forward
        else:  # it steps after a step has ended, so the next step ends with it
            self._last, self._learned = one, False

    def _forward(self) -> None:
        """The first forward of a step, or one after an optimizer that may have ended the step."""
        if self._pending:
            self._last = self._pending
            self.close()
        self.backward.forget_told()
        self._begun, self.parts.forward_begins = True, None

    def backward_begins(self) -> None:
        """A backward begins. It is the first that is seen of a step if the loop calls only parts of
        the model.
        """
        self._begun = self._begun or not self._pending

    def close(self) -> None:
        if self._skipped is not None and not self._learned:
            self._skipped += 1
        if not self.parts.first_went_unseen():
            self._tell()
        self._pending, self._begun = 0, False
        self._learned, self._scale = False, None
        self.parts.forward_begins = self._forward

    def _tell(self) -> None:
        parts, step = self.parts, self.parts.track.step
        self.backward.tell(parts)
        parts.metrics.write(step, self._told())
        enders = self._enders
        parts.metrics.tell_optimizer(step, enders.setdefault(self._last, len(enders)))
        if self._scale is not None or self._skipped is not None:
            parts.metrics.scaling(step, self._scale, self._skipped)
        parts.timeline.close_step(parts.track, step)


class Optimizers:
    """Finds further optimizers that train a recorded model, and steps that a gradient scaler skips.

    What the scaler decides by may be in device memory and is not read. The optimizer's hooks tell
    instead: they run only if it steps.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.models = recorder.models
        self.known = ById()  # optimizer → its `Steps`; None if it trains no recorded model
        self.stepped = 0  # ns; when one of them stepped last
        hooks = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its name
        known, guard = self.known, recorder.guard
        look = guard(self._look)

        def stepping(optimizer: Any, *_: Any) -> None:
            if optimizer not in known:
                look(optimizer)

        hook = hooks.register_optimizer_step_pre_hook(unless_compiling(nothing, stepping))
        recorder.patches.undo_with(partial(take_off, hook))
        self._scaled: tuple[Steps, Any, int] | None = None  # optimizer in a scaler's hands; since
        around = (self._scales, nothing, self._has_scaled)
        recorder.patches.of_class(scaler(), "step", lambda raw: guard.around(raw, *around))

    def _look(self, optimizer: Any) -> None:
        """Find out which model an optimizer trains. Runs before the optimizer's own hooks, which
        this may register.
        """
        self.known[optimizer] = None
        models = {parts.model(): parts for parts in self.models.values()}
        model = most_trained(optimizer, models.keys() - {None})
        if model is not None:
            models[model].steps.add(optimizer)

    def _scales(self, args: Any, kwargs: Any) -> None:
        self._scaled = None
        scaler, optimizer = args[0], args[1] if len(args) > 1 else kwargs.get("optimizer")
        if not (_tells(optimizer) and scaler.is_enabled()):
            return
        if optimizer not in self.known:
            self._look(optimizer)
        steps: Steps | None = self.known[optimizer]
        if steps is not None and steps.parts.track in self.models:
            may_skip = not getattr(optimizer, "_step_supports_amp_scaling", False)
            scale = number(scaler._get_scale_async())  # noqa: SLF001 - `get_scale` would wait
            steps.scales(scale, tells=may_skip)
            if may_skip:
                self._scaled = steps, optimizer, now()

    def _has_scaled(self, _: Any) -> None:
        """If no optimizer has stepped since the scaler's call began, the scaler skipped the
        step.
        """
        if self._scaled is not None:
            (steps, optimizer, since), self._scaled = self._scaled, None
            if self.stepped < since:
                steps.made(optimizer)


def _tells(optimizer: Any) -> bool:
    """Whether the optimizer's hooks run when it steps; a compiled `step` may not contain them."""
    is_compiled = hasattr(getattr(optimizer, "step", None), "_torchdynamo_orig_callable")
    return not is_compiled and hasattr(getattr(type(optimizer), "step", None), "hooked")
