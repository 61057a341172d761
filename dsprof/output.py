"""Standard output and standard error, as shells, pipes and full disks leave them."""

from __future__ import annotations

import codecs
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

TRACEBACK: Final = "DSPROF_TRACEBACK"  #: set to 1 in the environment, it shows where a bug is

#: What a terminal without Unicode gets, one letter for one: columns stay columns.
_ASCII: Final = str.maketrans("µ×→…–—·•≥’“”", 'ux>.--**>\'""')


def prepare() -> None:
    """Make writing safe: no encoding, closed stream or library's warning stands in its way."""
    codecs.register_error("dsprof", _nearest)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed by the caller
            nowhere = Path(os.devnull)
            setattr(sys, name, nowhere.open("w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="dsprof")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # they speak to developers
    sys.excepthook = _bug


def put(text: str) -> None:
    """Write to standard output; a reader who has seen enough is no error.

    Raises:
        DsprofError: there is no room for it.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard()
    except OSError as error:
        discard()
        raise refused(error, "standard output") from None


def discard() -> None:
    """Let standard output lead nowhere: what is left in its buffer must not fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def tell(text: str) -> None:
    """One line on standard error; if that too is lost, nobody is left to hear of it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def refused(error: OSError, where: str) -> DsprofError:
    """What to raise where a file or stream takes no more."""
    reason = error.strerror or str(error)
    return DsprofError(f"cannot be written: {reason}", where, "make room or choose another file")


def spare(path: str | Path, sources: Iterable[str]) -> None:
    """Nothing that was read may be written over.

    Raises:
        DsprofError: `path` is one of the sources.
    """
    for source in sources:
        with suppress(OSError):  # it is not there, or is none of this machine's files
            if Path(path).samefile(source):
                todo = "choose another file: writing would destroy it"
                raise DsprofError("is what was read", str(path), todo)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def _bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The last word on an exception that nobody expected: one line, or all of it if asked."""
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(kind, error, trace)
        return
    place = traceback.extract_tb(trace)[-1] if trace else None
    where = f" at {Path(place.filename).name}:{place.lineno}" if place else ""
    said = " ".join(f"{kind.__name__}: {error}".split())[:200]
    tell(
        f"dsprof: bug: {said}{where} (please report it with the log's lines that cause it; "
        f"{TRACEBACK}=1 shows the traceback)"
    )
