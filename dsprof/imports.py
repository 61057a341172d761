"""Act when modules have been imported, and import nothing that the process would not itself.

Every Python that a recorded command starts runs this: it imports next to nothing.
"""

from __future__ import annotations

import sys
from _thread import get_ident  # as threading has it, which takes longer to import

TYPE_CHECKING = False  # as in typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Action = Callable[[ModuleType], object]


def when_imported(name: str, action: Action) -> Callable[[], None]:
    """Call `action` with the module of that name: at once, or as soon as its import is over.

    It may not raise: that would be the import's error. A module whose import was under way when
    it was first asked for is not seen to end.

    Returns:
        What takes it back, as long as it has not been called.
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
    """As Python's own import asks."""
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _forget(name: str, action: Action) -> None:
    waiting = _finder.actions.get(name, [])
    if action in waiting:
        waiting.remove(action)
    if not any(_finder.actions.values()) and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Finder:
    """Lets the other finders find, and runs actions when the module is there.

    Finding is not importing: libraries ask whether a module could be found long before, and
    Python holds a lock of all imports meanwhile. Finders of an old kind, which cannot be asked
    so, Python asks itself. One that asks all others, as we do, finds nothing here.
    """

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}
        self._asking: set[tuple[str, int]] = set()  # the others, for which name in which thread

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
        """One that loads when the module is first used is followed then. A loader of an old kind
        says by what it lacks how it is to be called: it stays as it is, and nobody sees its end."""
        lazy = getattr(sys.modules.get("importlib.util"), "LazyLoader", ())
        owner = spec.loader if isinstance(spec.loader, lazy) else spec
        if hasattr(owner.loader, "exec_module"):
            owner.loader = _Loader(owner.loader, self)

    def imported(self, module: ModuleType) -> None:
        """An action may ask for others of the same module: its import is not over yet."""
        waiting = self.actions.get(module.__name__, [])
        while waiting:
            waiting.pop(0)(module)


class _Loader:
    """A module's own loader, and what follows it."""

    _loader: Any = None  # while a copy is made

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        self._finder.imported(module)


_finder = _Finder()
