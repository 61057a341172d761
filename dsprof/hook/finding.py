"""Find engines, models and optimizers by themselves, in a process that knows nothing of us.

A finder on `sys.meta_path` acts when `deepspeed` and `torch` have been imported, so nothing
is imported that the process would not import itself.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from dsprof.hook.attach import attach
from dsprof.hook.guard import Guard
from dsprof.hook.patches import Call, Patches

Action = Callable[[ModuleType], None]

_guard: Final = Guard()
_patches: Final = Patches()  # for the life of the process
_models: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_known: Final[weakref.WeakSet[Any]] = weakref.WeakSet()  # optimizers we have looked at


def start() -> None:
    """Go on with the `sitecustomize` we stand in front of, then wait for imports."""
    _next_sitecustomize()
    actions = {"deepspeed": _engines, "torch": _torch, "torch.distributed.fsdp": _fsdp2}
    for name, action in list(actions.items()):
        if name in sys.modules:
            _guard(action)(sys.modules[name])
            del actions[name]
    sys.meta_path.insert(0, _Finder(actions))


def _next_sitecustomize() -> None:
    """The one that Python would have run without us. It may fail, as it would have."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Finder:
    """Lets the other finders find, and runs an action when the module is there."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self.actions = actions

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        action = self.actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader, action)  # type: ignore[assignment]
        return spec


class _Loader:
    """A module's own loader, and the action after it."""

    def __init__(self, loader: Any, action: Action) -> None:
        self.loader, self.action = loader, action

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self.loader  # type: ignore[union-attr]
        self.loader.exec_module(module)
        _guard(self.action)(module)


def _engines(deepspeed: ModuleType) -> None:
    """Every engine that `deepspeed.initialize` returns."""

    def around(raw: Call) -> Call:
        def initialize(*args: Any, **kwargs: Any) -> Any:
            made = raw(*args, **kwargs)
            attach(made[0])
            return made

        return initialize

    _patches.method(deepspeed, "initialize", around)


def _torch(torch: ModuleType) -> None:
    """Models under DDP; and each optimizer's first step, to find the model it trains."""

    def around(raw: Call) -> Call:
        def initialise(model: Any, *args: Any, **kwargs: Any) -> None:
            raw(model, *args, **kwargs)
            _models.add(model)

        return initialise

    _patches.of_class(torch.nn.parallel.DistributedDataParallel, "__init__", around)
    optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its name
    optimizers.register_optimizer_step_post_hook(_guard(_stepped))


def _fsdp2(fsdp: ModuleType) -> None:
    """Models that `fully_shard` was called on, parts of models among them."""

    def around(raw: Call) -> Call:
        def fully_shard(model: Any, *args: Any, **kwargs: Any) -> Any:
            sharded = raw(model, *args, **kwargs)
            if not isinstance(model, list):
                _models.add(model)
            return sharded

        return fully_shard

    if hasattr(fsdp, "fully_shard"):
        _patches.method(fsdp, "fully_shard", around)


def _stepped(optimizer: Any, *_: Any) -> None:
    """The largest model that holds what this optimizer trains is recorded from here on."""
    if optimizer in _known:
        return
    _known.add(optimizer)
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    sizes = {
        model: len(held)
        for model in list(_models)
        if trained & (held := {id(parameter) for parameter in model.parameters()})
    }
    if sizes:
        attach(max(sizes, key=sizes.__getitem__), optimizer=optimizer)
