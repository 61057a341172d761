"""How `bench` calls dsprof's reader of logs, in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa


def needles() -> list[bytes]:
    """Every literal of the built-in dialects that lies within a line, as ripgrep wants it."""
    from dsprof import grammar

    return [needle for needle in grammar.builtin().needles if b"\n" not in needle]


def events(paths: Sequence[Path], processes: int = 1) -> pa.Table:
    """All rows that the built-in dialects find in the files."""
    from dsprof import logs

    return logs.read(list(paths), processes=processes).events


def events_in_pieces(path: Path, sizes: Iterable[int]) -> pa.Table:
    """The same of one file that is still growing, read in pieces of those sizes."""
    from dsprof import grammar, logs
    from dsprof.logs.sources.source import named

    reader = logs.Reader(grammar.builtin(), named(str(path)))
    with path.open("rb") as log:
        for size in sizes:
            if not (data := log.read(size)):
                break
            reader.feed(data)
    reader.finish()
    return reader.log().events
