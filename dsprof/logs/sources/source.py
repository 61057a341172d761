"""Where logs are: files, folders, globs, compressed, remote, standard input."""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, cast

from dsprof.errors import DsprofError
from dsprof.logs.sources.archives import compression, damages, unpacked
from dsprof.logs.sources.containers import is_plain_text
from dsprof.logs.sources.csv_monitor import is_scalar_file
from dsprof.logs.sources.hard_wraps import HEAD
from dsprof.logs.sources.lines import portions
from dsprof.recording.unbegun import said_of

_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]{1,15}://")
_RANK_IN_NAME: Final = re.compile(r"(?:^|[._-])rank[._-]?(\d+)(?=[_-]|\.\D|$)", re.IGNORECASE)
_HOST_IN_NAME: Final = re.compile(
    r"^(?:log[._-])?"
    r"([A-Za-z0-9.-]{0,60}?(?:worker|node|host|gpu|master|machine|dgx)[-_]?\d+"
    r"|ip-[\d-]+|\d{1,3}(?:\.\d{1,3}){3})"
    r"(?:[._-](?:stdout|stderr|std|out|err|log|output).*)?$"
)
_ATTEMPT: Final = re.compile(
    r"(?P<launch>(?P<agent>(?:.*[/\\])?)attempt_\d{1,6}[/\\])(?P<local>\d{1,4})[/\\]"
    r"(?:stdout|stderr)\.log",
    re.DOTALL,
)
_ENDINGS: Final = (".gz", ".bz2", ".xz", ".zst", ".log", ".txt", ".out", ".err")
_LOG_NAMES: Final = re.compile(
    r"\.(?:log|txt|out|err|o\d+|e\d+)(?:\.\d+)?(?:\.(?:gz|bz2|xz|zst))?$|(?:^|/)(?:stdout|stderr)$"
)
_BINARY: Final = (
    b"\x7fELF",
    b"\x89PNG",
    b"%PDF",
    b"\x93NUMPY",
    b"PAR1",
    b"\x80\x02",
    b"\x89DSPROF",
)
_BLOCK: Final = 512  # bytes, of tar
#: Archives of files, perhaps of several ranks or jobs: where their mark is, and what opens them.
_FILES: Final = ((0, b"PK\x03\x04", "zip", "unzip"), (257, b"ustar", "tar", "tar xf"))

#: What to do about a source that cannot be read to its end.
FETCH_AGAIN: Final = "fetch it again, whole"
#: Bytes that no text has in any encoding but UTF-16 and 32: control characters, without those
#: that lay out or colour a line, and 0, which crashes leave in logs.
_CONTROL: Final = bytes({*range(1, 32), 127} - {*b"\a\b\t\n\v\f\r\x1b"})
_LOOKED_AT: Final = 1 << 16
_NO_TEXT: Final = 0.02  # of random bytes a tenth are such; own


@dataclass(frozen=True, slots=True)
class Source:
    """One stream of a run and what its name tells.

    Attributes:
        family: the same for the files that ranks, or hosts, of one job write side by side.
        local: the rank on its host.
    """

    name: str
    rank: int | None = None
    host: str | None = None
    family: str = ""
    local: int | None = None


def sources_of(paths: Sequence[str | Path]) -> list[Source]:
    """Every file that the paths, folders and globs name, each once.

    Raises:
        DsprofError: a path does not exist, or a folder holds no logs.
    """
    found: dict[str, Source] = {}
    for path in map(str, paths):
        for name in _expand(path):
            found.setdefault(name, named(name))
    agents = {match["agent"] for match in map(_ATTEMPT.match, found) if match}
    if len(agents) > 1:  # torchrun's on several hosts: each has its own rank 0
        return [replace(source, local=None) for source in found.values()]
    return list(found.values())


def _expand(path: str) -> list[str]:
    if path == "-" or _REMOTE.match(path):
        return [path]
    if os.path.isdir(path):
        return _logs_in(path)
    if os.path.exists(path):
        return [path]
    if os.path.islink(path):
        raise DsprofError("is a link that leads nowhere", path, "name the file itself")
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        raise DsprofError("no such file or folder", path, "check the spelling")
    return [
        name for match in matches for name in (_logs_in(match) if os.path.isdir(match) else [match])
    ]


def _logs_in(folder: str) -> list[str]:
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DsprofError("the folder cannot be read", folder, "ask for the right to read it")
    names = sorted(
        os.path.join(root, file)
        for root, folders, files in os.walk(folder)
        for file in files
        if not file.startswith(".") and not _waits(os.path.join(root, file))
    )
    logs = [name for name in names if _LOG_NAMES.search(name) or is_scalar_file(name)]
    if not logs:
        raise DsprofError(
            "the folder holds no logs and no recordings",
            folder,
            said_of(folder) or "logs end in .log, .txt, .out, .err; name other files",
        )
    return logs


