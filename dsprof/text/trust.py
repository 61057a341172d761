"""What went wrong, what was repaired, what was not understood, what nobody could judge."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from dsprof.events import GRAVITY, PROBLEMS, Severity
from dsprof.quotes import quoted
from dsprof.text import words
from dsprof.text.layout import ACCENT, QUIET, STRONG, beside, columns, place, say, section
from dsprof.text.words import plain
from dsprof.units import format_share

if TYPE_CHECKING:
    from dsprof.logs import Coverage
    from dsprof.run import Run

_PROBLEMS: Final = 5
_SHAPES: Final = 3
_SILENCES: Final = 4
_TEXT: Final = 200


def by_weight(problems: pd.DataFrame) -> pd.DataFrame:
    """First causes first, then by severity, then as they were told."""
    order = pd.DataFrame(
        {
            "later": ~problems["root_cause"].fillna(False).astype(bool),
            "weight": problems["severity"].astype(str).map(GRAVITY),
        }
    )
    return problems.loc[order.sort_values(["later", "weight"], kind="stable").index]


def codes(problems: pd.DataFrame) -> pd.Series[Any]:
    """The code of an exit, a signal or a message; NaN for none. Memory that ran out has none: its
    number says on which GPU.
    """
    return problems["value"].mask(problems["kind"] == "oom")


def problem_section(problems: pd.DataFrame) -> list[RenderableType]:
    """The first of every kind of problem, and how many more there are of it. Exits with different
    codes are of different kinds, and so are exceptions of different classes.
    """
    if problems.empty:
        return []
    rows = columns(11)
    text = problems["text"].astype("str").where(problems["kind"] == "exception")
    told = by_weight(problems).assign(code=codes(problems), raised=text.str.partition(":")[0])
    of_one = ["kind", "root_cause", "code", "raised"]
    kinds = told.groupby(of_one, observed=True, sort=False, dropna=False)
    firsts = told.assign(same=kinds["kind"].transform("size")).drop_duplicates(of_one)
    for _, row in firsts.head(_PROBLEMS).iterrows():
        first = words.known(row["root_cause"]) and bool(row["root_cause"])
        label = "first cause" if first else str(row["severity"])
        rows.add_row(say(label, ACCENT if first else QUIET), _problem(row))
    left = len(firsts) - _PROBLEMS
    more = [say(f"{words.count_of(left, 'other kind')} in --json", QUIET)] if left > 0 else []
    return section("Problems", f"{len(problems):,}", rows, *more)


def _problem(row: pd.Series[Any]) -> RenderableType:
    """What it is, and below that the log's own words and where they stand."""
    rank = f"rank {int(row['rank']):,}" if words.known(row["rank"]) else ""
    host = f"on {row['host']}" if words.known(row["host"]) else ""
    step = f"at step {int(row['step']):,}" if words.known(row["step"]) else ""
    where = " ".join(filter(None, [rank, host, step]))
    more = f"and {row['same'] - 1:,} more of the kind" if row["same"] > 1 else ""
    told = beside(
        say(quoted(plain(row["text"]), _TEXT) if words.known(row["text"]) else "", QUIET),
        say(more, QUIET),
        place(row["source"], row["line"]),
    )
    meaning = _meaning(row)
    return Group(say(f"{meaning} ({where})" if where else meaning), told)


def _meaning(row: pd.Series[Any]) -> str:
    """What a kind of problem is, without the notes for those who read the table; an exception that
    Python only printed, or that training went on behind, ended no process."""
    kind = str(row["kind"])
    if kind == "exception" and row["severity"] == Severity.INFO:
        return "an exception that ended no process"
    if kind == "exception" and row["survived"]:
        return "an exception or a fatal error; training went on"
    return PROBLEMS.get(kind, kind).partition(";")[0].partition(" (")[0]


def repair_section(repairs: pd.DataFrame) -> list[RenderableType]:
    """What was corrected or is doubted; whose report this is has a section of its own."""
    repairs = repairs[repairs["name"] != "other-jobs"]
    if repairs.empty:
        return []
    rows = columns(8)
    for _, row in repairs.iterrows():
        label = words.REPAIR.get(str(row["kind"]), str(row["kind"]))
        told = say(f"{row['text']} ({words.count_of(int(row['rows']), 'row')})")
        where = place(row["source"], row["line"])
        rows.add_row(say(label, QUIET), beside(say(row["name"], STRONG), told, where))
    return section("Repaired or doubted", "", rows)


def coverage_section(coverage: Coverage | None) -> list[RenderableType]:
    if coverage is None:
        return []
    told = f"{words.count_of(coverage.lines, 'line')}"
    if coverage.metric_lines:
        share = format_share(coverage.read_lines / coverage.metric_lines)
        told += (
            f"; {coverage.read_lines:,} of {coverage.metric_lines:,} metric-like ones "
            f"read, at least partly ({share})"
        )
    if coverage.sampled:
        told += ", by a sample"
    return section("Read", told, *_not_understood(coverage))


def _not_understood(coverage: Coverage) -> list[RenderableType]:
    if not coverage.shapes:
        return []
    rows = columns(8)
    for count, shape, source, line, _ in coverage.shapes[:_SHAPES]:
        said = Text(plain(shape), overflow="ellipsis", no_wrap=True)
        rows.add_row(say(f"{count:,} ×", QUIET), Group(said, beside(place(source, line))))
    left = len(coverage.shapes) - _SHAPES
    more = f"and {words.count_of(left, 'more shape')}: dsprof parsers --unknown PATH"
    return [say("Not understood:", QUIET), rows, *([say(more, QUIET)] if left > 0 else [])]


def silence_section(run: Run) -> list[RenderableType]:
    """Rules that could not judge, grouped by what they lack."""
    from dsprof.findings import abstentions_of

    lacking: dict[str, list[str]] = defaultdict(list)
    for rule, why in abstentions_of(run):
        lacking[why].append(rule)
    if not lacking:
        return []
    groups = sorted(lacking.items(), key=lambda item: -len(item[1]))
    rows = columns(8)
    for why, rules in groups[:_SILENCES]:
        told = beside(say(why), say(", ".join(rules), QUIET))
        rows.add_row(say(words.count_of(len(rules), "rule"), QUIET), told)
    left = sum(len(rules) for _, rules in groups[_SILENCES:])
    more = [say(f"and {words.count_of(left, 'more rule')} in --json", QUIET)] if left else []
    return section("Not judged", "", rows, *more)
