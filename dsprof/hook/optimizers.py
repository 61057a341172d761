"""When a step of a model without an engine ends: as its optimizers step, one or several."""

from __future__ import annotations

import importlib
import weakref
from time import perf_counter_ns as now
from typing import Any

from dsprof.hook.byid import ById
from dsprof.hook.finding import most_trained
from dsprof.hook.given import scaler
from dsprof.hook.metrics import number
from dsprof.hook.parts import Parts, nothing, unless_compiling
from dsprof.hook.recorder import Recorder


class Steps:
    """Ends the steps of one model.

    Of several optimizers the one ends a step that ended the one before. If it does not come this
    time, the step ends where the next forward begins. Optimizers that step inside backward, each
    for a part of the model, end it with backward. What a gradient scaler leaves out, because
    gradients overflowed, ends one as well: of a step in which no optimizer stepped, all were.
    """

    def __init__(self, parts: Parts, optimizer: Any) -> None:
        self.parts, self.backward = parts, parts.recorder.backward
        self._told = weakref.ref(optimizer)  # whose learning rate is told
        self._last = id(optimizer)  # whose step ends ours
        self._pending = 0  # who stepped since, and may be the last one
        self._begun = False  # a forward or backward has been since the last end
        self._learned = False  # an optimizer has stepped since then
        self._skipped: int | None = None  # steps in which none did, where a scaler leaves any out
        self._scale: Any = None  # by which a scaler multiplied this step's loss
        parts.forward_begins = self._forward
        self.add(optimizer)

    def add(self, optimizer: Any) -> None:
        """One that trains the model."""
        self.backward.optimizers.known[optimizer] = self
        self.parts.optimizer(optimizer, "step", self._stepped)

    def _stepped(self, optimizer: Any) -> None:
        self._learned, self.backward.optimizers.stepped = True, now()
        self.made(optimizer)

    def scales(self, scale: Any, *, tells: bool) -> None:
        """A scaler steps one of our optimizers; `tells`: it does not where gradients overflowed."""
        self._scale = scale
        if tells and self._skipped is None:
            self._skipped = 0

    def made(self, optimizer: Any) -> None:
        """That one has stepped, or a scaler left it out."""
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
        else:  # behind an end: the next one is its
            self._last, self._learned = one, False

    def _forward(self) -> None:
        """The first forward of a step, or behind what may have been its last optimizer."""
        if self._pending:
            self._last = self._pending
            self.close()
        self.backward.forget_told()
        self._begun, self.parts.forward_begins = True, None

    def backward_begins(self) -> None:
        """What is seen first of a step of a model that is not called as a whole."""
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
        if self._scale is not None or self._skipped is not None:
            parts.metrics.scaling(step, self._scale, self._skipped)
        parts.timeline.close_step(parts.track, step)


class Optimizers:
    """Those that nobody named, and that train a model which is recorded; and those that a
    gradient scaler steps, or leaves out.

    Whether it did nobody tells: what it looked at may lie on a device. The optimizer's hooks do,
    which run where it steps.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.models = recorder.models
        self.known = ById()  # the `Steps` of an optimizer; None of one that trains no model of ours
        self.stepped = 0  # when one did
        hooks = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its name
        known, guard = self.known, recorder.guard
        look = guard(self._look)

        def stepping(optimizer: Any, *_: Any) -> None:
            if optimizer not in known:
                look(optimizer)

        hook = hooks.register_optimizer_step_pre_hook(unless_compiling(nothing, stepping))
        recorder.patches.undo_with(hook.remove)
        self._scaled: tuple[Steps, Any, int] | None = None  # whose optimizer a scaler steps, when
        around = (self._scales, nothing, self._has_scaled)
        recorder.patches.of_class(scaler(), "step", lambda raw: guard.around(raw, *around))

    def _look(self, optimizer: Any) -> None:
        """Before the hooks of its own, which it may have from here on."""
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
        """Its optimizer did not step meanwhile, nor any inside it: the scaler left it out."""
        if self._scaled is not None:
            (steps, optimizer, since), self._scaled = self._scaled, None
            if self.stepped < since:
                steps.made(optimizer)


def _tells(optimizer: Any) -> bool:
    """Whether its hooks run where it steps: they may be no part of what `step` is compiled to."""
    is_compiled = hasattr(getattr(optimizer, "step", None), "_torchdynamo_orig_callable")
    return not is_compiled and hasattr(getattr(type(optimizer), "step", None), "hooked")
