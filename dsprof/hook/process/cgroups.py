"""Control groups: what limits this process and others together."""

from __future__ import annotations

from pathlib import Path


def groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and its ancestors, nearest first: of version 2, then
    of version 1 where that has the controller.

    The last of each is what is mounted. In a container that is its own group, whatever path the
    kernel tells.
    """
    mounted = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return [mounted]
    found = _upwards(mounted, next((line[4:] for line in lines if line.startswith("0::/")), ""))
    for line in lines:
        _, controllers, inside = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            found += _upwards(mounted / controllers, inside[1:])
    return found


def _upwards(mounted: Path, inside: str) -> list[Path]:
    parts = Path(inside).parts
    return [mounted.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def number(file: Path) -> int | None:
    """The number in a file; None if it says "max" or does not exist."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def table(file: Path) -> dict[str, int]:
    """The lines of a file that are a word and a number."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return {}
    words = [line.split() for line in lines]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}
