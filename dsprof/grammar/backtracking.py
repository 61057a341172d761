"""Regexes that a hostile line could keep busy for ever."""

from __future__ import annotations

import re
from typing import Final

#: Comments, what matches one thing, quantifiers, brackets; anything else is itself.
_TOKEN: Final = re.compile(
    r"(?P<comment>\(\?\#[^)]*\))|(?P<single>\\.|\(\?P=\w+\)|\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<repeat>[*+?]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})(?P<possessive>\+?)\??"
    r"|(?P<open>\((?:\?(?:(?P<atomic>>)|P<\w+>|[:=!]|<[=!]|[aiLmsux-]+:?))?)|(?P<close>\))"
    r"|(?P<either>\|)|.",
    re.DOTALL,
)
_FEW: Final = 10  # times that a group may be repeated whatever stands in it


def nested_repeat(pattern: str) -> str:
    """A repeated group of the regex that itself repeats or chooses; "" if there is none.

    A text may be split among the rounds of such a group in exponentially many ways, all of
    which are tried if the rest does not match. What matches possessively (`(...)*+`,
    `(?>...)`) gives nothing back and is no danger.
    """
    #: Of each open group: its begin, whether it is atomic, whether what stood before it varies.
    opened: list[tuple[int, bool, bool]] = []
    varies = group_varies = False
    begin = 0
    for token in _TOKEN.finditer(pattern):
        if token["open"]:
            opened.append((token.start(), token["atomic"] is not None, varies))
            varies = False
        elif token["close"] and opened:
            begin, is_atomic, outer = opened.pop()
            group_varies = varies and not is_atomic
            varies = outer or group_varies
            continue
        elif token["repeat"] and not token["possessive"]:
            least, most = _bounds(token)
            if group_varies and most > _FEW:
                return pattern[begin : token.end()]
            varies |= most > least
        elif token["either"]:
            varies = True
        group_varies = False
    return ""


def _bounds(token: re.Match[str]) -> tuple[int, float]:
    """How often at least and at most a token repeats what stands before it."""
    if token["repeat"] in ("*", "+", "?"):
        return 0, 1 if token["repeat"] == "?" else float("inf")
    least = int(token["least"] or 0)
    if not token["comma"]:
        return least, least
    return least, int(token["most"]) if token["most"] else float("inf")
