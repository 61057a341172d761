"""Regexes that a hostile line could keep busy for ever."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final

#: Comments, what matches one thing, quantifiers, brackets; anything else is itself.
_TOKEN: Final = re.compile(
    r"(?P<comment>\(\?\#[^)]*\))|(?P<single>\\.|\(\?P=\w+\)|\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<repeat>[*+?]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})(?P<possessive>\+?)\??"
    r"|(?P<open>\((?:\?(?:(?P<atomic>>)|P<\w+>|[:=!]|<[=!]|[aiLmsux-]+:?))?)|(?P<close>\))"
    r"|(?P<either>\|)|.",
    re.DOTALL,
)
_NO_SIGN: Final = ("comment", "open", "close", "either")
_FEW: Final = 10  # times that a group may be repeated whatever stands in it
_MANY: Final = 64  # times from which on one of several repeats in a row is long
_ROW: Final = 3  # such repeats: time grows with the line's length to that power
_SIGNS: Final = frozenset(map(chr, range(128)))


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


def repeats_in_a_row(pattern: str) -> str:
    """Long repeats right behind each other that take the same signs; "" if there are none.

    A text may be split among them in as many ways as its length to the power of their number.
    """
    row: list[tuple[int, frozenset[str]]] = []  # where each begins, and what it takes
    tokens = [*_TOKEN.finditer(pattern)]
    for token, behind in zip_longest(tokens, tokens[1:]):
        if token["repeat"]:
            continue
        repeat = behind if behind is not None and behind["repeat"] else None
        if repeat is None or repeat["possessive"] or any(token[what] for what in _NO_SIGN):
            row = []  # what must stand between them holds them apart
            continue
        most = _bounds(repeat)[1]
        if most > _MANY:
            row.append((token.start(), _taken_by(token[0])))
            if len(row) >= _ROW and frozenset.intersection(*(taken for _, taken in row[-_ROW:])):
                return pattern[row[-_ROW][0] : repeat.end()]
        elif most > 1:
            row = []
    return ""


def _taken_by(sign: str) -> frozenset[str]:
    """The signs that a set, a class or a sign of a regex stands for, of ASCII."""
    try:
        matches = re.compile(sign, re.DOTALL).fullmatch
    except re.error:  # a reference to a group elsewhere
        return frozenset()
    return frozenset(filter(matches, _SIGNS))


def _bounds(token: re.Match[str]) -> tuple[int, float]:
    """How often at least and at most a token repeats what stands before it."""
    if token["repeat"] in ("*", "+", "?"):
        return 0, 1 if token["repeat"] == "?" else float("inf")
    least = int(token["least"] or 0)
    if not token["comma"]:
        return least, least
    return least, int(token["most"]) if token["most"] else float("inf")
