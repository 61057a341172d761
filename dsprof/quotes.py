"""Words of a log, quoted: what is too long ends behind a word, and says that it goes on."""

from __future__ import annotations

import re
from typing import Final

#: Where in C++ an error was raised: a path of whoever built the library.
_PLACE: Final = re.compile(r"\[[^\]\s]{0,300}\.(?:cc|cpp|cu|h|hpp):\d{1,6}\] ")


#: A frame of a traceback whose path is long: its last folders and its file are what tells.
_DEEP: Final = re.compile(r'(?<=File ")[^"]{40,4000}?(?=(?:/[^"/]{1,100}){3}", line \d)')

#: What is left of a line that several processes printed at once, each in the same pieces.
_AT_ONCE: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w.]{1,100}?(?:Error|Exception))(?P<more>(?:(?P=name)){1,64})(?:: ){1,65}"
)
_ALIKE: Final = 24  #: letters by which a message is known again


def quoted(text: object, most: int) -> str:
    """At most so many characters, the last of them "…" where something was left out."""
    said = str(text)
    if len(said) <= most:
        return said
    head = said[:most]
    words = head[: max(head.rfind(" "), 0)].rstrip(" ,;:")
    return (words or head[:-1]) + "…"


def quoted_in_title(text: object) -> str:
    """What an error says, as a title has room for it: its place in C++ is left to the proof, and
    so are the folders of a long path."""
    return quoted(_once(_DEEP.sub("…", _PLACE.sub("", str(text)))), 160)


def _once(said: str) -> str:
    """What each of several processes said, where they wrote into one line:
    `KeyErrorKeyError: : 'labels''labels'`."""
    head = _AT_ONCE.match(said)
    if head is None:
        return said
    times = 1 + len(head["more"]) // len(head["name"])
    rest = said[head.end() :].rstrip()
    part = rest[: len(rest) // times]
    if part * times == rest:
        return f"{head['name']}: {part}"
    again = rest.find(rest[:_ALIKE], 1)
    return f"{head['name']}: {rest[:again]}" if again > 0 else said
