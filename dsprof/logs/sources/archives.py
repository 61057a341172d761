"""Compressed logs: everything that can be unpacked, also of an archive that was cut.

The file objects of the standard library and of isal lose what they had unpacked when the
archive ends too early, and zstandard's does not notice. Their decompressors do neither.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, Final, cast

from dsprof.errors import DsprofError

_MAGIC: Final = {
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
}
_TURN: Final = 1 << 18  # bytes unpacked at once
_PACKED: Final = 1 << 14  # bytes read at once
#: zstandard unpacks all that it is given, up to 32,768 times its size.
_PACKED_ZST: Final = 1 << 12


def compression(head: bytes) -> str:
    """`gz`, `bz2`, `xz`, `zst` or, for plain bytes, nothing."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")


def unpacked(stream: BinaryIO, kind: str, name: str) -> BinaryIO:
    """What an archive holds; reading it raises one of `damages` where it is cut or broken.

    Args:
        stream: the packed bytes; closed with what is returned.
        kind: what `compression` said of their head.
        name: the file, for messages.

    Raises:
        DsprofError: a package is missing.
    """
    return cast("BinaryIO", io.BufferedReader(_Archive(stream, _maker(kind, name), kind)))


def damages() -> tuple[type[Exception], ...]:
    """What reading raises where an archive is cut or damaged, or the medium is."""
    found: list[type[Exception]] = [OSError, EOFError, ValueError, zlib.error, lzma.LZMAError]
    for module, error in (("isal.isal_zlib", "error"), ("zstandard", "ZstdError")):
        with suppress(ImportError):
            found.append(getattr(import_module(module), error))
    return tuple(found)


class _Archive(io.RawIOBase):
    """One archive after another, as a stream of what they hold.

    What went before a damage is read first; the damage is raised by every read behind it.
    """

    def __init__(self, stream: BinaryIO, make: Callable[[], Any], kind: str) -> None:
        super().__init__()
        self._stream, self._make = stream, make
        self._magic = next(magic for magic, other in _MAGIC.items() if other == kind)
        self._size = _PACKED_ZST if kind == "zst" else _PACKED
        self._unpacker = make()
        self._packed = b""  # read and not yet given to the unpacker
        self._ready = b""  # unpacked and not yet given away
        self._damage: Exception | None = None

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()

    def readinto(self, into: Any) -> int:
        view, count = memoryview(into).cast("B"), 0
        while count < len(view):
            if not self._ready:
                self._ready = self._next()
                if not self._ready:
                    break
            part = self._ready[: len(view) - count]
            view[count : count + len(part)] = part
            self._ready = self._ready[len(part) :]
            count += len(part)
        if not count and self._damage is not None and len(view):
            raise self._damage
        return count

    def _next(self) -> bytes:
        """The next bytes; none at the end, and where a damage keeps it from going on."""
        try:
            while self._damage is None:
                data = self._unpack()
                if data is None:
                    return b""
                if data:
                    return data
        except damages() as error:
            self._damage = error
        return b""

    def _unpack(self) -> bytes | None:
        """One turn of the unpacker, which may give nothing yet; None at the end."""
        if self._unpacker.eof:
            return b"" if self._next_archive() else None
        if not self._packed and getattr(self._unpacker, "needs_input", True):
            self._packed = self._stream.read(self._size)
            if not self._packed:
                raise EOFError("the archive is cut short")
        if isinstance(self._unpacker, bz2.BZ2Decompressor | lzma.LZMADecompressor):
            packed, self._packed = self._packed, b""
            return self._unpacker.decompress(packed, _TURN)
        if self._size == _PACKED_ZST:
            packed, self._packed = self._packed, b""
            return cast("bytes", self._unpacker.decompress(packed))
        data = self._unpacker.decompress(self._packed, _TURN)
        self._packed = self._unpacker.unconsumed_tail
        return cast("bytes", data)

    def _next_archive(self) -> bool:
        """Whether another one begins where one ended; zeros only fill up a block."""
        rest = self._unpacker.unused_data + self._packed
        while not rest.strip(b"\0"):
            rest = self._stream.read(self._size)
            if not rest:
                return False
        rest = rest.lstrip(b"\0")
        if len(rest) < len(self._magic):
            rest += self._stream.read(self._size)
        if not rest.startswith(self._magic):
            raise ValueError("something else follows the archive")
        self._unpacker, self._packed = self._make(), rest
        return True


def _maker(kind: str, name: str) -> Callable[[], Any]:
    if kind == "bz2":
        return bz2.BZ2Decompressor
    if kind == "xz":
        return lzma.LZMADecompressor
    if kind == "zst":
        try:
            import zstandard
        except ImportError:
            raise DsprofError(
                "needs the package zstandard", name, "pip install zstandard"
            ) from None
        return zstandard.ZstdDecompressor().decompressobj
    gzip = 16 + zlib.MAX_WBITS  # with a header, and a checksum at the end
    try:
        from isal import isal_zlib
    except ImportError:
        return lambda: zlib.decompressobj(gzip)
    return lambda: isal_zlib.decompressobj(gzip)
