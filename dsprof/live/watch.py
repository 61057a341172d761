"""Looks at a run again and again: reads on, judges, and draws the picture of it.

`refresh` costs what is new. The run's last steps are judged whenever there is something
new; the whole of it more rarely the more that costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from dsprof import grammar as dialects
from dsprof.events import Class
from dsprof.findings import Finding
from dsprof.live.drawn import Drawn, drawn
from dsprof.live.feed import Feed
from dsprof.live.picture import Bar, Picture, Sighting
from dsprof.live.status import Sources, status_of
from dsprof.live.store import Store
from dsprof.live.tables import rank_bars
from dsprof.live.tail import Lines, Tail, excerpt, tail_of
from dsprof.run import Run
from dsprof.run.table import frame_of
from dsprof.text.words import number
from dsprof.units import bandwidth

_BARS: Final = 400
_SHARE: Final = 0.1  # of the time that judging the whole run may take
_REMEMBERED: Final = 600.0  # seconds that a finding is shown after it has gone
_CLASSES: Final = tuple(str(word) for word in Class)


class Watch:
    """What `paths` hold, watched.

    Attributes:
        feed: where it comes from.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        parsers: Sequence[Path] = (),
        link: str | None = None,
        pipe: int = 0,
    ) -> None:
        self.grammar = dialects.load(list(parsers))
        self._facts = {"link_bytes_per_second": bandwidth(link)} if link else {}
        self._store = Store()
        self.feed = Feed(paths, self.grammar, self._store, pipe)
        self._now: Run | None = None
        self._since: Run | None = None
        self._since_at = self._since_took = 0.0
        self._stale = self._changed = False
        self._bars: dict[tuple[int, int, int], Bar] = {}
        self._seen: dict[tuple[str, tuple[int, ...]], Sighting] = {}
        self._deaths = 0
        self._drawn = Drawn()
        self._tails: dict[str, Tail] = {}

    def refresh(self, seconds: float = 0.25) -> Picture:
        """Read for about so long, then the picture of what is known."""
        new = self.feed.poll(seconds)
        at = time.time()
        died = sum(process.state == "died" for process in self.feed.processes)
        if new or died != self._deaths or self._now is None:
            self._deaths = died
            self._judge()
        if self._since is None:
            self._since = self._now  # something is there at once; the rest at the next look
        elif self._stale and self._may_judge_whole():
            self._judge_whole()
        if self._changed:
            self._draw(at)
        pa.default_memory_pool().release_unused()
        self._tails = {name: tail_of(log) for name, log in self.feed.logs.items()}
        return self._picture(at)

    def run(self) -> Run:
        """All that is kept of the run."""
        return self._run(self._store.sample())

    def bars_of(self, rank: int) -> list[Bar]:
        """The last steps of one rank."""
        return rank_bars(self._now, rank) if self._now else []

    def tails(self) -> dict[str, Tail]:
        """The last lines of every log, as of the last refresh."""
        return self._tails

    def excerpt(self, source: str, line: int) -> Lines | None:
        """The lines around one of a log; None if it cannot be read."""
        log = self.feed.logs.get(source)
        return excerpt(source, *log.place_of(line), line) if log and log.base is not None else None

    def close(self) -> None:
        self.feed.close()

    def _run(self, table: pa.Table) -> Run:
        return Run(frame_of(table), meta={**self.feed.facts, **self._facts}, grammar=self.grammar)

    def _judge(self) -> None:
        """The last steps."""
        self._now = None  # two of them at once would be memory for nothing
        self._now = self._run(self._store.recent())
        self._stale = self._changed = True

    def _may_judge_whole(self) -> bool:
        if self._drawn.step < 0:
            return True  # the first steps are worth it
        return time.monotonic() - self._since_at >= self._since_took / _SHARE

    def _judge_whole(self) -> None:
        """All that is kept of the run."""
        begun = time.monotonic()
        self._since = self.run()
        _ = self._since.findings
        self._since_at = time.monotonic()
        self._since_took = self._since_at - begun
        self._stale, self._changed = False, True

    def _draw(self, at: float) -> None:
        assert self._now is not None
        assert self._since is not None
        self._changed = False
        self._remember_bars(self._now)
        self._remember_findings(at)
        self._drawn = drawn(self._now, self._since, self.feed.processes)

    def _remember_bars(self, run: Run) -> None:
        """Steps drawn once stay, until there are too many."""
        for row in run.steps[run.steps["seconds"].notna()].to_dict("records"):
            key = (int(row["segment"]), int(row["step"]), int(row["engine"]))
            classes = tuple(number(row[name]) for name in _CLASSES)
            self._bars[key] = Bar(key[1], float(row["seconds"]), classes, str(row["bound"]))
        for key in sorted(self._bars)[:-_BARS]:
            del self._bars[key]

    def _remember_findings(self, at: float) -> None:
        now, since = self._now, self._since
        shown = {_key(found): (found, False) for found in _findings(since)}
        shown |= {_key(found): (found, True) for found in _findings(now)}
        for key, (found, is_now) in shown.items():
            before = self._seen.get(key)
            begun = before.since if before and before.gone is None else at
            self._seen[key] = Sighting(found, begun, None, is_now)
        for key, seen in list(self._seen.items()):
            if key not in shown and seen.gone is None:
                self._seen[key] = Sighting(seen.finding, seen.since, at, now=False)
            elif seen.gone is not None and at - seen.gone > _REMEMBERED:
                del self._seen[key]

    def _picture(self, at: float) -> Picture:
        feed, drawn_ = self.feed, self._drawn
        last = max((p.segment for p in feed.processes), default=0)
        processes = [p for p in feed.processes if p.segment == last]
        step = max([drawn_.step, *(p.step for p in processes if p.step)], default=-1)
        idle = max(0.0, at - feed.grown) if feed.grown else None
        sources = Sources(
            missing=feed.missing,
            faults=list(feed.faults.values()),
            processes=processes,
            logs=len(feed.logs),
            closed=all(log.stream.ended for log in feed.logs.values()),
            failure=drawn_.failure,
            idle=idle,
        )
        known_step = step if step >= 0 else None
        state, note = status_of(sources, known_step, drawn_.world, drawn_.figures.seconds)
        return Picture(
            at=at,
            state=state,
            note=note,
            idle=idle,
            sources=tuple(feed.paths),
            framework=drawn_.framework,
            world=drawn_.world,
            launches=len(drawn_.segments | {p.segment for p in feed.processes}),
            step=known_step,
            behind=feed.behind,
            every=self._store.every,
            figures=drawn_.figures,
            bars=tuple(self._bars[key] for key in sorted(self._bars)),
            now=drawn_.now,
            since=drawn_.since,
            findings=tuple(sorted(self._seen.values(), key=_order)),
            ranks=drawn_.ranks,
            comm=drawn_.comm,
            memory=drawn_.memory,
            gpus=drawn_.gpus,
            problems=drawn_.problems,
        )


def _findings(run: Run | None) -> list[Finding]:
    """Before the first step nothing is missing: it is only not there yet."""
    if run is None:
        return []
    early = run.steps.empty
    return [found for found in run.findings if not (early and found.rule == "unaccounted-time")]


def _key(found: Finding) -> tuple[str, tuple[int, ...]]:
    """Two findings of one key are the same one, seen twice."""
    return found.rule, found.ranks[:1]


def _order(seen: Sighting) -> tuple[bool, bool, int]:
    """Those of now, then those of the whole run, then those that have gone."""
    severity = ("critical", "warning", "info").index(str(seen.finding.severity))
    return seen.gone is not None, not seen.now, severity
