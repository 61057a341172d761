"""Everything the template shows, gathered from a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsprof.charts import phase_table
from dsprof.charts.figure import keep
from dsprof.errors import DsprofError
from dsprof.page.communication import comm_section
from dsprof.page.excerpts import Wanted, excerpts
from dsprof.page.model import Place, Section
from dsprof.page.ranks import rank_section
from dsprof.page.resources import gpu_section, memory_section, training_section
from dsprof.page.steps import engines, phase_section, time_section
from dsprof.page.tracks import SPACIOUS, line_spans, thinned, track, with_broken_losses
from dsprof.page.trust import Setting, doubt_section, problem_section, settings
from dsprof.page.verdict import Told, Verdict, told, verdict

if TYPE_CHECKING:
    from dsprof.run import Run


@dataclass(slots=True)
class Contents:
    """What a page holds.

    Attributes:
        tracks: every step, per engine, for the page's script.
        sources: names that proofs point at by position.
        lines: the text of lines that proofs point at, by source and number.
    """

    title: str
    verdict: Verdict
    findings: list[Told]
    sections: list[Section]
    settings: list[Setting]
    sources: list[str]
    tracks: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)


def contents(run: Run) -> Contents:
    from dsprof.findings import abstentions_of

    sources = _sources(run)
    page = Contents(
        title=_title(sources),
        verdict=verdict(run),
        findings=[told(finding) for finding in run.findings],
        sections=[],
        settings=settings(run),
        sources=sources,
    )
    spans = _steps(run, page)
    page.sections += [
        comm_section(run),
        rank_section(run),
        memory_section(run),
        gpu_section(run),
        training_section(run.steps),
        problem_section(run),
        doubt_section(run, list(abstentions_of(run))),
    ]
    page.lines = excerpts(_wanted(page, spans), _lines)
    return page


def _steps(run: Run, page: Contents) -> list[pd.DataFrame]:
    """Sections and tracks of every engine; the lines of their steps."""
    found = list(engines(run))
    if not found:
        found = [(0, run.steps)]
    spans = []
    where = []
    for engine, whole in found:
        steps = with_broken_losses(thinned(whole), run.events)
        phases = phase_table(run.phases, steps, slowest=len(steps) <= SPACIOUS)
        spans.append(line_spans(steps, run.events))
        page.tracks[str(engine)] = track(steps, phases, spans[-1], page.sources)
        page.sections.append(time_section(engine, steps, len(found) > 1, len(whole)))
        where.append(phase_section(run, engine, steps, phases, len(found) > 1))
    page.sections += where
    return [_worth_showing(s, steps) for s, (_, steps) in zip(spans, found, strict=True)]


def _worth_showing(spans: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The steps whose lines are wanted first: outliers, then the others from the start."""
    if len(spans) <= 2:
        return spans
    outliers = keep(
        np.arange(len(spans)), steps["seconds"].to_numpy(dtype=float, na_value=np.nan)[: len(spans)]
    )
    rest = np.setdiff1d(np.arange(len(spans)), outliers)
    return spans.iloc[np.concatenate([outliers, rest])]


def _sources(run: Run) -> list[str]:
    told = [str(s) for s in run.meta.get("sources", [])]
    seen = [str(s) for s in run.events["source"].dropna().unique()]
    return list(dict.fromkeys([*told, *seen]))


def _title(sources: list[str]) -> str:
    if not sources:
        return "run"
    name = sources[0].rstrip("/").rsplit("/", 1)[-1]
    return name if len(sources) == 1 else f"{name} and {len(sources) - 1} more"


def _wanted(page: Contents, spans: list[pd.DataFrame]) -> Wanted:
    """The lines a reader may ask for, the most important first."""
    wanted = Wanted()
    for place in _proofs(page):
        wanted.ask(place)
    for steps in spans:
        for source, first, last in steps.itertuples(index=False):
            if wanted.left <= 0:
                break
            if isinstance(source, str) and first > 0:
                wanted.ask(Place(source, int(first)), int(last), context=1)
    return wanted


def _proofs(page: Contents) -> Iterator[Place | None]:
    for one in page.findings:
        for proof in one.finding.evidence:
            yield Place.of(proof.source, proof.line)
    for _, cell in page.verdict.facts:
        yield from cell.places
    for section in page.sections:
        tables = [*section.tables, *(chart.table for chart in section.charts)]
        for table in filter(None, tables):
            for row in table.rows:
                for cell in row:
                    yield from cell.places
    for setting in page.settings:
        yield setting.place


def _lines(source: str) -> Iterator[bytes]:
    """Lines of a source as its reader counted them; none if it cannot be read again."""
    from dsprof.logs.containers import Containers
    from dsprof.logs.source import bytes_of

    if source == "-":  # standard input is read once
        return
    containers, held, data = Containers(), b"", b""
    try:
        for data in bytes_of(source):
            *whole, held = (held + containers.feed(data)).split(b"\n")
            yield from whole
    except DsprofError:  # the reader said so, if it could not be read to its end
        if not data:
            return
    yield from (held + containers.finish()).split(b"\n")
