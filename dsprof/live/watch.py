"""Looks at a run again and again: reads on, judges, and draws the picture of it.

`refresh` costs what is new. What judges is imported when it is first needed: how far the job
is can be shown before. The run's last steps are judged whenever there is something
new; the whole of it more rarely the more that costs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dsprof import grammar as dialects
from dsprof.findings import Finding
from dsprof.live.feed import Feed
from dsprof.live.freed import give_back
from dsprof.live.judged import Place, Recent, Whole
from dsprof.live.launches import in_a_row
from dsprof.live.log import LogFollower
from dsprof.live.picture import Bar, Lines, Picture, Sighting, Tail
from dsprof.live.status import Sources, status_of
from dsprof.live.store import Store
from dsprof.live.tail import excerpt, tail_of
from dsprof.text.words import one_of_jobs
from dsprof.units import bandwidth

if TYPE_CHECKING:
    from dsprof.recording.launches import Gone
    from dsprof.run import Run

_BARS: Final = 400
_SHARE: Final = 0.1  # of the time that judging the whole run may take
_FIRST: Final = "the last steps are being judged"
_REMEMBERED: Final = 600.0  # seconds that a finding is shown after it has gone


class Watch:
    """What `paths` hold, watched. One thread refreshes it; others may ask it meanwhile.

    Attributes:
        feed: where it comes from.
        asked: `time.monotonic()` of when the files were asked, 0 once they have answered.
        stale: the whole run has not been judged since something new came.
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
        self.asked = 0.0
        self._facts = {"link_bytes_per_second": bandwidth(link)} if link else {}
        self._store = Store()
        self._lock = threading.Lock()  # of the feed and the store
        self.feed = Feed(paths, self.grammar, self._store, pipe)
        self._recent, self._whole = Recent(), Whole()
        self._judged_at = self._judging_took = 0.0
        self.stale = self._judged = False
        self._bars: dict[Place, Bar] = {}
        self._seen: dict[Hashable, Sighting] = {}  # as a report lists them, the gone behind
        self._deaths: list[Gone | None] = []
        self._tails: dict[str, tuple[pa.Table, Tail]] = {}

    def refresh(self, seconds: float = 0.25) -> Picture:
        """Read for about so long, then the picture of what is known."""
        picture = self.look(self.read(seconds))
        return self.look_back() if self.is_due else picture

    def begin(self) -> Picture:
        """The first picture: how far the job is. Nothing is judged, nothing heavy imported."""
        self.asked = time.monotonic()
        with self._lock:
            self._recent = Recent(step=self.feed.begin())
        self.asked = 0.0
        return self.glance()

    def read(self, seconds: float = 0.25) -> bool:
        """Read for about so long; whether there was anything new."""
        self.asked = time.monotonic()
        with self._lock:
            new = self.feed.poll(seconds)
        self.asked = 0.0
        give_back()
        return new

    def look(self, new: bool) -> Picture:
        """The picture of what has been read, its last steps judged."""
        died = [p.gone for p in self.feed.processes if p.state == "died"]
        if died != self._deaths:
            self._deaths, self._judging_took = died, 0.0  # it is worth judging everything anew
            new = True
        if new or not self._judged:
            self._judge()
        return self._judged_picture()

    @property
    def is_due(self) -> bool:
        """Whether the whole run is to be judged anew."""
        rested = time.monotonic() - self._judged_at >= self._judging_took / _SHARE
        return self.stale and rested

    def look_back(self) -> Picture:
        """The picture with the whole run judged anew."""
        from dsprof.live.drawn import whole_of

        begun = time.monotonic()
        self._whole = whole_of(self.run(watched=True), self.feed.processes)
        self._judged_at = time.monotonic()
        self._judging_took = self._judged_at - begun
        self.stale = False
        return self._judged_picture()

    def _judged_picture(self) -> Picture:
        self._remember_findings(time.time())
        give_back()
        return self.glance()

    def glance(self) -> Picture:
        """The picture before what is new is judged: how far the job is, and who died."""
        self._tails = {n: self._tail_of(n, log) for n, log in self.feed.logs.items()}
        return self._picture(time.time())

    def report(self, path: Path) -> None:
        """Write the HTML report of all that is kept of the run.

        Raises:
            DsprofError: the file cannot be written.
        """
        from dsprof.page import write_page

        write_page(self.run(), path)

    def run(self, *, watched: bool = False) -> Run:
        """All that is kept of the run. `watched`: what it says is shown beside a clock that goes
        on, so it need not say for how long no step has ended, and launches are numbered as here.
        """
        with self._lock:
            table = self._store.sample()
        return self._run(table, watched=watched)

    def bars_of(self, rank: int) -> list[Bar]:
        """The last steps of one rank."""
        return self._recent.own.of(rank)

    def tail(self, source: str) -> Tail | None:
        """The last lines of a log, as of the last refresh; None if there is no such log."""
        found = self._tails.get(source)
        return found[1] if found else None

    def excerpt(self, source: str, line: int) -> Lines | None:
        """The lines around one of a log; None if it cannot be read."""
        log = self.feed.logs.get(source)
        return excerpt(source, *log.place_of(line), line) if log and log.base is not None else None

    def close(self) -> None:
        self.feed.close()

    def _run(self, table: pa.Table, *, watched: bool) -> Run:
        from dsprof.run import Run
        from dsprof.run.table import frame_of

        with self._lock:  # a report is written while the feed finds more
            facts = {**self.feed.facts, **self._facts, "watched": watched}
        if not watched:
            table, facts = in_a_row(table, facts)
        return Run(frame_of(table), meta=facts, grammar=self.grammar)

    def _judge(self) -> None:
        """The last steps, and the whole run where it is due; no `Run` outlives its judging."""
        from dsprof.live.drawn import recent_of, whole_of

        with self._lock:
            table = self._store.recent()
            everything = self._store.holds_only(table)
        run = self._run(table, watched=True)
        self._recent = recent_of(run, self.feed.processes)
        self._remember_bars()
        self.stale = not everything
        if everything or not self._judged:  # something is there at once
            self._judged, self._whole = True, whole_of(run, self.feed.processes)

    def _tail_of(self, name: str, log: LogFollower) -> tuple[pa.Table, Tail]:
        known = self._tails.get(name)
        return known if known and known[0] is log.fresh() else (log.fresh(), tail_of(log))

    def _remember_bars(self) -> None:
        """Steps drawn once stay, until there are too many, or another engine is trained."""
        recent = {(segment, engine) for (segment, _, engine), _ in self._recent.bars}
        last = max((segment for segment, _ in recent), default=None)
        self._bars |= self._recent.bars
        for segment, step, engine in list(self._bars):
            if last is not None and segment >= last and (segment, engine) not in recent:
                del self._bars[segment, step, engine]  # or its launch turned out to be another one
        for key in sorted(self._bars)[:-_BARS]:
            del self._bars[key]

    def _remember_findings(self, at: float) -> None:
        before, self._seen = self._seen, {}
        for findings, is_now in ((self._recent.findings, True), (self._whole.findings, False)):
            for key, found in _keyed(findings):
                known = before.get(key)
                begun = known.since if known and known.gone is None else at
                self._seen.setdefault(key, Sighting(key, found, begun, None, is_now))
        for key, seen in before.items():
            gone = at if seen.gone is None else seen.gone
            if at - gone <= _REMEMBERED:
                self._seen.setdefault(key, replace(seen, gone=gone, now=False))

    def _picture(self, at: float) -> Picture:
        feed, recent, whole = self.feed, self._recent, self._whole
        last = max((p.segment for p in feed.processes), default=0)
        processes = [p for p in feed.processes if p.segment == last]
        step = max([recent.step, *(p.step for p in processes if p.step)], default=-1)
        idle = max(0.0, at - feed.grown) if feed.grown else None
        begun = step >= 0 or bool(recent.records)
        bars = () if begun else (log.bar() for log in feed.logs.values())
        sources = Sources(
            missing=feed.missing,
            faults=list(feed.faults.values()),
            processes=processes,
            logs=len(feed.logs),
            closed=all(log.stream.ended for log in feed.logs.values()),
            failure=recent.failure,
            hangs=recent.hangs,
            exited=0 < (recent.world or 1) <= recent.exited,
            idle=idle,
            begins=feed.begins,
            bar=next(filter(None, bars), None),
        )
        job = one_of_jobs(feed.jobs.facts(feed.logs))
        state, note = status_of(sources, recent.world, recent.figures.seconds, begun=begun)
        return Picture(
            at=at,
            state=state,
            note=" · ".join(filter(None, [job, note if self._judged else _FIRST])),
            idle=idle,
            sources=tuple(feed.paths),
            logs=tuple(feed.logs),
            world=recent.world,
            launches=len(whole.segments | {p.segment for p in feed.processes}),
            step=step if step >= 0 else None,
            records=recent.records,
            behind=feed.behind,
            figures=recent.figures,
            bars=tuple(self._bars[key] for key in sorted(self._bars)),
            now=recent.verdict,
            since=whole.verdict,
            findings=tuple(self._seen.values()),
            ranks=recent.ranks,
            comm=recent.comm,
            memory=recent.memory,
            gpus=recent.gpus,
            problems=whole.problems,
            judged=self._judged,
        )


def _keyed(findings: Iterable[Finding]) -> Iterator[tuple[Hashable, Finding]]:
    """Two findings of one key, seen at two times, are the same one with other numbers."""
    seen: Counter[Hashable] = Counter()
    for found in findings:
        alike = found.rule, found.engine, found.phase, found.ranks[:1]
        seen[alike] += 1
        yield (*alike, seen[alike]), found
