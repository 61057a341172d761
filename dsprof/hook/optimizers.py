"""When a step of a model without an engine ends: as its optimizers step, one or several."""

from __future__ import annotations

import importlib
import weakref
from typing import Any

from dsprof.hook.finding import most_trained
from dsprof.hook.parts import Parts
from dsprof.hook.recorder import Recorder


class Steps:
    """Ends the steps of one model.

    Of several optimizers the one ends a step that ended the one before. If it does not come this
    time, the step ends where the next forward begins. Optimizers that step inside backward, each
    for a part of the model, end it with backward.
    """

    def __init__(self, parts: Parts, optimizer: Any) -> None:
        self.parts, self.backward = parts, parts.recorder.backward
        self._told = weakref.ref(optimizer)  # whose learning rate is told
        self._last = id(optimizer)  # whose step ends ours
        self._pending = 0  # who stepped since, and may be the last one
        self._begun = False  # a forward has been since the last end
        parts.forward_begins = self._forward
        self.add(optimizer)

    def add(self, optimizer: Any) -> None:
        """One that trains the model."""
        self.backward.optimizers.known.add(optimizer)
        self.parts.optimizer(optimizer, "step", self._stepped)

    def _stepped(self, optimizer: Any) -> None:
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
            self._last = one

    def _forward(self) -> None:
        """The first forward of a step, or behind what may have been its last optimizer."""
        if self._pending:
            self._last = self._pending
            self.close()
        self.backward.forget_told()
        self._begun, self.parts.forward_begins = True, None

    def close(self) -> None:
        parts = self.parts
        self.backward.tell(parts)
        parts.metrics.write(parts.track.step, self._told())
        parts.timeline.close_step(parts.track, parts.track.step)
        self._pending, self._begun = 0, False
        parts.forward_begins = self._forward


class Optimizers:
    """Those that nobody named, and that train a model which is recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self.models = recorder.models
        self.known: weakref.WeakSet[Any] = weakref.WeakSet()
        hooks = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its name
        known, look = self.known, recorder.guard(self._look)

        def stepping(optimizer: Any, *_: Any) -> None:
            if optimizer not in known:
                look(optimizer)

        hook = hooks.register_optimizer_step_pre_hook(stepping)
        recorder.patches.undo_with(hook.remove)

    def _look(self, optimizer: Any) -> None:
        """Before the hooks of its own, which it may have from here on."""
        self.known.add(optimizer)
        models = {parts.model(): parts for parts in self.models.values()}
        model = most_trained(optimizer, models.keys() - {None})
        if model is not None:
            models[model].steps.add(optimizer)
