"""Everything the template shows, gathered from a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsprof.charts import PhaseTable, phase_table
from dsprof.charts.figure import keep
from dsprof.errors import DsprofError
from dsprof.page.classes import drawn_classes
from dsprof.page.communication import comm_section
from dsprof.page.configuration import Setting, settings, settled
from dsprof.page.excerpts import Wanted, excerpts
from dsprof.page.gpus import gpu_section
from dsprof.page.lanes import lanes_section
from dsprof.page.model import Cell, Place, Section
from dsprof.page.proofs import windows
from dsprof.page.ranks import rank_section
from dsprof.page.resources import memory_section, training_section
from dsprof.page.steps import (
    Typical,
    engines,
    lines_of_steps,
    phase_section,
    time_section,
    typical_rows,
)
from dsprof.page.tracks import SPACIOUS, Spans, line_spans, thinned, track, with_broken_losses
from dsprof.page.trust import doubt_section, problem_section
from dsprof.page.validations import with_validations
from dsprof.page.verdict import Told, Verdict, told, verdict
from dsprof.run.steps.durations import clocked

if TYPE_CHECKING:
    from dsprof.run import Run


@dataclass(slots=True)
class Contents:
    """What a page holds.

    Attributes:
        tracks: every step, per engine, for the page's script.
        sources: names that proofs point at by position.
        lines: the text of lines that proofs point at, by source and number.
        windows: over how many steps the timers of such a line sum, where over several.
    """

    title: str
    verdict: Verdict
    findings: list[Told]
    sections: list[Section]
    settings: list[Setting]
    sources: list[str]
    tracks: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    windows: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """The steps of one engine that the page keeps, of `told` that the source tells."""

    number: int
    told: int
    steps: pd.DataFrame
    phases: PhaseTable | None
    spans: Spans


def contents(run: Run) -> Contents:
    sources = _sources(run)
    drawn = drawn_classes(clocked(run.steps), run.phases)
    parts = [_engine(run, number, steps, sources) for number, steps in _engines(drawn)]
    means = {p.number: Typical(p.phases, typical_rows(p.steps)) for p in parts if p.phases}
    page = Contents(
        title=_title(run, sources),
        verdict=verdict(run, means, drawn),
        findings=[told(finding) for finding in run.findings],
        sections=[*_step_sections(run, parts), *_sections(run)],
        settings=settings(run),
        sources=sources,
        tracks={str(p.number): track(p.steps, p.phases, p.spans) for p in parts},
    )
    page.lines = excerpts(_wanted(page, parts), _lines)
    page.sources = list(dict.fromkeys([*sources, *page.lines]))  # among them files left out
    page.windows = windows(run.told, run.phases, page.lines)
    page.settings = settled(page.settings, page.lines)
    return page


def _engines(steps: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    return list(engines(steps)) or [(0, steps)]


def _engine(run: Run, number: int, whole: pd.DataFrame, sources: list[str]) -> Engine:
    steps = with_validations(with_broken_losses(thinned(whole), run.told), run.told)
    phases = phase_table(run.phases, steps, slowest=len(steps) <= SPACIOUS)
    return Engine(number, len(whole), steps, phases, line_spans(steps, run.told, sources))


def _step_sections(run: Run, parts: list[Engine]) -> list[Section]:
    many = len(parts) > 1
    noun = "record" if run.counted else "step"
    return [
        *(
            time_section(
                p.number,
                p.steps,
                many,
                p.told,
                noun=noun,
                lines=lines_of_steps(run.told, p.phases),
            )
            for p in parts
        ),
        *(phase_section(run, p.number, p.steps, p.phases, many=many, noun=noun) for p in parts),
    ]


def _sections(run: Run) -> list[Section]:
    from dsprof.findings import abstentions_of

    return [
        comm_section(run),
        rank_section(run),
        *([lanes_section(run)] if run.is_recording else []),
        memory_section(run),
        gpu_section(run),
        training_section(run),
        problem_section(run),
        doubt_section(run, list(abstentions_of(run))),
    ]


def _worth_showing(part: Engine) -> np.ndarray:
    """Rows of the steps whose lines are wanted first: outliers, then the others from the start."""
    count = len(part.steps)
    if count <= 2:
        return np.arange(count)
    seconds = part.steps["seconds"].to_numpy(dtype=float, na_value=np.nan)
    outliers = keep(np.arange(count), seconds)
    return np.concatenate([outliers, np.setdiff1d(np.arange(count), outliers)])


def _sources(run: Run) -> list[str]:
    told = [str(s) for s in run.meta.get("sources", [])]
    seen = [str(s) for s in run.told["source"].dropna().unique()]
    return list(dict.fromkeys([*told, *seen]))


def _title(run: Run, sources: list[str]) -> str:
    """By the files that were read, or the folder that holds them all and how many launches they
    are of; a recording may have several."""
    if run.is_recorded_alone:
        sources = [str(s) for s in run.meta.get("sources", [])] or sources
    if not sources:
        return "run"
    paths = [source.rstrip("/").split("/") for source in sources]
    if len(sources) == 1:
        return paths[0][-1]
    launches = run.told["segment"].nunique()
    of = f", {launches:,} launches" if launches > 1 else ""
    levels = zip(*(path[:-1] for path in paths), strict=False)
    folders = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels)]
    if not folders or folders[-1] in ("", ".", ".."):
        return f"{paths[0][-1]} and {len(sources) - 1:,} more{of}"
    return (
        f"{folders[-1]}, {len(sources):,} {'recordings' if run.is_recorded_alone else 'files'}{of}"
    )


def _wanted(page: Contents, parts: list[Engine]) -> Wanted:
    """The lines a reader may ask for, the most important first."""
    wanted = Wanted()
    for place in _proofs(page):
        wanted.ask(place)
    for setting in page.settings:
        if setting.place:
            wanted.ask(setting.place, setting.until or None, context=1)
    for place in _parts_of_means(page):
        wanted.ask(place, context=1)
    for part in parts:
        for row in _worth_showing(part).tolist():
            if wanted.left <= 0:
                break
            for source, first, last in part.spans.of(row):
                wanted.ask(Place(page.sources[source], first), last, context=1)
    return wanted


def _proofs(page: Contents) -> Iterator[Place]:
    """Lines that one number each leads to."""
    for one in page.findings:
        for proof in one.finding.evidence:
            place = Place.of(proof.source, proof.line)
            if place:
                yield place
    for cell in _cells(page):
        if cell.place:
            yield cell.place


def _parts_of_means(page: Contents) -> Iterator[Place]:
    """Lines of numbers that many lines give."""
    means = [page.verdict.among, *(cell.among for cell in _cells(page))]
    for mean in filter(None, means):
        yield from (place for _, place in mean.lines)


def _cells(page: Contents) -> Iterator[Cell]:
    yield page.verdict.step
    yield from (part.seconds for part in page.verdict.parts)
    yield from (cell for _, cell in page.verdict.facts)
    for section in page.sections:
        yield from section.said
        tables = [*section.tables, *(chart.table for chart in section.charts)]
        for table in filter(None, tables):
            for row in table.rows:
                yield from row


def _lines(source: str) -> Iterator[list[bytes]]:
    """Lines of a source as its reader counted them; none if it cannot be read again."""
    from dsprof.logs.sources.containers import Containers
    from dsprof.logs.sources.source import bytes_of

    if source == "-":  # standard input is read once
        return
    containers, held, data = Containers(), b"", b""
    try:
        for data in bytes_of(source):
            *whole, held = (held + containers.feed(data)).split(b"\n")
            yield whole
    except DsprofError:  # the reader said so, if it could not be read to its end
        if not data:
            return
    yield (held + containers.finish()).split(b"\n")
