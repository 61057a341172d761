"""Which process of this host is writing a recording."""

from __future__ import annotations

from pathlib import Path

from dsprof.recording.layout import stem_of


def is_writing(pid: int, recording: Path) -> bool:
    """Whether process `pid` has a file of this recording open, so that it is the recorded one.

    In a container with its own process ids, the same id is a different process here.
    """
    held = Path(f"/proc/{pid}/fd")
    try:
        return any(_is_link_to(link, recording) for link in held.iterdir())
    except OSError:  # gone, or we lack permission
        return False


def _is_link_to(link: Path, recording: Path) -> bool:
    """Compare names first: a file on another file system may be slow to stat."""
    try:
        name = link.readlink().name
        file = recording.with_name(name)
        mine = stem_of(name) or name, stem_of(recording.name) or recording.name
        return mine[0] == mine[1] and link.samefile(file)
    except (OSError, ValueError):  # ValueError: a link without a name
        return False
