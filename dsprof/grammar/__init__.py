"""`parsers/*.toml` to patterns: what lines look like and what they mean.

The files are data, described in parsers/README.md. A fault in one is raised
here, once, with the file and the pattern it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from dsprof.errors import GrammarError
from dsprof.grammar.load import load_files
from dsprof.grammar.model import Grammar, Pairs, Pattern, Row, Sample, TimerFlavour
from dsprof.grammar.regex import Regex

__all__ = [
    "Grammar",
    "Pairs",
    "Pattern",
    "Regex",
    "Row",
    "Sample",
    "TimerFlavour",
    "builtin",
    "builtin_files",
    "builtin_folder",
    "load",
    "user_folder",
]


def builtin_folder() -> Path:
    """Beside the package in a checkout, inside it when installed."""
    inside = Path(__file__).parent.parent / "parsers"
    return inside if inside.is_dir() else Path(__file__).parent.parent.parent / "parsers"


def user_folder() -> Path:
    """Where a user's own dialect files are found without being named."""
    from platformdirs import user_config_path

    return user_config_path("dsprof") / "parsers"


def _users() -> list[Path]:
    """The user's folder, if there is one; a home that is not ours to read holds none for us."""
    folder = user_folder()
    try:
        return [folder] if folder.is_dir() else []
    except PermissionError:
        return []


def builtin_files() -> list[Path]:
    """The files of the dialects that ship with dsprof, in the order in which they are tried."""
    return sorted(builtin_folder().glob("*.toml"))


@cache
def builtin() -> Grammar:
    """The dialects that ship with dsprof."""
    files = builtin_files()
    return load_files(files, own=files)


def load(folders: Iterable[Path] = ()) -> Grammar:
    """The built-in dialects plus those of the user's folder and of `folders`.

    Raises:
        GrammarError: a folder holds no such file, or a file says what cannot be meant.
    """
    folders = list(folders)
    for folder in folders:
        if not folder.is_dir():
            raise GrammarError("no such folder of dialect files", str(folder))
        if not any(folder.glob("*.toml")):
            raise GrammarError("no dialect files", str(folder), "they end in .toml")
    own = [*_users(), *folders]
    files = [file for folder in own for file in sorted(folder.glob("*.toml"))]
    if not files:
        return builtin()
    shipped = builtin_files()
    return load_files([*shipped, *files], own=shipped)
