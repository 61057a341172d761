"""What to say of sources in which nothing was understood."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsprof.errors import DsprofError
from dsprof.logs.sources.source import FETCH_AGAIN, is_text, no_text

if TYPE_CHECKING:
    from dsprof.logs import Coverage


def empty(paths: Sequence[str]) -> DsprofError:
    """Said of sources without a byte."""
    where = "standard input" if list(paths) == ["-"] else _where(paths)
    return DsprofError("is empty", where, "name the file that the job's output goes to")


def no_log(paths: Sequence[str]) -> DsprofError | None:
    """Said of a file in which nothing was understood and that is no text; None if it is text."""
    only = paths[0] if len(paths) == 1 and Path(paths[0]).is_file() else ""
    return no_text(only) if only and not is_text(only) else None


def _where(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def nothing_read(
    paths: Sequence[str], coverage: Coverage | None, faults: Sequence[tuple[str, int, str]]
) -> DsprofError:
    """Why there is no run, and what to do about it.

    Args:
        paths: what was to be read.
        coverage: what looked like something in it; None of recordings alone.
        faults: sources that could not be read to their end: name, line and why.
    """
    where = _where(paths)
    if coverage is None:
        return DsprofError("nothing is recorded yet", where, "wait for the first step")
    if not coverage.bytes:
        return empty(paths)
    for source, line, why in faults:
        return DsprofError(
            f"{why} (line {line:,}), and nothing before it is a metric, timer or failure",
            source,
            FETCH_AGAIN,
        )
    if binary := no_log(paths):
        return binary
    lines = "its only line" if coverage.lines < 2 else f"its {coverage.lines:,} lines"
    if not coverage.metric_lines:
        return DsprofError(
            f"no metric, timer or failure that dsprof knows is in {lines}",
            where,
            "name the file that the job's own output goes to; "
            '"wall_clock_breakdown": true lets DeepSpeed print timers',
        )
    if coverage.lines < 2:
        told = f"{lines} looks like metrics, and is not understood"
    else:
        told = f"{coverage.metric_lines:,} of {lines} look like metrics, and none is understood"
    return DsprofError(
        told,
        where,
        f"`dsprof parsers --unknown {shlex.quote(paths[0])}` shows their shapes",
    )
