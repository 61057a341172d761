"""Who printed each record, and when: what stands in front of it.

Prefixes are read once a batch of records is full, equal ones once: what a process prints in
the same millisecond has the same prefix. A record that shares its line with another, or
whose sender is wanted at once, has its prefix read as it comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import numpy as np

from dsprof.events import TASK
from dsprof.logs.columns import clocks
from dsprof.logs.columns.codes import Codes
from dsprof.logs.prefixes.prefixes import Prefixes
from dsprof.logs.prefixes.wrappers import Plan, Span

#: Rank, local rank and host code; -1 where unknown.
Who = tuple[int, int, int]
NOBODY: Final = 0  # code of (-1, -1, -1)

#: Code of who, time stamp as printed, and the logger's own where a wrapper put that one there.
Sender = tuple[int, bytes | None, bytes | None]
_KEPT_WHO: Final = 4096
_LONGEST_FIRST: Final = 4096


class Senders:
    """Reads the prefixes of one source.

    Attributes:
        hosts: names of hosts.
        headers: how often each `file:line` of a logger header was seen.
        month: of the first full date, as `12 * year + month - 1`, 0 before: it tells the year of
            clocks without one.
    """

    def __init__(self, month: int | None = 0) -> None:
        """`month` is None where what lies in front, and is read elsewhere, may tell it."""
        self.hosts: Codes[str] = Codes()
        self.headers: Counter[bytes] = Counter()
        self.month = month or 0
        self._waits = month is None
        self._told_at = -1  # place in the source where the month is told
        self._whos: Codes[Who] = Codes()
        self._whos((-1, -1, -1))
        self._prefixes = Prefixes()
        self._by_words: dict[bytes, int] = {}  # who, by the words that name a process

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: what was found, not the means of finding."""
        return {name: getattr(self, name) for name in ("hosts", "headers", "month", "_told_at")}

    def joined(self, later: Senders, at: np.ndarray, offset: np.ndarray, size: int) -> np.ndarray:
        """Takes over what a range told that begins behind `size` bytes; gives its times `at`."""
        self.headers += later.headers
        if not self.month:
            self.month, self._told_at = later.month, later._told_at + size
        return self._dated(at, offset)

    def apart(self) -> Senders:
        """The same codes, for records that are counted elsewhere."""
        other = Senders()
        vars(other).update(vars(self) | {"headers": Counter()})
        return other

    def read(self, prefix: bytes, before: Sender | bytes | None = None, times: int = 1) -> Sender:
        """The sender of so many records, each behind this prefix.

        Args:
            before: who printed the record in front on the line, or that one's prefix: what
                the own prefix does not tell stays.
        """
        prefix, plan = self._prefixes.plan(prefix)
        if plan.where is not None:
            self.headers[prefix[plan.where[0] : plan.where[1]]] += times
        at, own = (
            prefix[span[0] : span[1]] if span is not None else None
            for span in (plan.at or plan.clock, plan.own)
        )
        if before is None:
            return self._who(prefix, plan), at, own
        who, *earlier = self.known(before) if isinstance(before, bytes) else before
        if at is None:
            at, own = earlier
        elif plan.at is not None and earlier[1] is not None:  # one wrapper is in front of both
            at, own = earlier[0], own or at
        return self.identify(prefix, plan, who), at, own

    def known(self, prefix: bytes) -> Sender:
        """The sender of a record that is counted elsewhere."""
        return self.read(prefix, times=0)

    def who_began(self, text: bytes, line: int, kept: dict[bytes, Sender]) -> Sender:
        r"""A `\r` segment belongs to whoever began its line, at another time.

        Args:
            line: where the line begins in the text.
            kept: those who began lines like it.
        """
        first = text[line : text.find(b"\r", line)][:_LONGEST_FIRST]
        if first not in kept:
            kept[first] = self.known(first)[0], None, None
        return kept[first]

    def read_all(
        self, senders: Sequence[Sender | bytes], offset: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Columns `rank`, `local`, `host` (a code) and `at` (microseconds), parallel to `senders`.

        Args:
            senders: what is known of each, or the prefix that tells.
            offset: place of each record in the source.
        """
        times = Counter(senders)
        told: dict[Sender | bytes, Sender] = {s: s for s in times if not isinstance(s, bytes)}
        prefixes = (sender for sender in times if isinstance(sender, bytes))
        for alike, as_read, plan in self._prefixes.alike(prefixes):
            counts = map(times.__getitem__, alike)
            told.update(zip(alike, self._read_alike(as_read, plan, counts), strict=False))
        number = {sender: i for i, sender in enumerate(times)}
        which = np.fromiter(map(number.__getitem__, senders), np.int64, len(senders))
        whos, stamps, owns = zip(*map(told.__getitem__, times), strict=True)
        rank, local, host = np.array(self._whos.values, np.int32).T[:, np.array(whos)][:, which]
        at = self._times(stamps, owns, which, offset)
        if any(owns):
            at = clocks.as_logged(clocks.microseconds(owns)[which], at)
        return {"rank": rank, "local": local, "host": host, "at": at}

    def _read_alike(
        self, prefixes: Sequence[bytes], plan: Plan, times: Iterable[int]
    ) -> Iterable[Sender]:
        """The senders of prefixes of one shape, each of so many records."""
        if plan.where is not None:
            for where, count in zip(map(_at(plan.where), prefixes), times, strict=True):
                self.headers[where] += count
        stamp = plan.at or plan.clock
        stamps = map(_at(stamp), prefixes) if stamp is not None else repeat(None)
        owns = map(_at(plan.own), prefixes) if plan.own is not None else repeat(None)
        _, spans = plan.names
        if not spans:
            return zip(repeat(NOBODY, len(prefixes)), stamps, owns, strict=False)
        names = [*map(_at(*spans), prefixes)]
        whos = {
            name: self.identify(prefix, plan)
            for name, prefix in dict(zip(names, prefixes, strict=True)).items()
        }
        return zip(map(whos.__getitem__, names), stamps, owns, strict=False)

    def may_be(self, who: int, other: int) -> bool:
        """Whether nothing that `who` tells contradicts `other`."""
        told = zip(self._whos.values[who], self._whos.values[other], strict=True)
        return all(mine < 0 or mine == theirs for mine, theirs in told)

    def identify(self, prefix: bytes, plan: Plan, known: int = NOBODY) -> int:
        """Rank, local rank and host of a prefix, as a code; what it does not tell stays."""
        if not plan.names[1]:
            return known
        rank, local, host = self._whos.values[known]
        if plan.whose is not None:
            rank = int(prefix[plan.whose[0] : plan.whose[1]][:9])
        if plan.local is not None:
            local = int(prefix[plan.local[0] : plan.local[1]])
        if plan.host is not None:
            host = self.hosts(prefix[plan.host[0] : plan.host[1]].decode("ascii", "replace"))
        elif plan.task is not None and host < 0:
            task = prefix[plan.task[0] : plan.task[1]].decode("ascii")
            host = self.hosts(f"{TASK}{task}")
        return self._whos((rank, local, host))

    def _who(self, prefix: bytes, plan: Plan) -> int:
        """The same of a prefix that tells all that is known: the same words, the same process."""
        words, spans = plan.names
        if not spans:
            return NOBODY
        for begin, end in spans:
            words += prefix[begin:end] + b" "
        known = self._by_words.get(words)
        if known is None:
            if len(self._by_words) >= _KEPT_WHO:
                self._by_words.clear()
            known = self._by_words[words] = self.identify(prefix, plan)
        return known

    def _times(
        self,
        stamps: Sequence[bytes | None],
        owns: Sequence[bytes | None],
        which: np.ndarray,
        offset: np.ndarray,
    ) -> np.ndarray:
        """Microseconds of each record, whose stamp is `stamps[which]`.

        Clocks get their year by the date that was told before them, by a stamp or by a logger
        behind one (`owns`); without one they are none, or wait for it in the year 0.
        """
        if not self.month:
            full = [own or stamp or b"" for own, stamp in zip(owns, stamps, strict=True)]
            dated = np.array([stamp[4:5] == b"-" and stamp[5:7].isdigit() for stamp in full])
            records = np.flatnonzero(dated[which])
            if len(records):
                first = records[np.argmin(offset[records])]
                date = full[which[first]]
                self.month = 12 * int(date[:4]) + int(date[5:7]) - 1
                self._told_at = int(offset[first])
        middles = set(map(itemgetter(slice(3, 5)), filter(None, stamps)))
        if not any(b" " in middle for middle in middles):
            plain: np.ndarray = clocks.microseconds(stamps)[which]
            return plain
        told = [clocks.undated(s) if s and b" " in s[3:5] else s for s in stamps]
        at: np.ndarray = clocks.microseconds(told)[which]
        return at if self._waits else self._dated(at, offset)

    def _dated(self, at: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Times in the year that was told in front of them, `UNKNOWN` where they wait for one."""
        behind = offset > (self._told_at if self.month else np.inf)
        return np.where(behind, clocks.behind(at, self.month), clocks.in_year(at, 0))


def _at(*spans: Span) -> Callable[[bytes], Any]:
    """Gives what stands there: the bytes of one span, a tuple of those of several."""
    return itemgetter(*(slice(*span) for span in spans))
