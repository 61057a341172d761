"""How what a user writes behind a command is read; arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsprof.events import Severity
from dsprof.units import bandwidth


def speed(text: str) -> str:
    """The speed of a link, as it was written."""
    if bandwidth(text) is None:
        raise typer.BadParameter(
            f"{text!r} is not a link speed: give the unit, as in 100Gb (bits) or 12.5GB/s (bytes)"
        )
    return text


def severity(text: str) -> Severity:
    """One of the three; typer's own refusal begins with words of the library it is made with."""
    if text not in list(Severity):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(Severity)}")
    return Severity(text)


def steps_between(text: str) -> tuple[int, int]:
    """The first and the last one."""
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise typer.BadParameter(f"{text!r} is not first:last, such as 100:120")
    return int(first), int(last)


Paths = Annotated[
    list[str],
    typer.Argument(
        help="Logs of one run, or its run folder: files, folders, globs, .gz .bz2 .xz .zst, "
        'URLs, or "-".',
        metavar="PATH",
        show_default=False,
    ),
]
Parsers = Annotated[
    list[Path] | None,
    typer.Option(
        "--parsers", metavar="DIR", help="Folder of your own dialect files; may be repeated."
    ),
]
Link = Annotated[
    str | None,
    typer.Option(
        "--link",
        metavar="SPEED",
        parser=speed,
        help="Speed of one node's network: 100Gb, 12.5GB/s.",
    ),
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help='Write JSON; "-" prints it instead of the text.'),
]
