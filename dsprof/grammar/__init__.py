"""`parsers/*.toml` to patterns: what lines look like and what they mean.

The files are data, described in parsers/README.md. A fault in one is raised
here, once, with the file and the pattern it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from dsprof.grammar.load import load_files
from dsprof.grammar.model import Grammar, Pairs, Pattern, Row, Sample, TimerFlavour

__all__ = [
    "Grammar",
    "Pairs",
    "Pattern",
    "Row",
    "Sample",
    "TimerFlavour",
    "builtin",
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


@cache
def builtin() -> Grammar:
    """The dialects that ship with dsprof."""
    return load_files(sorted(builtin_folder().glob("*.toml")))


def load(folders: Iterable[Path] = ()) -> Grammar:
    """The built-in dialects plus those of the user's folder and of `folders`.

    Raises:
        GrammarError: a file cannot be read or says something that cannot be meant.
    """
    own = [folder for folder in (user_folder(), *folders) if folder.is_dir()]
    missing = [folder for folder in folders if not folder.is_dir()]
    if missing:
        from dsprof.errors import GrammarError

        raise GrammarError("no such folder of dialect files", str(missing[0]))
    files = [file for folder in own for file in sorted(folder.glob("*.toml"))]
    if not files:
        return builtin()
    return load_files([*sorted(builtin_folder().glob("*.toml")), *files])
