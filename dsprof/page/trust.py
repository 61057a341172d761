"""Problems, doubts and settings: what went wrong, what is not sure, what was configured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from dsprof.charts import problem_line
from dsprof.events import PROBLEMS
from dsprof.page import words
from dsprof.page.model import Cell, Chart, Place, Section, Table
from dsprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from dsprof.findings import Finding
    from dsprof.logs import Coverage
    from dsprof.run import Run

ROWS = 200
SETTINGS = 2000  #: of the configuration


def problem_section(run: Run) -> Section:
    """Failures and warnings, the first cause on top."""
    problems = run.problems
    if problems.empty:
        return Section(
            "problems",
            "Problems",
            why="No line of the source tells of a failure or a warning we know.",
        )
    figure = problem_line(problems)
    table = _problem_table(problems)
    lead = _first_cause(problems)
    if figure is None:
        return Section("problems", "Problems", lead=lead, tables=[table])
    label = "Problems over time, a row per rank; the star is the first cause."
    return Section(
        "problems", "Problems", lead=lead, charts=[Chart("problems", figure, label)], tables=[table]
    )


def _first_cause(problems: pd.DataFrame) -> str:
    causes = problems[problems["root_cause"].fillna(False).astype(bool)]
    if causes.empty:
        return "Which of them came first is not known."
    first = causes.iloc[0]
    where = f" on rank {int(first['rank'])}" if words.known(first["rank"]) else ""
    kind = str(first["kind"])
    return f"First cause: {PROBLEMS.get(kind, kind)}{where}."


def _problem_table(problems: pd.DataFrame) -> Table:
    cause = problems["root_cause"].fillna(False).astype(bool)
    weight = problems["severity"].astype(str).map({"critical": 0, "warning": 1}).fillna(2)
    order = pd.DataFrame({"later": ~cause, "weight": weight}).sort_values(
        ["later", "weight"], kind="stable"
    )
    rows = [_problem(row) for _, row in problems.loc[order.index[:ROWS]].iterrows()]
    left = len(problems) - len(rows)
    head = ["severity", "problem", "rank", "when", "what the source says"]
    return Table(
        "Problems, the first cause first",
        head,
        rows,
        more=f"{left:,} lesser problems are not shown." if left > 0 else "",
    )


def _problem(row: pd.Series[Any]) -> list[Cell]:
    first = words.known(row["root_cause"]) and bool(row["root_cause"])
    severity = words.SEVERITY.get(str(row["severity"]), str(row["severity"]))
    when = f"{row['at']:%Y-%m-%d %H:%M:%S}" if words.known(row["at"]) else "–"
    if words.known(row["step"]):
        when += f", step {int(row['step']):,}"
    said = str(row["text"]) if words.known(row["text"]) else PROBLEMS.get(str(row["kind"]), "")
    return [
        Cell(f"{severity}, first cause" if first else severity),
        Cell(str(row["kind"])),
        Cell(str(int(row["rank"])) if words.known(row["rank"]) else "–"),
        Cell(when),
        Cell(said[:400], Place.of(str(row["source"]), row["line"])),
    ]


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
    said = {"repair": "corrected", "doubt": "doubted"}
    rows = [
        [
            Cell(said.get(str(r["kind"]), str(r["kind"]))),
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
    rows = [[Cell(str(a.rule)), Cell(str(a.why))] for a in abstentions]
    return Table("Questions this source cannot answer", ["rule", "why"], rows) if rows else None


def _coverage(coverage: Coverage | None) -> list[Table]:
    if coverage is None:
        return []
    read = [
        ("lines read", format_count(coverage.lines)),
        ("bytes read", format_bytes(coverage.bytes)),
        ("lines that look like metrics", format_count(coverage.metric_lines)),
        ("of them understood", format_count(coverage.read_lines)),
    ]
    if coverage.sampled:
        read.append(("how they were counted", "in a sample of the lines"))
    rows = [[Cell(label), Cell(value)] for label, value in read]
    how_much = Table("How much was read", ["", ""], rows, numeric=frozenset({1}))
    return [how_much, *filter(None, [_patterns(coverage), _shapes(coverage)])]


def _patterns(coverage: Coverage) -> Table | None:
    rows = [[Cell(name), Cell(f"{count:,}")] for name, count in coverage.patterns.items()]
    return (
        Table(
            "Lines understood, by dialect and pattern",
            ["pattern", "records"],
            rows,
            numeric=frozenset({1}),
        )
        if rows
        else None
    )


def _shapes(coverage: Coverage) -> Table | None:
    rows = [
        [Cell(f"{count:,}"), Cell(shape, Place.of(source, line))]
        for count, shape, source, line, _ in coverage.shapes[:60]
    ]
    left = len(coverage.shapes) - len(rows)
    more = f"{left:,} rarer shapes are not shown." if left > 0 else ""
    caption = "Lines that look like metrics and were not understood (# stands for a number)"
    return (
        Table(caption, ["lines", "shape"], rows, numeric=frozenset({0}), more=more)
        if rows
        else None
    )


class Setting(NamedTuple):
    """One key of the configuration; `advised` is what a finding wants it to be."""

    key: str
    value: str
    advised: str
    place: Place | None


def settings(run: Run) -> list[Setting]:
    """The configuration, flat; keys that the advice names first."""
    advice = _advised(run.findings)
    rows = run.events[run.events["kind"] == "config"].drop_duplicates("name", keep="last")
    places = {
        str(n): Place.of(str(s), line)
        for n, s, line in zip(rows["name"], rows["source"], rows["line"], strict=True)
    }
    found = [
        Setting(
            key,
            value,
            advice.get(key, ""),
            places.get(key.split(".")[0]) or places.get("ds_config")
            if "." in key
            else places.get(key),
        )
        for key, value in _flat(run.config)
    ]
    named = {setting.key for setting in found}
    unset = [
        Setting(key, "not set, as far as the source tells", to, None)
        for key, to in advice.items()
        if key not in named
    ]
    everything = found[:SETTINGS] + unset
    return sorted(everything, key=lambda s: (not s.advised, s.key))


def _advised(findings: list[Finding]) -> dict[str, str]:
    return {a.setting: a.to for f in reversed(findings) for a in f.advice if a.setting}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if key == "ds_config" and not prefix:
            yield from _flat(_json(value))
        elif isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, default=str)


def _json(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}
