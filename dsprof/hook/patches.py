"""Wrap methods of live objects and classes, and remove every wrapper again."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

Call = Callable[..., Any]
_Reference = weakref.ReferenceType[Any]
_ABSENT = object()
_BEFORE = "_before_dsprof"  # what a wrapper replaced. Only that refers to it: it may hold the owner
_REDUCE = "__reduce_ex__"  # how `copy.deepcopy` and `pickle` ask an object for its parts
_DEEPCOPY = "__deepcopy__"  # instead of that, where a class has it
_REPLICATE = "_replicate_for_data_parallel"  # `nn.DataParallel` calls it once per device
_SCRIPTED = "__prepare_scriptable__"  # `torch.jit.script` calls it on what it is to compile


class Patches:
    """All changes made so far. `undo` reverts them, newest first, even if one of them fails.

    Instances are referenced weakly, so attaching neither keeps an engine alive nor makes reference
    cycles, except where a compiler has to find the owner (`hold`).
    """

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self._holding: list[_Reference] | None = []  # make methods hold owners; None: they do

    def method(self, owner: Any, name: str, around: Callable[[Call], Call]) -> Callable[[], None]:
        """Replace `owner.name` by `around(method)` on this instance only; returns what
        undoes it.
        """
        bound = getattr(owner, name)
        unbound, hold = _unbound(owner, name, bound)
        if self._holding is None:
            hold()
        else:
            self._holding.append(weakref.ref(hold))
        wrapper = around(unbound)
        _look_like(wrapper, bound)
        if isinstance(owner, ModuleType):  # so that `pickle` finds it by its name
            wrapper.__module__, wrapper.__qualname__ = owner.__name__, name
        setattr(wrapper, _BEFORE, vars(owner).get(name, _ABSENT))
        object.__setattr__(owner, name, wrapper)
        me, ours = weakref.ref(owner), weakref.ref(wrapper)
        return self._undo.callback(lambda: _restore(me, name, ours(), _before(ours)))

    def value(self, owner: Any, name: str, value: Any, before: Any = _ABSENT) -> Callable[[], None]:
        """Set an attribute of one instance; returns what restores the value `before`."""
        object.__setattr__(owner, name, value)
        reference = weakref.ref(owner)
        return self._undo.callback(lambda: _restore(reference, name, value, before))

    def method_of_a_model(
        self, owner: Any, name: str, around: Callable[[Call], Call]
    ) -> Callable[[], None]:
        """Like `method`, but copies of `owner` (deep, pickled or replicas) come without the
        wrapper.

        The wrapper is bound to `owner`: a copy that had it would compute with `owner`'s weights.
        """
        own = contextlib.ExitStack()
        own.callback(self.method(owner, name, around))
        ours = weakref.ref(vars(owner)[name])
        for copying, without in _COPYING.items():
            if hasattr(type(owner), copying) or copying == _SCRIPTED:
                instead = without(weakref.ref(owner), name, ours)
                before = vars(owner).get(copying, _ABSENT)
                own.callback(self.value(owner, copying, instead, before))
        return own.close

    def of_class(self, owner: type, name: str, around: Callable[[Call], Call]) -> None:
        """Replace `name` in the class's own namespace.

        The raw descriptor is kept, because what `getattr` returns for a pybind class is no longer
        bound.
        """
        raw = vars(owner)[name]
        wrapper = around(raw)
        _look_like(wrapper, raw)
        setattr(owner, name, wrapper)
        self._undo.callback(_restore_class, owner, name, wrapper, raw)

    def hold(self) -> None:
        """From now on wrapped methods hold their owners strongly: cycles, which the garbage
        collector frees.
        """
        holding, self._holding = self._holding or [], None
        for hold in filter(None, (reference() for reference in holding)):
            hold()

    def undo_with(self, *actions: Callable[[], None]) -> None:
        """Register what reverts changes that were made by other means."""
        for action in actions:
            self._undo.callback(action)

    def undo(self) -> None:
        """Revert everything. If some of it fails, the last error is raised once the rest is
        reverted.
        """
        self._undo.close()


def _unbound(owner: Any, name: str, bound: Call) -> tuple[Call, Callable[[], None]]:
    """`bound` without a strong reference to its owner, so that wrapping never keeps the owner
    alive; and a function that makes it hold the owner, if that still exists.

    Training may take the method from its owner and then drop the owner, as with any method. The
    owner's `__dict__` is kept for this case and a stand-in is built from it when the method is
    called. It is freed with the owner if nobody took the method.
    """
    if getattr(bound, "__self__", None) is not owner:
        return bound, _hold_nothing
    function, kind, held = bound.__func__, type(owner), vars(owner)  # type: ignore[attr-defined]

    def gone(_: Any) -> None:
        for ours in (name, *_COPYING):
            held.pop(ours, None)  # breaks the cycle of our wrapper and this dict

    me, again = weakref.ref(owner, gone), None

    def made_again() -> Any:
        nonlocal again
        if again is None:
            again = object.__new__(kind)
            object.__setattr__(again, "__dict__", held)
        return again

    mine: Any = None

    def call(*args: Any, **kwargs: Any) -> Any:
        self = me() if mine is None else mine
        return function(made_again() if self is None else self, *args, **kwargs)

    def hold() -> None:
        nonlocal mine
        mine = me()

    call.hold = hold  # type: ignore[attr-defined] # lives as long as the wrapper
    return call, hold


def _hold_nothing() -> None:
    """For a callable that is not bound to the owner: there is no reference to hold."""


def _look_like(wrapper: Call, original: Call) -> None:
    """Copy name, docstring, attributes and signature to the wrapper. A method's `__wrapped__` is
    its plain function, which works on any owner.
    """
    source = getattr(original, "__func__", original)
    functools.update_wrapper(wrapper, source)
    if source is original:
        del wrapper.__wrapped__  # type: ignore[attr-defined]
    try:
        signature = inspect.signature(original)
    except (ValueError, TypeError):
        return
    wrapper.__signature__ = signature  # type: ignore[attr-defined]


def _reduce_without(reference: _Reference, name: str, ours: _Reference) -> Call:
    """A `__reduce_ex__` that copies an object as if its `name` had never been wrapped."""

    def reduce(protocol: Any) -> Any:
        owner = reference()
        kind: Any = type(owner)
        return stripped(kind.__reduce_ex__(owner, protocol))

    def stripped(part: Any) -> Any:
        """The owner's `__dict__` is the state, or somewhere in what its class makes of it."""
        if type(part) is tuple:
            return tuple(map(stripped, part))
        is_of_owner = isinstance(part, dict) and _REDUCE in part
        return _without(part, name, ours) if is_of_owner else part

    return reduce


