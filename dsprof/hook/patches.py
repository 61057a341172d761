"""Put wrappers around methods of live objects and classes, and take every one off again."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]
_ABSENT = object()
_REDUCE = "__reduce_ex__"  # what `copy.deepcopy` and `pickle` ask an object for
_REPLICATE = "_replicate_for_data_parallel"  # what `nn.DataParallel` asks for, for each device
_SCRIPTED = "__prepare_scriptable__"  # what `torch.jit.script` asks for what it shall compile


class Patches:
    """What was changed; `undo` restores all of it, newest first, also behind one that fails.

    Instances are held weakly: attaching keeps no engine alive, and makes no cycle of one.
    """

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()

    def method(self, owner: Any, name: str, around: Callable[[Call], Call]) -> None:
        """Replace `owner.name` by `around` of it, on this instance alone."""
        bound = getattr(owner, name)
        wrapper = around(_unbound(owner, bound))
        _look_like(wrapper, bound)
        before = vars(owner).get(name, _ABSENT)
        self.value(owner, name, wrapper, before)

    def value(self, owner: Any, name: str, value: Any, before: Any = _ABSENT) -> None:
        """Set an attribute of one instance."""
        object.__setattr__(owner, name, value)
        self._undo.callback(_restore, weakref.ref(owner), name, value, before)

    def method_of_a_model(self, owner: Any, name: str, around: Callable[[Call], Call]) -> None:
        """As `method`; copies of `owner`, deep, pickled or a replica, are as if it had never been
        wrapped.

        The wrapper is bound to `owner`: a copy that got it would compute with `owner`'s weights.
        """
        before = vars(owner).get(name, _ABSENT)
        self.method(owner, name, around)
        for copying, without in _COPYING.items():
            if hasattr(owner, copying) or copying == _SCRIPTED:
                instead = without(weakref.ref(owner), name, before)
                self.value(owner, copying, instead, vars(owner).get(copying, _ABSENT))

    def of_class(self, owner: type, name: str, around: Callable[[Call], Call]) -> None:
        """Replace what the class itself holds as `name`.

        The raw descriptor is kept: what `getattr` gives of a pybind class has lost its binding.
        """
        raw = vars(owner)[name]
        wrapper = around(raw)
        _look_like(wrapper, raw)
        setattr(owner, name, wrapper)
        self._undo.callback(_restore_class, owner, name, wrapper, raw)

    def undo_with(self, *actions: Callable[[], None]) -> None:
        """Something was changed by other means; these take it back."""
        for action in actions:
            self._undo.callback(action)

    def undo(self) -> None:
        """Raises what failed last, when all the others are undone."""
        self._undo.close()


def _unbound(owner: Any, bound: Call) -> Call:
    """`bound` without a reference to its owner, which must outlive nothing because of us."""
    if getattr(bound, "__self__", None) is not owner:
        return bound
    function, me = bound.__func__, weakref.ref(owner)  # type: ignore[attr-defined]
    return lambda *args, **kwargs: function(me(), *args, **kwargs)


def _look_like(wrapper: Call, original: Call) -> None:
    """Name, doc, marks and signature; not `__wrapped__`, which would make a cycle."""
    source = getattr(original, "__func__", original)
    functools.update_wrapper(wrapper, source)
    del wrapper.__wrapped__  # type: ignore[attr-defined]
    try:
        signature = inspect.signature(original)
    except (ValueError, TypeError):
        return
    wrapper.__signature__ = signature  # type: ignore[attr-defined]


def _reduce_without(reference: weakref.ReferenceType[Any], name: str, before: Any) -> Call:
    """How to copy an object with `before` in the place of its `name`."""

    def reduce(protocol: Any) -> Any:
        owner = reference()
        kind: Any = type(owner)
        made = kind.__reduce_ex__(owner, protocol)
        state = made[2] if isinstance(made, tuple) and len(made) > 2 else None
        if not isinstance(state, dict):
            return made
        return (*made[:2], _without(state, name, before), *made[3:])

    return reduce


def _replicate_without(reference: weakref.ReferenceType[Any], name: str, before: Any) -> Call:
    def replicate() -> Any:
        owner = reference()
        kind: Any = type(owner)
        replica = getattr(kind, _REPLICATE)(owner)
        replica.__dict__ = _without(vars(replica), name, before)
        return replica

    return replicate


def _script_without(reference: weakref.ReferenceType[Any], name: str, before: Any) -> Call:
    def prepare() -> Any:
        owner = reference()
        kind: Any = type(owner)
        if hasattr(kind, _SCRIPTED):
            owner = getattr(kind, _SCRIPTED)(owner)
        bare = object.__new__(type(owner))
        bare.__dict__ = _without(vars(owner), name, before)
        return bare

    return prepare


#: How a model is copied, and what makes of that one with `before` in the place of its `name`.
_COPYING = {
    _REDUCE: _reduce_without,
    _REPLICATE: _replicate_without,
    _SCRIPTED: _script_without,
}


def _without(state: dict[str, Any], name: str, before: Any) -> dict[str, Any]:
    kept = {key: value for key, value in state.items() if key != name and key not in _COPYING}
    if name in state and before is not _ABSENT:
        kept[name] = before
    return kept


def _restore(reference: weakref.ReferenceType[Any], name: str, ours: Any, before: Any) -> None:
    owner = reference()
    if owner is None or vars(owner).get(name) is not ours:
        return  # gone, or somebody wrapped our wrapper: taking theirs off is not ours to do
    if before is _ABSENT:
        object.__delattr__(owner, name)
    else:
        object.__setattr__(owner, name, before)


def _restore_class(owner: type, name: str, ours: Call, raw: Any) -> None:
    if vars(owner).get(name) is ours:
        setattr(owner, name, raw)
