"""Signs that a copy through a browser, a chat or Markdown changed: back to those that were printed.

Browsers and word processors write blanks that do not break; editors of comments break lines at
signs of no width; chats make quotation marks round; HTML and Markdown write out signs that have a
meaning there, as `&#39;` and `\\_`. Each is put back only where it stands in so many lines that it
is no text that a model wrote.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Final

_FEWEST: Final = 3  # lines with such a sign, in a source that has more
_SHARE: Final = 20  # one of so many lines has it

#: What every changed sign begins with, what shows that some were, and what is put back then.
_CHANGED: Final = tuple(
    (literal, re.compile(shows), re.compile(signs))
    for literal, shows, signs in (
        (b"\xc2\xa0", rb"\xc2\xa0", rb"\xc2\xa0"),
        (b"\xe2\x80", rb"\xe2\x80[\x8b-\x8d]\S", rb"\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0"),
        (
            b"\xe2\x80\x99",
            rb"\xe2\x80[\x98\x99]\w{1,40}\xe2\x80[\x98\x99]:",
            rb"\xe2\x80[\x98\x99]",
        ),
        (b"&", rb"&(?:#39|#x27|quot|nbsp|gt|lt);", rb"&(?:#39|#x27|quot|nbsp|gt|lt|amp);"),
        (b"\\", rb"\\(?:_\w|\[[\w ]{1,40}\\\]|\| )", rb"\\(?=[][_*|<>#~`])"),
    )
)
_IN_PLACE: Final = {b"\xc2\xa0": b" ", b"\xe2\x80\x98": b"'", b"\xe2\x80\x99": b"'"}


def pasted_reader(head: bytes) -> Callable[[bytes], bytes] | None:
    """Reads the lines of a source that begins so, if signs in it were changed on the way."""
    lines = head.split(b"\n")
    least = max(min(_FEWEST, sum(map(bool, lines))), len(lines) / _SHARE)
    changed = [
        signs.pattern
        for literal, shows, signs in _CHANGED
        if literal in head and sum(bool(shows.search(line)) for line in lines) >= least
    ]
    if not changed:
        return None
    every = re.compile(b"|".join(changed))
    return lambda line: every.sub(_as_printed, line)


def _as_printed(sign: re.Match[bytes]) -> bytes:
    if sign[0].startswith(b"&"):
        return html.unescape(sign[0].decode()).replace("\xa0", " ").encode()
    return _IN_PLACE.get(sign[0], b"")
