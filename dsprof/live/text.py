"""The picture as text and as JSON: for `--once`, for scripts, for a log of its own."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dsprof.live.picture import Figures, Picture, RankRow, Sighting, Verdict
from dsprof.quotes import quoted
from dsprof.text.words import PROBLEM, count_of, plain, printable
from dsprof.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
)

if TYPE_CHECKING:
    from dsprof.text.parts import Part

SCHEMA: Final = 1

_LABEL: Final = re.compile(r" *\S+ {2,}(?=\S)")  # before words that wrap beside it
_RANKS: Final = 8
_HOST: Final = 16  # cells of a host's name
_CALLS: Final = 6
_PROBLEMS: Final = 5
_SAID: Final = 200  # characters of what a problem says


def document(picture: Picture) -> dict[str, Any]:
    """The picture in JSON's own types: seconds, bytes, null for unknown."""
    from dsprof.text.document import finding, to_json

    said = asdict(picture) | {
        "findings": [
            finding(seen.finding) | {"since": seen.since, "gone": seen.gone, "now": seen.now}
            for seen in picture.findings
        ]
    }
    converted: dict[str, Any] = to_json({"schema": SCHEMA} | said)
    return converted


def lines(picture: Picture, width: int = 80) -> Iterator[str]:
    """What `--once` prints, free of anything that could steer a terminal."""
    for line in map(printable, _lines(picture)):
        label = _LABEL.match(line)
        inner = " " * (label.end() if label else len(line) - len(line.lstrip()) + 2)
        yield from textwrap.wrap(
            line, width, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False
        ) or [""]


def plain_line(text: str) -> str:
    """Without control characters; the blanks that a line begins with are kept."""
    body = text.lstrip(" \t")
    return " " * len(text[: len(text) - len(body)].expandtabs(4)) + plain(body)


def _lines(picture: Picture) -> Iterator[str]:
    yield headline(picture)
    if picture.note:
        yield f"  {picture.note}"
    verdicts = [("Now", picture.now), ("Since the start", picture.since)]
    if picture.now == picture.since:
        verdicts = [("Now and since the start", picture.now)]
    for name, verdict in verdicts:
        if verdict:
            of = f" ({count_of(verdict.steps, picture.noun)})" if verdict.steps else ""
            yield f"{name}{of}: {verdict.title}"
            yield f"  {parts(verdict)}"
            if verdict.whose:
                yield f"  {verdict.whose}"
    yield from _section("Findings", [_sighting(seen) for seen in picture.findings])
    rows = [row for row in picture.ranks.rows if row.late_by is not None or row.state]
    sentence = [picture.ranks.sentence] if picture.ranks.sentence else []
    yield from _section("Ranks", [*sentence, *_ranks(rows[:_RANKS])])
    of = "per step" if picture.comm.steps else "since the start"
    yield from _section(f"Communication {of}", [*_calls(picture)])
    yield from _section("Memory", [*_memory(picture)])
    yield from _section("Problems", [*_problems(picture)])


def headline(picture: Picture) -> str:
    """State, step, speed, loss and time to go; what is unknown is left out."""
    return " · ".join([picture.state, *facts(picture)])


def facts(picture: Picture) -> list[str]:
    """The figures of the headline, the most important first."""
    seen: Figures = picture.figures
    parts = [*_reached(picture)]
    if seen.seconds is not None:
        every = f", one every {format_seconds(seen.seconds_apart)}" if seen.seconds_apart else ""
        parts.append(f"{format_seconds(seen.seconds)} per step{every}")
    if seen.samples_per_second is not None:
        parts.append(f"{format_count(seen.samples_per_second)} samples/s")
    if seen.loss is not None:
        parts.append(f"loss {seen.loss:.4g}")
    if seen.eta is not None and picture.state == "running":
        parts.append(f"ETA {format_seconds(seen.eta)}")
    if seen.tokens_per_second is not None:
        parts.append(f"{format_count(seen.tokens_per_second)} tokens/s")
    if seen.tflops is not None:
        parts.append(f"{format_count(seen.tflops)} TFLOP/s a GPU")
    if picture.world:
        parts.append(count_of(picture.world, "rank"))
    if picture.launches > 1:
        parts.append(f"launch {picture.launches}")
    return parts


