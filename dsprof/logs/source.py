"""Where logs are: files, folders, globs, compressed, remote, standard input."""

from __future__ import annotations

import glob
import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Final, cast

from dsprof.errors import DsprofError
from dsprof.logs.containers import is_plain_text
from dsprof.logs.csv_monitor import is_scalar_file

_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]{1,15}://")
_RANK_IN_NAME: Final = re.compile(r"(?:^|[._-])rank[._-]?(\d+)(?=[_-]|\.\D|$)", re.IGNORECASE)
_HOST_IN_NAME: Final = re.compile(
    r"^(?:log[._-])?"
    r"([A-Za-z0-9.-]{0,60}?(?:worker|node|host|gpu|master|machine|dgx)[-_]?\d+"
    r"|ip-[\d-]+|\d{1,3}(?:\.\d{1,3}){3})"
    r"(?:[._-](?:stdout|stderr|std|out|err|log|output).*)?$"
)
_ENDINGS: Final = (".gz", ".bz2", ".xz", ".zst", ".log", ".txt", ".out", ".err")
_LOG_NAMES: Final = re.compile(
    r"\.(?:log|txt|out|err|o\d+|e\d+)(?:\.\d+)?(?:\.(?:gz|bz2|xz|zst))?$|(?:^|/)(?:stdout|stderr)$"
)
_MAGIC: Final = {
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
}
_BINARY: Final = (
    b"\x7fELF",
    b"PK\x03\x04",
    b"\x89PNG",
    b"%PDF",
    b"\x93NUMPY",
    b"PAR1",
    b"\x80\x02",
    b"\x89DSPROF",
)


@dataclass(frozen=True, slots=True)
class Source:
    """One stream of a run and what its name tells."""

    name: str
    rank: int | None = None
    host: str | None = None


def sources_of(paths: Sequence[str | Path]) -> list[Source]:
    """Every file that the paths, folders and globs name, each once.

    Raises:
        DsprofError: a path does not exist, or a folder holds no logs.
    """
    found: dict[str, Source] = {}
    for path in map(str, paths):
        for name in _expand(path):
            found.setdefault(name, named(name))
    return list(found.values())


def _expand(path: str) -> list[str]:
    if path == "-" or _REMOTE.match(path):
        return [path]
    if os.path.isdir(path):
        return _logs_in(path)
    if os.path.exists(path):
        return [path]
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        raise DsprofError("no such file or folder", path, "check the spelling")
    return [
        name for match in matches for name in (_logs_in(match) if os.path.isdir(match) else [match])
    ]


def _logs_in(folder: str) -> list[str]:
    names = sorted(
        os.path.join(root, file)
        for root, folders, files in os.walk(folder)
        for file in files
        if not file.startswith(".")
    )
    logs = [name for name in names if _LOG_NAMES.search(name) or is_scalar_file(name)]
    if not logs:
        raise DsprofError(
            "the folder holds no logs",
            folder,
            "logs end in .log, .txt, .out, .err; name other files",
        )
    return logs


def named(name: str) -> Source:
    """Rank and host from names such as `x_rank3.log`, `worker-1.log`, `node0_stdout.txt`."""
    stem = re.split(r"[/\\]", name)[-1]
    while stem.lower().endswith(_ENDINGS):
        stem = stem[: stem.rindex(".")]
    rank = _RANK_IN_NAME.search(stem)
    host = None if rank else _HOST_IN_NAME.match(stem)
    return Source(name, int(rank[1]) if rank else None, host[1] if host else None)


def is_plain(name: str) -> bool:
    """Whether byte ranges of it can be read: a regular local file of plain lines."""
    if name == "-" or _REMOTE.match(name) or not os.path.isfile(name):
        return False
    try:
        with open(name, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return _compression(head) == "" and is_plain_text(head)


def open_bytes(name: str) -> BinaryIO:
    """A stream of the source's plain bytes; the caller closes it.

    Raises:
        DsprofError: it cannot be read, or it is no text at all.
    """
    if name == "-":
        return sys.stdin.buffer
    try:
        stream = _open_remote(name) if _REMOTE.match(name) else open(name, "rb")  # noqa: SIM115
    except OSError as error:
        reason = error.strerror or str(error)
        raise DsprofError(f"cannot be read: {reason}", name) from None
    head = stream.peek(16)[:16] if hasattr(stream, "peek") else stream.read(16)
    if not hasattr(stream, "peek"):
        stream.seek(0)
    if head.startswith(_BINARY):
        raise DsprofError("is a binary file, not a log", name, "name the text the job printed")
    return _decompressed(stream, _compression(head), name)


def damages() -> tuple[type[Exception], ...]:
    """What the decompressors raise where an archive is cut or damaged."""
    import lzma
    import zlib

    found: list[type[Exception]] = [OSError, EOFError, ValueError, zlib.error, lzma.LZMAError]
    for module, error in (("isal.isal_zlib", "error"), ("zstandard", "ZstdError")):
        with suppress(ImportError):
            found.append(getattr(import_module(module), error))
    return tuple(found)


def _compression(head: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")


def _decompressed(stream: BinaryIO, kind: str, name: str) -> BinaryIO:
    if kind == "gz":
        return _gzip(stream)
    if kind == "bz2":
        import bz2

        return cast("BinaryIO", bz2.open(stream))
    if kind == "xz":
        import lzma

        return cast("BinaryIO", lzma.open(stream))
    if kind == "zst":
        try:
            import zstandard
        except ImportError:
            raise DsprofError(
                "needs the package zstandard", name, "pip install zstandard"
            ) from None
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", reader), 1 << 18))
    return stream


def _gzip(stream: BinaryIO) -> BinaryIO:
    try:
        from isal import igzip
    except ImportError:
        import gzip

        return cast("BinaryIO", gzip.open(stream))
    return cast("BinaryIO", igzip.open(stream))  # type: ignore[no-untyped-call]


def _open_remote(name: str) -> BinaryIO:
    try:
        import fsspec
    except ImportError:
        raise DsprofError(
            "remote paths need fsspec", name, "pip install 'dsprof[remote]'"
        ) from None
    try:
        return cast("BinaryIO", fsspec.open(name, "rb").open())
    except (ImportError, ValueError) as error:
        raise DsprofError(str(error), name, "pip install 'dsprof[remote]'") from None
