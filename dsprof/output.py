"""Writing to standard output and standard error, with broken pipes and full disks handled."""

from __future__ import annotations

import codecs
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from dsprof.errors import DsprofError
from dsprof.quotes import quoted

TRACEBACK: Final = "DSPROF_TRACEBACK"  #: environment variable; 1 shows the traceback of a bug

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SAID: Final = 200  #: characters of an unexpected error

#: Replacements for terminals without Unicode, one character for one, so that columns stay aligned;
#: `±` stands in no column.
_ASCII: Final = str.maketrans("µ×→…–—·•≥≤’“”", 'ux>.--**><\'""') | {ord("±"): "+-"}


def prepare() -> None:
    """Prepare the standard streams, so that neither encodings nor closed streams make writing fail;
    hide libraries' warnings, and report unexpected exceptions as bugs.
    """
    codecs.register_error("dsprof", _nearest)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed by the parent process
            nowhere = Path(os.devnull)
            setattr(sys, name, nowhere.open("w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="dsprof")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # they are meant for developers
    sys.excepthook = _bug


def put(text: str) -> bool:
    """Write to standard output; whether anybody still reads it. A broken pipe is no error: the
    reader has seen enough.

    Raises:
        DsprofError: it cannot be written, as on a full disk.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard()
        return False
    except OSError as error:
        discard()
        raise refused(error, "standard output") from None
    return True


def discard() -> None:
    """Redirect standard output to the null device, so that flushing the rest of its buffer at exit
    does not fail again.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def tell(text: str) -> None:
    """Print one line on standard error. Failures are ignored, because there is nowhere left to
    report them.
    """
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def refused(error: OSError, where: str) -> DsprofError:
    """The error to raise if a file or stream cannot be written; `where` names it."""
    folder = Path(where).parent
    if not folder.is_dir():
        todo = "create it or choose another file"
        return DsprofError(f"cannot be written: there is no folder {folder}", where, todo)
    reason = error.strerror or str(error)
    room = "make room or " if error.errno in _FULL else ""
    return DsprofError(f"cannot be written: {reason}", where, f"{room}choose another file")


def spare(path: str | Path, sources: Iterable[str]) -> None:
    """Check that writing `path` would not overwrite one of the sources that were read.

    Raises:
        DsprofError: `path` is one of the sources.
    """
    for source in sources:
        with suppress(OSError):  # it does not exist or is no local file
            if Path(path).samefile(source):
                todo = "choose another file: writing would destroy it"
                raise DsprofError("is what was read", str(path), todo)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def _bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an unexpected exception: in one line, or as a traceback if `TRACEBACK` is set."""
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(kind, error, trace)
        return
    place = traceback.extract_tb(trace)[-1] if trace else None
    where = f" at {Path(place.filename).name}:{place.lineno}" if place else ""
    said = quoted(" ".join(f"{kind.__name__}: {error}".split()), _SAID)
    tell(
        f"dsprof: bug: {said}{where} (please report it with the log's lines that cause it; "
        f"{TRACEBACK}=1 shows the traceback)"
    )
