"""A run in words: the terminal summary, and the JSON document other programs read.

What looks at a run brings pandas when it is first used; words alone need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dsprof.text.words import plain

if TYPE_CHECKING:
    from dsprof.text.difference import difference
    from dsprof.text.document import SCHEMA, document
    from dsprof.text.examination import examination
    from dsprof.text.summary import summary

__all__ = ["SCHEMA", "difference", "document", "examination", "plain", "summary"]

_HOME: Final = {
    "SCHEMA": "document",
    "difference": "difference",
    "document": "document",
    "examination": "examination",
    "summary": "summary",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"dsprof.text.{_HOME[name]}"), name)
