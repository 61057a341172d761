"""Runs actions once a module has been imported, without importing that module itself.

Every Python process that a recorded command starts runs this, so it imports next to nothing.
"""

from __future__ import annotations

import sys
from _thread import get_ident  # the same as in `threading`, which is slower to import

TYPE_CHECKING = False  # as in `typing`, which is slower to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Action = Callable[[ModuleType], object]


def when_imported(name: str, action: Action) -> Callable[[], None]:
    """Call `action` with the module of that name: now, or when its import has finished.

    `action` must not raise, because the importing code would get the exception. If the module's
    import is already in progress at the first call for it, its end is not noticed.

    Returns:
        A function that cancels the action if it has not been called yet.
    """
    module = sys.modules.get(name)
    if module is not None and not _is_under_way(module):
        action(module)
    else:
        _finder.actions.setdefault(name, []).append(action)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    return lambda: _forget(name, action)


def _is_under_way(module: ModuleType) -> bool:
    """Whether the module is being imported, by the same test as Python's import."""
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _forget(name: str, action: Action) -> None:
    waiting = _finder.actions.get(name, [])
    if action in waiting:
        waiting.remove(action)
    if not any(_finder.actions.values()) and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Finder:
    """A finder that asks the other finders, and runs actions once the module has been executed.

    Finding a module is not importing it: libraries may ask whether a module exists long before, so
    actions run after the loader has executed it. Finders without `find_spec` are left to Python. To
    another finder that asks all others, as this one does, it answers that it finds nothing, so that
    the two do not call each other for ever.
    """

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}
        self._asking: set[tuple[str, int]] = set()  # (module, thread) for which others are asked

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        question = name, get_ident()
        if not self.actions.get(name) or question in self._asking:
            return None
        self._asking.add(question)
        try:
            return self._found(name, path, target)
        finally:
            self._asking.discard(question)

    def _found(self, name: str, path: Any, target: Any) -> Any:
        others = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None:
            self._follow(spec)
        return spec

    def _follow(self, spec: Any) -> None:
        """Wrap the loader of a module that was found.

        Inside a `LazyLoader` the actual loader is wrapped, so actions run when the module is first
        used. A loader without `exec_module` is not wrapped, because Python chooses how to call it
        by the methods that it lacks; the end of its import is not noticed.
        """
        lazy = getattr(sys.modules.get("importlib.util"), "LazyLoader", ())
        owner = spec.loader if isinstance(spec.loader, lazy) else spec
        if hasattr(owner.loader, "exec_module"):
            owner.loader = _Loader(owner.loader, self)

    def imported(self, module: ModuleType) -> None:
        """Run the actions of a module, including those that an action adds for the same module,
        whose import still counts as in progress.
        """
        waiting = self.actions.get(module.__name__, [])
        while waiting:
            waiting.pop(0)(module)


class _Loader:
    """A module's own loader, which also runs the actions afterwards."""

    _loader: Any = None  # for `__getattr__` while a copy is made, before attributes are set

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        self._finder.imported(module)


_finder = _Finder()
