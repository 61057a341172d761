"""Words of a log, quoted: what is too long ends behind a word, and says that it goes on."""

from __future__ import annotations

import re
from typing import Final

#: Where in C++ an error was raised: a path of whoever built the library.
_PLACE: Final = re.compile(r"\[[^\]\s]{0,300}\.(?:cc|cpp|cu|h|hpp):\d{1,6}\] ")


def quoted(text: object, most: int) -> str:
    """At most so many characters, the last of them "…" where something was left out."""
    said = str(text)
    if len(said) <= most:
        return said
    head = said[:most]
    words = head[: max(head.rfind(" "), 0)].rstrip(" ,;:")
    return (words or head[:-1]) + "…"


def quoted_in_title(text: object) -> str:
    """What an error says, as a title has room for it: its place in C++ is left to the proof."""
    return quoted(_PLACE.sub("", str(text)), 160)
