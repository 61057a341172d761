"""`dsprof live` without a screen: one picture, or one object a refresh."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dsprof.errors import DsprofError
from dsprof.live.picture import Picture
from dsprof.live.text import document, lines
from dsprof.output import put
from dsprof.run.nothing import empty, no_log

if TYPE_CHECKING:
    from dsprof.live.feed import Feed
    from dsprof.live.watch import Watch

_EMPTY: Final = "the folder holds no logs and no recordings"
_LONGEST: Final = 30.0  # seconds that reading what is there already may take
_WIDEST: Final = 100  # columns: longer lines are hard to read


def once(watch: Watch, *, as_json: bool) -> None:
    """The picture of what is there now.

    Raises:
        DsprofError: nothing is there, or it cannot be printed.
    """
    picture = settled(watch)
    nothing = picture.step is None and not picture.records and not picture.problems
    if nothing and (why := _nothing_there(watch.feed)):
        raise why
    say(picture, as_json=as_json)


def _nothing_there(feed: Feed) -> DsprofError | None:
    """Why there is nothing to wait for; None if what is there may yet tell something."""
    if feed.missing:
        return DsprofError("no such file or folder", feed.missing[0], "check the spelling")
    if feed.faults:
        return DsprofError(next(iter(feed.faults.values())))
    if feed.processes:
        return None
    if not feed.logs:
        return DsprofError(_EMPTY, feed.paths[0], feed.begins or "name what the job writes")
    if not any(log.stream.offset for log in feed.logs.values()):
        return empty(feed.paths)
    return no_log([*feed.logs])


def settled(watch: Watch, longest: float = _LONGEST) -> Picture:
    """The picture when all that is there has been read, or `longest` seconds have gone."""
    until = time.monotonic() + longest
    picture = watch.refresh(longest / 10)
    while (picture.behind or watch.stale) and time.monotonic() < until:
        picture = watch.refresh(longest / 10)
    return picture


def follow(watch: Watch, every: float, rest: Callable[[float], None] = time.sleep) -> None:
    """One JSON object a refresh, until the job has ended or nobody reads.

    Raises:
        DsprofError: it cannot be printed.
    """
    while True:
        begun = time.process_time()
        picture = watch.refresh()
        if not say(picture, as_json=True) or picture.state == "ended":
            return
        rest(max(every, pause(time.process_time() - begun)))


def pause(cost: float) -> float:
    """Seconds to rest after a refresh of so many CPU seconds: the job needs the machine."""
    return _REST * cost


_REST: Final = 4.0  # a fifth of a core at most


def say(picture: Picture, *, as_json: bool) -> bool:
    """Print it; whether anybody reads on."""
    if as_json:
        return put(json.dumps(document(picture), allow_nan=False) + "\n")
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    return put("".join(f"{line.rstrip()}\n" for line in lines(picture, width)))
