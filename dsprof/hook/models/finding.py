"""Find engines, models and optimizers automatically, in a training script that does not use dsprof.

Acts on `torch` and `deepspeed` once they have been imported, and imports neither itself.
"""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

from dsprof.hook.byid import ById
from dsprof.hook.guard import Guard
from dsprof.hook.models.stepping import take_off
from dsprof.hook.patches import Call, Patches
from dsprof.imports import when_imported


class Search:
    """Calls `found(target, optimizer, begins)` for each one found, and `lost()` when the search is
    undone. `begins`: a step of it has just ended, and what comes now is of its next one.
    """

    def __init__(
        self,
        found: Callable[[Any, Any, bool], None],
        lost: Callable[[], None],
        may_begin: Callable[[Any], bool] = lambda _: True,
        attached: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        """`may_begin(one)` says at the end of each step of an engine, or of an optimizer, whether
        it, or its model, may be found yet; `attached` gives what is recorded already, as the script
        may have asked for it itself.
        """
        self.found, self.lost, self.may_begin, self.attached = found, lost, may_begin, attached
        self.guard = Guard()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._wrappers: list[type] = []  # classes of such models
        self._searched = False  # for models whose making was not seen
        self._known = ById()  # optimizers that were already examined
        self._looked_at: weakref.WeakSet[Any] = weakref.WeakSet()  # engines
        self.trained = False  # an optimizer has stepped
        self._compiled_step: Any = None  # the optimizer that last stepped in a compiled function

    def start(self, patches: Patches) -> None:
        """Patch modules that are imported, and the others once they are. `patches` undoes all of
        it.
        """
        self.patches = patches
        for name, action in (
            ("deepspeed", self._engines),
            ("torch", self._torch),
            ("torch.distributed.fsdp", self._fsdp),
            ("torch.distributed._composable.fsdp", self._fsdp),  # `fully_shard` before PyTorch 2.6
        ):
            patches.undo_with(when_imported(name, self.guard(action)))
        self._earlier_engines(sys.modules.get("deepspeed"))
        patches.undo_with(self._over)

    def _over(self) -> None:
        """Find nothing more, also where somebody has wrapped a wrapper of ours, which stays."""
        self.guard.off = True
        self.lost()

    def _engines(self, deepspeed: ModuleType) -> None:
        """Find every engine that `deepspeed.initialize` returns."""
        found = self.guard(self._engine)

        def around(raw: Call) -> Call:
            def initialize(*args: Any, **kwargs: Any) -> Any:
                made = raw(*args, **kwargs)
                found(made)
                return made

            return initialize

        self.patches.method(deepspeed, "initialize", around)

    def _engine(self, made: Any) -> None:
        self._look_at(made[0], begins=False)

    def _look_at(self, engine: Any, *, begins: bool) -> None:
        """Find an engine, once: whoever detaches it does not want it found again."""
        self._searched = True  # an engine's optimizer trains no model that is worth a search
        if engine not in self._looked_at:
            self._looked_at.add(engine)
            self.found(engine, None, begins)

    def _earlier_engines(self, deepspeed: ModuleType | None) -> None:
        """Find engines that were made before the search, each at the end of its next step.

        If `deepspeed` is not imported yet there are none, and no class is patched.
        """

        def ended(engine: Any) -> None:
            if self.may_begin(engine):
                self._look_at(engine, begins=True)

        look = self.guard(ended)

        def around(raw: Call) -> Call:
            def ends_step(engine: Any, *args: Any, **kwargs: Any) -> Any:
                before = getattr(engine, "global_steps", None)
                result = raw(engine, *args, **kwargs)
                if getattr(engine, "global_steps", None) != before:  # not only a micro-batch
                    look(engine)
                return result

            return ends_step

        for kind, method in (("DeepSpeedEngine", "step"), ("PipelineEngine", "train_batch")):
            owner = getattr(deepspeed, kind, None)
            if owner is not None:
                self.patches.of_class(owner, method, around)

    def _wrapper(self, kind: type) -> None:
        """Find models that are wrapped in an object of this class.

        For DDP the constructor of its base class `Joinable` is patched: DDP's warnings name its
        caller, which would be our frame if DDP's own constructor were patched.
        """
        made = self.guard(self._models.add)
        self._wrappers.append(kind)
        base = next((one for one in kind.__mro__ if one.__name__ == "Joinable"), kind)

        def around(raw: Call) -> Call:
            def initialise(model: Any, *args: Any, **kwargs: Any) -> None:
                raw(model, *args, **kwargs)
                if isinstance(model, kind):
                    made(model)

            return initialise

        self.patches.of_class(base, "__init__", around)

    def _torch(self, torch: ModuleType) -> None:
        """Find models under DDP, and at each optimizer's first step the model that it trains."""
        from dsprof.hook.models.compiling import see_steps
        from dsprof.hook.models.parts import unless_compiling

        compiled, stepped = self.guard(self._compiled), self.guard(self._stepped)
        seen, look = self.guard(see_steps), self.guard(self._look)

        def compiling(raw: Call) -> Call:
            def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
                faster = raw(model, *args, **kwargs)
                compiled(model, faster)
                made = seen(model, faster, look)
                return faster if made is None else made

            return compile_

        self._wrapper(torch.nn.parallel.DistributedDataParallel)
        self.patches.method(torch, "compile", compiling)
        optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim hides this name
        hook = optimizers.register_optimizer_step_post_hook(
            unless_compiling(self._steps_compiled, stepped)
        )
        self.patches.undo_with(partial(take_off, hook))

    def _fsdp(self, fsdp: ModuleType) -> None:
        """Find models that `fully_shard` was called on or FSDP 1 wraps, including parts
        of models.
        """
        made = self.guard(self._sharded)

        def around(raw: Call) -> Call:
            def fully_shard(*args: Any, **kwargs: Any) -> Any:
                sharded = raw(*args, **kwargs)
                made(args[0] if args else kwargs.get("module"))
                return sharded

            return fully_shard

        if hasattr(fsdp, "FullyShardedDataParallel"):
            self._wrapper(fsdp.FullyShardedDataParallel)
        if hasattr(fsdp, "FSDPModule"):
            self._wrappers.append(fsdp.FSDPModule)
        if hasattr(fsdp, "fully_shard"):
            self.patches.method(fsdp, "fully_shard", around)

    def _sharded(self, given: Any) -> None:
        """Note the model that was sharded. If a list of modules was, none of them is a
        whole model.
        """
        if hasattr(given, "parameters"):
            self._models.add(given)

    def _compiled(self, model: Any, faster: Any) -> None:
        """A compiled model replaces the original, because it runs in its place."""
        if hasattr(faster, "_orig_mod") and model in self._models:
            self._models.discard(model)
            self._models.add(faster)

    def _steps_compiled(self, optimizer: Any, *_: Any) -> None:
        """Note the optimizer only. This runs inside the compiled step; `_look` runs after it,
        uncompiled.
        """
        self._compiled_step = optimizer

    def _look(self) -> None:
        optimizer, self._compiled_step = self._compiled_step, None
        if optimizer is not None:
            self._stepped(optimizer)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """At an optimizer's first step, or the first at which it may begin, record the model that
        holds most of its parameters.

        A model that only shares some of its weights with it belongs to another optimizer.
        """
        if optimizer in self._known:
            return
        self.trained = True
        if not self.may_begin(optimizer):
            return
        self._known[optimizer] = True
        model = most_trained(optimizer, list(self._models))
        if model is None and _hold_most(self.attached(), optimizer):
            return
        if model is None and not self._searched and _has_peers():
            self._searched = True
            self._models.update(instances(*self._wrappers))
            for faster in instances(*_compiled_kinds()):
                self._compiled(faster._orig_mod, faster)  # noqa: SLF001
            model = most_trained(optimizer, list(self._models))
        if model is not None:
            begins = _holds_all(model, self._models)  # else the next backward may be of another
            _behind_backward(self.guard(partial(self.found, model, optimizer, begins)))


def _compiled_kinds() -> list[type]:
    """The class of models that `torch.compile` made, if it is loaded."""
    kind = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    return [kind] if isinstance(kind, type) else []


def _has_peers() -> bool:
    """Whether ranks are connected: before that no model is under DDP or FSDP."""
    distributed = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def instances(*kinds: type) -> list[Any]:
    """All objects of these classes, whenever they were made. Looking through all objects of a
    process takes 0.1 s.
    """
    return [one for one in gc.get_objects() if issubclass(type(one), kinds)]


def _behind_backward(action: Callable[[], None]) -> None:
    """Act now, or, where optimizers step inside backward, once it is over: the other steps of
    this backward are of no step that is recorded.
    """
    import torch

    if torch._C._current_graph_task_id() < 0:  # noqa: SLF001
        action()
    else:
        torch.autograd.Variable._execution_engine.queue_callback(action)  # noqa: SLF001


def _holds_all(model: Any, models: Iterable[Any]) -> bool:
    """Whether the others are parts of the model."""
    held = {id(parameter) for parameter in model.parameters()}
    return all(id(parameter) in held for other in models for parameter in other.parameters())


def _trained_by(optimizer: Any) -> set[int]:
    """Ids of its parameters."""
    return {id(one) for group in optimizer.param_groups for one in group["params"]}


def _hold_most(models: Iterable[Any], optimizer: Any) -> bool:
    """Whether models hold most of the optimizer's parameters."""
    trained = _trained_by(optimizer)
    held = {id(parameter) for model in models for parameter in model.parameters()}
    return 2 * len(trained & held) > len(trained)


def most_trained(optimizer: Any, models: Iterable[Any]) -> Any:
    """The model that holds most of the optimizer's parameters; None if no model holds any.

    Of several that hold equally many, the largest is chosen: the others are parts of it.
    """
    trained = _trained_by(optimizer)
    sizes = {
        model: (len(trained & held), len(held))
        for model in models
        if trained & (held := {id(parameter) for parameter in model.parameters()})
    }
    return max(sizes, key=sizes.__getitem__) if sizes else None