def _waits(path: str) -> bool:
    """Whether nobody may ever write what reading it waits for: a pipe, a socket, a device."""
    return os.path.exists(path) and not os.path.isfile(path)


def named(name: str) -> Source:
    """Rank and host from names such as `x_rank3.log`, `worker-1.log`, `node0_stdout.txt`."""
    stem = re.split(r"[/\\]", name)[-1]
    while stem.lower().endswith(_ENDINGS):
        stem = stem[: stem.rindex(".")]
    rank = _RANK_IN_NAME.search(stem)
    host = None if rank else _HOST_IN_NAME.match(stem)
    attempt = _ATTEMPT.match(name)
    return Source(
        name,
        int(rank[1]) if rank else None,
        host[1] if host else None,
        _family(name),
        int(attempt["local"]) if attempt else None,
    )


def _family(name: str) -> str:
    """The name without the rank and the number of the host in its last part; of torchrun's
    `attempt_0/3/stderr.log`, a launch and a local rank, that of the launch."""
    attempt = _ATTEMPT.match(name)
    if attempt:
        return attempt["launch"]
    stem = re.split(r"[/\\]", name)[-1]
    folder, stem = name[: len(name) - len(stem)], _RANK_IN_NAME.sub("", stem)
    host = _HOST_IN_NAME.match(stem)
    return folder + (host[1].rstrip("0123456789.-") + stem[host.end(1) :] if host else stem)


def is_plain(name: str) -> bool:
    """Whether byte ranges of it can be read: a regular local file of plain lines."""
    if name == "-" or _REMOTE.match(name) or not os.path.isfile(name):
        return False
    try:
        with open(name, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return compression(head) == "" and is_plain_text(head)


def bytes_of(name: str) -> Iterator[bytes]:
    """The source's plain bytes, portion by portion.

    Raises:
        DsprofError: it cannot be read, or not to its end; the portions before that are
            what could be read.
    """
    stream = open_bytes(name)
    count = 0
    try:
        for data in portions(stream):
            count += len(data)
            yield data
    except damages() as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        what = f"cannot be read beyond byte {count:,}: {reason}"
        raise DsprofError(what, name, FETCH_AGAIN) from None
    finally:
        if name != "-":
            stream.close()


def open_bytes(name: str) -> BinaryIO:
    """A stream of the source's plain bytes; the caller closes it.

    Raises:
        DsprofError: it cannot be read, or it is no text at all.
    """
    try:
        stream = _opened(name)
        head = _head(stream)
    except OSError as error:
        missing = "there is no such file" if isinstance(error, FileNotFoundError) else error
        reason = error.strerror or str(error.__cause__ or missing)
        todo = "ask for the right to read it" if isinstance(error, PermissionError) else ""
        if _REMOTE.match(name):
            todo = todo or "check the address, or fetch the file first and name that"
        raise DsprofError(f"cannot be read: {reason}", name, todo) from None
    if is_binary(head):
        stream.close()
        raise no_text(name)
    kind = compression(head)
    if kind:
        stream, head = unpacked(stream, kind, name), b""
        with suppress(*damages()):  # reading says so
            head = _head(stream)
    for at, mark, what, opens in _FILES:
        if head[at:].startswith(mark):
            stream.close()
            todo = f"unpack it ({opens}) and name the folder"
            raise DsprofError(f"is a {what} archive of files", name, todo)
    return stream


def _head(stream: BinaryIO) -> bytes:
    """Its first bytes, which stay to be read."""
    if hasattr(stream, "peek"):
        return cast("bytes", stream.peek(_BLOCK)[:_BLOCK])
    head = stream.read(_BLOCK)
    stream.seek(0)
    return head


def is_binary(head: bytes) -> bool:
    """Whether a file that begins so is of a known kind that is no text."""
    return head.startswith(_BINARY)


def no_text(name: str) -> DsprofError:
    return DsprofError("is a binary file, not a log", name, "name the text the job printed")


def is_text(name: str) -> bool:
    """Whether a source begins as text does; True where it cannot be looked at again."""
    if name == "-":
        return True
    with open_bytes(name) as stream:
        try:
            head = stream.read(_LOOKED_AT)
        except damages():
            return True
    return len(head) - len(head.translate(None, _CONTROL)) <= _NO_TEXT * len(head)


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    if _REMOTE.match(name):
        return _open_remote(name)
    mode = os.stat(name).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # some never end
        raise DsprofError("is a device, not a log", name, "name a file, or - for standard input")
    return open(name, "rb")


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