def _deepcopy_without(reference: _Reference, name: str, ours: _Reference) -> Call:
    """For classes that copy themselves: what is wrapped is copied as it is, as functions are."""

    def deepcopy(memo: Any) -> Any:
        owner = reference()
        kind: Any = type(owner)
        made = kind.__deepcopy__(owner, memo)
        if made is not owner and _REDUCE in getattr(made, "__dict__", ()):
            kept = _without(vars(made), name, ours)
            if name in kept:
                kept[name] = copy.deepcopy(kept[name], memo)
            made.__dict__ = kept
        return made

    return deepcopy


def _replicate_without(reference: _Reference, name: str, ours: _Reference) -> Call:
    def replicate() -> Any:
        owner = reference()
        kind: Any = type(owner)
        replica = getattr(kind, _REPLICATE)(owner)
        replica.__dict__ = _without(vars(replica), name, ours)
        return replica

    return replicate


def _script_without(reference: _Reference, name: str, ours: _Reference) -> Call:
    def prepare() -> Any:
        owner = reference()
        kind: Any = type(owner)
        if hasattr(kind, _SCRIPTED):
            owner = getattr(kind, _SCRIPTED)(owner)
        bare = object.__new__(type(owner))
        bare.__dict__ = _without(vars(owner), name, ours)
        return bare

    return prepare


#: The hooks through which a model is copied, each with a replacement whose copies come without our
#: wrapper of `name`.
_COPYING = {
    _REDUCE: _reduce_without,
    _DEEPCOPY: _deepcopy_without,
    _REPLICATE: _replicate_without,
    _SCRIPTED: _script_without,
}


def _without(state: dict[str, Any], name: str, ours: _Reference) -> dict[str, Any]:
    kept = {key: value for key, value in state.items() if key != name and key not in _COPYING}
    before = _before(ours)
    if name in state and before is not _ABSENT:
        kept[name] = before
    return kept


def _before(ours: _Reference) -> Any:
    return getattr(ours(), _BEFORE, _ABSENT)


def _restore(reference: _Reference, name: str, ours: Any, before: Any) -> None:
    owner = reference()
    if owner is None or ours is None or vars(owner).get(name) is not ours:
        return  # the owner is gone, or somebody wrapped our wrapper; theirs must stay
    if before is _ABSENT:
        object.__delattr__(owner, name)
    else:
        object.__setattr__(owner, name, before)


def _restore_class(owner: type, name: str, ours: Call, raw: Any) -> None:
    if vars(owner).get(name) is ours:
        setattr(owner, name, raw)
