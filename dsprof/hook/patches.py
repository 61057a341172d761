"""Put wrappers around methods of live objects and classes, and take every one off again."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]
_ABSENT = object()


class Patches:
    """What was changed, newest last; `undo` restores all of it.

    Instances are held weakly: attaching keeps no engine alive, and makes no cycle of one.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

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
        self._undo.append(functools.partial(_restore, weakref.ref(owner), name, value, before))

    def of_class(self, owner: type, name: str, around: Callable[[Call], Call]) -> None:
        """Replace what the class itself holds as `name`.

        The raw descriptor is kept: what `getattr` gives of a pybind class has lost its binding.
        """
        raw = vars(owner)[name]
        wrapper = around(raw)
        _look_like(wrapper, raw)
        setattr(owner, name, wrapper)
        self._undo.append(functools.partial(_restore_class, owner, name, wrapper, raw))

    def undo_with(self, *actions: Callable[[], None]) -> None:
        """Something was changed by other means; these take it back."""
        self._undo.extend(actions)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


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
