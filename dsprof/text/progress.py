"""How far a long read is, on a terminal's standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

_LONG: Final = 64 << 20  # bytes: below that nobody waits


@contextmanager
def reading(total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what to call with the number of bytes just read; the bar goes when all is read.

    Args:
        total: bytes to read, None if that is not known (compressed, standard input).
    """
    done = 0
    bar: Progress | None = None

    def read(count: int) -> None:
        nonlocal done, bar
        done += count
        if bar is None and done > _LONG and sys.stderr.isatty():
            bar = _bar(total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield read
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int | None) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    parts = "reading", BarColumn(), DownloadColumn(), TransferSpeedColumn()
    bar = Progress(*parts, console=Console(file=sys.stderr), transient=True)
    bar.add_task("reading", total=total)
    bar.start()
    return bar
