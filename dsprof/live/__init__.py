"""A running job on a terminal: what it does now, what holds it back, who is late.

    files, pipe ─► feed ─► store ─► watch ─► picture ─► text, JSON
                                        (apart) picture ─► screens

It only reads what the job writes anyway, and never touches the job.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from dsprof.errors import DsprofError

__all__ = ["live"]


def live(
    paths: Sequence[str],
    *,
    once: bool = False,
    as_json: bool = False,
    every: float = 1.0,
    link: str | None = None,
    parsers: Sequence[Path] = (),
) -> None:
    """Watch what `paths` hold.

    Args:
        paths: recordings, folders of them, growing logs, or "-" for standard input; what is
            not there yet is waited for.
        once: print the picture of now and end.
        as_json: print objects instead, one a refresh.
        every: seconds between two refreshes, at least: one costs a fifth of a core at most.
        link: speed of one node's network, "100Gb".
        parsers: folders of dialect files to read with, besides the built-in ones.

    Raises:
        DsprofError: with `once`, nothing is there; else there is no terminal to draw on.
    """
    for path in paths:
        _must_be_followable(path)
    screen = not once and not as_json
    if screen and (stream := _no_terminal()):
        raise DsprofError(f"{stream} is no terminal", "", "use --once or --json")
    try:
        if screen:
            _screens(paths, every, link, parsers)
        else:
            _headless(paths, every, link, parsers, once=once, as_json=as_json)
    except KeyboardInterrupt:  # how one leaves a watch
        pass


def _screens(paths: Sequence[str], every: float, link: str | None, parsers: Sequence[Path]) -> None:
    """The reading begins at once, while this process still imports what draws."""
    from dsprof.live.apart import Apart

    pipe = _keyboard_back() if "-" in paths else 0
    job = Apart(paths, every, pipe, link=link, parsers=[Path(path) for path in parsers])
    try:
        from dsprof.live.app import Live

        Live(job).run_to_end()
    finally:
        job.close()


def _headless(
    paths: Sequence[str],
    every: float,
    link: str | None,
    parsers: Sequence[Path],
    *,
    once: bool,
    as_json: bool,
) -> None:
    from dsprof.live import headless
    from dsprof.live.watch import Watch
    from dsprof.run import strings

    strings.of_python()
    watch = Watch(paths, parsers=parsers, link=link)
    try:
        if once:
            headless.once(watch, as_json=as_json)
        else:
            headless.follow(watch, every)
    finally:
        watch.close()


def _must_be_followable(path: str) -> None:
    """Raises:
    DsprofError: somebody would have to type it, or it is no file that can be read again.
    """
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():
            how = "pipe a log into it: `kubectl logs -f POD | dsprof live -`"
            raise DsprofError("standard input is a terminal", path, how)
        return
    try:
        kind = Path(path).stat().st_mode
    except OSError:
        return  # it may come, or why it cannot be read is told
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise DsprofError("is a pipe or a device", path, "send it to standard input, and name -")


def _no_terminal() -> str | None:
    """Which stream is no terminal: screens are drawn on standard error, and who sends standard
    output elsewhere wants what can be read there."""
    streams = {"standard output": sys.__stdout__, "standard error": sys.__stderr__}
    return next((name for name, one in streams.items() if not (one and one.isatty())), None)


def _keyboard_back() -> int:
    """The log takes standard input: keys come from the terminal itself. The log's descriptor."""
    pipe = os.dup(0)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise DsprofError("has no keyboard beside it", "-", "use --once or --json") from None
    os.dup2(terminal, 0)
    os.close(terminal)
    return pipe
