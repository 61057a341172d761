"""UTF-16, as Windows PowerShell redirects output, to UTF-8; any other text is left as it is."""

from __future__ import annotations

import codecs
from typing import Final

MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ENOUGH: Final = 64  # bytes that tell
_MOSTLY: Final = 8  # one of so many is 0, in UTF-16, whatever language a log is written in


def is_utf_16(head: bytes) -> bool:
    """Whether a source that begins so says that it is, and looks like it."""
    head = head[:_ENOUGH]
    return head.startswith(MARKS) and head.count(b"\0") * _MOSTLY > len(head)


class Encoding:
    """Of one source: its first bytes say whether it is UTF-16."""

    def __init__(self) -> None:
        self._begun: bytes | None = b""  # too little to tell; None once it is known
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes) -> bytes:
        if self._begun is not None:
            data = self._begun + data
            if len(data) < _ENOUGH and any(mark.startswith(data[:2]) for mark in MARKS):
                self._begun = data
                return b""
            self._begun = None
            if is_utf_16(data):
                self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        return data if self._decoder is None else self._decoder.decode(data).encode()

    def rest(self) -> bytes:
        """What is held back because it was too little to tell."""
        rest, self._begun = self._begun or b"", None
        return rest.decode("utf-16", "replace").encode() if is_utf_16(rest) else rest