def _reached(picture: Picture) -> Iterator[str]:
    total = picture.figures.total_steps
    if picture.step is not None:
        yield f"step {picture.step:,}" + (f" of {total:,}" if total else "")
    elif picture.records:
        yield count_of(picture.records, "record")


def parts(verdict: Verdict) -> str:
    """`compute 61 %, communication ≥30 %`, the largest first."""
    if not verdict.seconds:
        return "no step has a time"
    told = [f"{part.label} {share_of(part)}" for part in verdict.parts if part.share]
    return ", ".join(told) or "no timer says where a step goes"


def share_of(part: Part) -> str:
    return part.sign + format_share(part.share or 0.0)


def _section(title: str, rows: list[str]) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        yield from (f"  {row}" for row in rows)


def _sighting(seen: Sighting) -> str:
    word = "gone" if seen.gone is not None else str(seen.finding.severity)
    return f"{word:8}  {seen.finding.title}"


def _ranks(rows: list[RankRow]) -> Iterator[str]:
    """In columns no wider than what these ranks need: so most lines have 80."""
    number = max((len(f"{row.rank:,}") for row in rows), default=0)
    host = min(_HOST, max((len(row.host) for row in rows), default=0))
    for row in rows:
        who = f"rank {row.rank:<{number},}"
        where = f"{quoted(row.host, host):{host}}"
        yield "  ".join(part for part in (who, where, f"{row.state:7}", *_facts_of(row)) if part)


def _facts_of(row: RankRow) -> Iterator[str]:
    if row.step is not None:
        yield f"step {row.step:,}"
    if row.late_by is not None and row.waits is not None:
        yield f"late by {_signed(row.late_by)}, waits {format_seconds(row.waits)}"
    if row.operation:
        yield f"in {row.operation}" + f", {row.code}" * bool(row.code)


def _signed(seconds: float) -> str:
    return ("+" if seconds > 0 else "-" if seconds else "") + format_seconds(abs(seconds))


def _calls(picture: Picture) -> Iterator[str]:
    for row in picture.comm.rows[:_CALLS]:
        size = format_bytes(row.bytes) if row.bytes is not None else "size unknown"
        calls = f"{format_count(round(row.count, 4))} {'call' if row.count == 1 else 'calls'}"
        time = format_seconds(row.seconds) if row.seconds is not None else "time unknown"
        out = f", exposed {format_seconds(row.exposed)}" if row.exposed is not None else ""
        speed = f", {format_bandwidth(row.busbw)}" if row.busbw is not None else ""
        link = f" ({format_share(row.link)} of the link)" if row.link is not None else ""
        yield f"{row.op} of {size}: {calls}, {time}{out}{speed}{link}"


def _memory(picture: Picture) -> Iterator[str]:
    for row in picture.memory[:_RANKS]:
        told = {
            "allocated": row.allocated,
            "reserved": row.reserved,
            "peak": row.peak,
            "process": row.process,
            "in use on its host": None if row.process else row.host_used,
        }
        said = [f"{name} {format_bytes(value)}" for name, value in told.items() if value]
        if row.full is not None:
            said.append(f"full in {format_seconds(row.full)}")
        who = "rank ?" if row.rank is None else f"rank {row.rank}"
        yield f"{who}: {', '.join(said)}"


def _problems(picture: Picture) -> Iterator[str]:
    for row in picture.problems[-_PROBLEMS:]:
        who = "" if row.rank is None else f"rank {row.rank} "
        where = f"  {row.source}:{row.line}" if row.source and row.line else ""
        yield f"{who}{PROBLEM.get(row.kind, row.kind)}: {quoted(row.text, _SAID)}{where}"
