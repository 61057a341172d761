"""Words of a log, quoted: what is too long ends behind a word, and says that it goes on."""

from __future__ import annotations


def quoted(text: object, most: int) -> str:
    """At most so many characters, the last of them "…" where something was left out."""
    said = str(text)
    if len(said) <= most:
        return said
    head = said[:most]
    words = head[: max(head.rfind(" "), 0)].rstrip(" ,;:")
    return (words or head[:-1]) + "…"
