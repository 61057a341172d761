"""Problems and doubts: what went wrong, and what is not sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dsprof.charts import SYMBOL, first_cause, on_time, problem_line
from dsprof.events import GRAVITY
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table, Words, without_empty
from dsprof.page.proofs import among
from dsprof.quotes import quoted
from dsprof.text.trust import codes
from dsprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from dsprof.logs import Coverage
    from dsprof.run import Run

ROWS = 200


def problem_section(run: Run) -> Section:
    """Failures and warnings, the first cause on top."""
    problems = run.problems
    if problems.empty:
        return Section(
            "problems",
            "Problems",
            why="No line of the source reports a known failure or warning.",
        )
    figure = problem_line(problems, words.PROBLEM, _launches(run.told))
    table = _problem_table(problems)
    lead = _first_cause(problems)
    charts = [Chart("problems", figure, _marks(problems))] if figure else []
    return Section("problems", "Problems", lead=lead, charts=charts, tables=[table])


def _launches(events: pd.DataFrame) -> list[int]:
    """Lines at which launches begin, but for the first; none where lines are of several files."""
    if len(events["source"].dropna().unique()) != 1:
        return []
    return sorted(int(line) for line in events.groupby("segment")["line"].min().dropna())[1:]


_SHAPE = {"diamond": "diamond", "triangle-up": "triangle", "circle-open": "ring"}


def _marks(problems: pd.DataFrame) -> str:
    """What the chart shows, and what its marks mean."""
    over = "time" if on_time(problems) else "the lines of the source"
    there = set(problems["severity"].astype(str))
    said = [
        f"{_SHAPE[shape]}: {severity}" for severity, shape in SYMBOL.items() if severity in there
    ]
    said += ["star: first cause"] if problems["root_cause"].fillna(False).any() else []
    return f"Problems over {over}, a row per rank. {', '.join(said).capitalize()}."


def _first_cause(problems: pd.DataFrame) -> Words:
    at = first_cause(problems)
    if at is not None:
        first = problems.iloc[at]
        launches = problems["segment"].fillna(0).astype(int)
        where = f" of launch {launches.iloc[at] + 1}" if len(launches.unique()) > 1 else ""
        where += f" on rank {int(first['rank']):,}" if words.known(first["rank"]) else ""
        said = quoted(first["text"], 120) if words.known(first["text"]) else "no message of its own"
        place = Place.of(str(first["source"]), first["line"])
        line = f"line {place.line:,}" if place else "a line"
        return [f"First cause{where}: {_name(first['kind'])}: {said}, ", Cell(line, place), "."]
    if set(problems["kind"].astype(str)) == {"killed-by-launcher"}:
        return "These processes were ended by the launcher; no line of the source says why."
    if len(problems) == 1:
        return ""
    return "Which of them came first is not known."


def _name(kind: object) -> str:
    return words.PROBLEM.get(str(kind), str(kind))


def _problem_table(problems: pd.DataFrame) -> Table:
    """One row per problem; those that differ in nothing but a number and the rank share one, unless
    the number is the code of an exit.
    """
    cause = problems["root_cause"].fillna(False).astype(bool)
    weight = problems["severity"].astype(str).map(GRAVITY)
    shape = problems["text"].fillna("").astype(str).str.replace(r"\d+", "#", regex=True)
    kind = problems["kind"].astype(str)
    launch = problems["segment"].fillna(0).astype(int)
    code = codes(problems).fillna(0.0)
    alike: dict[tuple[bool, float, int, str, str, float], list[int]] = {}
    for at, key in enumerate(zip(~cause, weight, launch, kind, shape, code, strict=True)):
        alike.setdefault(key, []).append(at)
    order = sorted(alike.items(), key=lambda item: (*item[0][:2], item[1][0]))
    many = len(launch.unique()) > 1
    rows = [_problem(problems.iloc[at], many=many) for _, at in order[:ROWS]]
    left = len(order) - len(rows)
    head = ["severity", "problem", "times", "rank", "when", "what the source says"]
    caption = "Problems, the first cause first" if cause.any() else "Problems"
    more = f"{left:,} lesser problems are not shown." if left > 0 else ""
    return without_empty(Table(caption, head, rows, frozenset({2}), more), 3, 4)


def _problem(alike: pd.DataFrame, *, many: bool) -> list[Cell]:
    """One row of the table: a problem, or several that read alike; of `many` launches, of which."""
    row = alike.iloc[0]
    first = words.known(row["root_cause"]) and bool(row["root_cause"])
    severity = str(row["severity"])
    said = str(row["text"]) if words.known(row["text"]) else _name(row["kind"])
    ranks = alike["rank"].dropna().astype(int).tolist()
    lines = among(alike.assign(seconds=0.0), of=len(alike)) if len(alike) > 1 else None
    return [
        Cell(f"{severity}, first cause" if first else severity),
        Cell(_name(row["kind"])),
        Cell(f"{len(alike):,}", among=lines),
        Cell(words.ranges(ranks) if ranks else "–"),
        Cell(_when(alike, many=many) or "–"),
        Cell(quoted(said, 400), Place.of(str(row["source"]), row["line"])),
    ]


def _when(alike: pd.DataFrame, *, many: bool) -> str:
    at, step = alike["at"].dropna(), alike["step"].dropna()
    told = [f"launch {int(alike['segment'].iloc[0]) + 1}"] if many else []
    told += [f"{at.min():%Y-%m-%d %H:%M:%S}"] if len(at) else []
    if len(step):
        told.append(words.span(int(step.min()), int(step.max()), "step"))
    return ", ".join(told)


def doubt_section(run: Run, abstentions: list[Any]) -> Section:
    """What was repaired or doubted and why, what nobody could judge, what was not understood."""
    tables = [
        t for t in (_repairs(run.repairs), _abstained(abstentions), *_coverage(run.coverage)) if t
    ]
    return Section(
        "doubts",
        "What was repaired, doubted or not understood",
        tables=tables,
        why="" if tables else "Nothing was repaired, and nothing is known that was not understood.",
    )


def _repairs(repairs: pd.DataFrame) -> Table | None:
    if repairs.empty:
        return None
    rows = [
        [
            Cell(words.REPAIR.get(str(r["kind"]), str(r["kind"]))),
            Cell(str(r["text"])),
            Cell(f"{int(r['rows']):,}"),
            Cell("", Place.of(r["source"], r["line"])),
        ]
        for _, r in repairs.iterrows()
    ]
    return Table(
        "Repairs and doubts",
        ["", "what and why", "rows", "first seen"],
        rows,
        numeric=frozenset({2}),
    )


def _abstained(abstentions: list[Any]) -> Table | None:
    """What is lacking, and the rules that need it."""
    lacking: dict[str, list[str]] = {}
    for one in abstentions:
        lacking.setdefault(str(one.why), []).append(str(one.rule))
    rows = [[Cell(why), Cell(", ".join(rules))] for why, rules in lacking.items()]
    head = ["why", "rules that cannot judge"]
    return Table("Questions this source cannot answer", head, rows) if rows else None


def _coverage(coverage: Coverage | None) -> list[Table]:
    if coverage is None:
        return []
    read = [
        ("lines", format_count(coverage.lines)),
        ("bytes", format_bytes(coverage.bytes)),
        ("metric-like lines", format_count(coverage.metric_lines)),
        ("of them read, at least partly", format_count(coverage.read_lines)),
    ]
    if coverage.sampled:
        read.append(("how they were counted", "in a sample of the lines"))
    rows = [[Cell(label), Cell(value)] for label, value in read]
    how_much = Table("How much was read", ["", ""], rows, numeric=frozenset({1}))
    return [how_much, *filter(None, [_patterns(coverage), _shapes(coverage)])]


def _patterns(coverage: Coverage) -> Table | None:
    rows = [[Cell(name), Cell(f"{count:,}")] for name, count in coverage.patterns.items()]
    if not rows:
        return None
    head = ["pattern", "records"]
    return Table("Records read, by dialect and pattern", head, rows, numeric=frozenset({1}))


def _shapes(coverage: Coverage) -> Table | None:
    rows = [
        [Cell(f"{count:,}"), Cell(shape, Place.of(source, line))]
        for count, shape, source, line, _ in coverage.shapes[:60]
    ]
    if not rows:
        return None
    left = len(coverage.shapes) - len(rows)
    more = f"{left:,} rarer shapes are not shown." if left > 0 else ""
    caption = "Metric-like lines that were not understood (# stands for a number)"
    return Table(caption, ["lines", "shape"], rows, numeric=frozenset({0}), more=more)
