"""The tables of docs/truth.md, between their markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.truth.launch import ROOT
from benchmarks.truth.rival import ABSTAINS, MEANING, Opinion
from benchmarks.truth.score import Advised, Score

DOCUMENT: Final = ROOT / "docs" / "truth.md"
_NOTHING: Final = "no warning"

#: What was asked, and of each case whether the answer was right.
Answers = tuple[str, list[bool | None]]


def write(tables: dict[str, str], document: Path = DOCUMENT) -> None:
    """Put each table between its marks, `<!-- NAME -->` and `<!-- end -->`."""
    text = document.read_text(encoding="utf-8")
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        text = re.sub(pattern, lambda _: f"{begin}{table}\n{end}", text, flags=re.DOTALL)  # noqa: B023
    document.write_text(text, encoding="utf-8")


def summary(
    scores: Sequence[Score], opinions: Sequence[Opinion], tested: Sequence[Advised] = ()
) -> str:
    """What the bars of the bench are about, counted."""
    rows = _of_dsprof(scores)
    if tested:
        rows.append(("advice: measured gain inside the predicted", [one.inside for one in tested]))
    if opinions:
        rows += _of_rival(opinions)
    cells = [(what, _of(answers)) for what, answers in rows]
    off = [one.off for one in tested if one.off is not None]
    if off:
        cells.append(("advice: median error of the middle", f"{median(off):.0%}"))
    return table(("", "right"), cells)


def _of_dsprof(scores: Sequence[Score]) -> list[Answers]:
    recorded = [one for one in scores if one.source == "recording"]
    logs = [one for one in scores if one.source == "log"]
    faulty = [one for one in logs if not one.case.healthy]
    return [
        ("faulty recordings: first finding right (rule, rank, phase)",
         _right(one for one in recorded if not one.case.healthy)),
        ("healthy recordings without a warning",
         _right(one for one in recorded if one.case.healthy)),
        ("size of the loss within 15 % or 2 ms",
         [one.sized for one in recorded if one.sized is not None]),
        ("logs that can tell: first finding right", _right(one for one in faulty if one.tells)),
        ("logs that cannot: nothing more is claimed",
         _right(one for one in faulty if not one.tells)),
        ("healthy logs without a wrong claim", _right(one for one in logs if one.case.healthy)),
    ]  # fmt: skip


def _of_rival(opinions: Sequence[Opinion]) -> list[Answers]:
    return [
        ("TraceML 0.5.0, faulty runs: verdict right (rule, rank)",
         [one.right for one in opinions if not one.case.healthy]),
        ("TraceML 0.5.0, healthy runs without a warning",
         [one.right or one.said in ABSTAINS for one in opinions if one.case.healthy]),
    ]  # fmt: skip


def verdicts(scores: Sequence[Score], opinions: Sequence[Opinion]) -> str:
    """One row a case."""
    said = {one.case.name: one for one in opinions}
    logged = {one.case.name: one for one in scores if one.source == "log"}
    rows = []
    for one in scores:
        if one.source == "recording":
            name = one.case.name
            log, rival = logged.get(name), said.get(name)
            rows.append((
                f"`{name}`", one.case.fault, verdict(one), size(one),
                verdict(log) if log else "", opinion(rival) if rival else "",
            ))  # fmt: skip
    return table(("case", "planted", "recording", "its size", "log", "TraceML"), rows)


def verdict(one: Score) -> str:
    said = one.said or _NOTHING
    if one.rank is not None:
        said += f", rank {one.rank}"
    if one.phase and one.case.right.phase:
        said += f", {one.phase}"
    return said if one.right else f"**wrong:** {said}"


def opinion(one: Opinion) -> str:
    if one.said in ABSTAINS:
        return "cannot judge"
    said = one.said + ("" if one.rank is None else f", rank {one.rank}")
    return said if one.right else f"**wrong:** {said}"


def size(one: Score) -> str:
    if one.truth is None or not one.right:
        return ""
    truth = f"{one.truth.seconds * 1e3:.1f} ms"
    if not one.truth.resolved:
        return f"truth not resolved ({truth} ± {2e3 * one.truth.error:.1f})"
    said = "none" if one.seconds is None else f"{one.seconds * 1e3:.1f}"
    return f"{said} of {truth}" if one.sized else f"**off:** {said} of {truth}"


def advice(found: Sequence[Advised]) -> str:
    """Predicted against measured gain."""
    rows = [
        (f"`{one.case.name}`", one.setting, _milliseconds(one.predicted),
         f"{one.gained.seconds * 1e3:.1f} ± {2e3 * one.gained.error:.1f} ms",
         "inside" if one.inside else "**outside**",
         "" if one.off is None else f"{one.off:.0%}")
        for one in found
    ]  # fmt: skip
    head = ("case", "advised", "predicted gain", "measured gain", "", "middle off by")
    return table(head, rows)


def _milliseconds(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return "none"
    return f"{interval[0] * 1e3:.1f} to {interval[1] * 1e3:.1f} ms"


def translation() -> str:
    """What each of TraceML's words is taken for."""
    rows = [
        (f"`{word}`", ", ".join(f"`{rule}`" if rule else "no warning" for rule in meant))
        for word, meant in MEANING.items()
    ]
    return table(("TraceML says", "right where the fault is"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _right(scores: Iterable[Score]) -> list[bool | None]:
    return [one.right for one in scores]


def _of(answers: Iterable[bool | None]) -> str:
    found = [bool(answer) for answer in answers]
    if not found:
        return "none run"
    return f"{sum(found)} of {len(found)} ({sum(found) / len(found):.0%})"
