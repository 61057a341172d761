"""Reads and checks dialect files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import tomli

from dsprof.errors import GrammarError
from dsprof.events import Class, Kind, Severity
from dsprof.grammar.backtracking import nested_repeat, repeats_in_a_row
from dsprof.grammar.model import (
    PLACES,
    SUMS,
    UNITS,
    Block,
    BlockLine,
    Grammar,
    Measure,
    Pairs,
    Pattern,
    Row,
    Sample,
    TimerFlavour,
)
from dsprof.grammar.regex import Regex

_GROUP = re.compile(r"\{(\w+)\}")

Found = TypeVar("Found")


def load_files(files: Sequence[Path], own: Collection[Path] = ()) -> Grammar:
    """All files together, in the order given.

    Whether regexes are sound is asked of all but `own`: a test asks it of the project's own files,
    once, where each start of a command would compile all of them.
    """
    patterns: dict[str, Pattern] = {}
    timers: dict[str, TimerFlavour] = {}
    names: dict[str, str] = {}
    samples: list[Sample] = []
    titles: dict[str, tuple[str, str]] = {}
    for file in files:
        content = _read(file)
        titles[file.stem] = (content.pop("title", file.stem), content.pop("about", ""))
        names |= content.pop("timer", {})
        for pattern in _tables(file, content, "pattern", _pattern):
            if pattern.id in patterns:
                raise GrammarError(f"pattern {pattern.id!r} is defined twice", str(file))
            if file not in own:
                _is_sound(pattern, f"{file}: pattern {pattern.id.removeprefix(file.stem + '.')!r}")
            patterns[pattern.id] = pattern
        timers |= {one.name: one for one in _tables(file, content, "timers", _flavour)}
        samples += _tables(file, content, "sample", _sample)
        _nothing_left(content, str(file))
    return Grammar(tuple(patterns.values()), timers, names, tuple(samples), titles)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomli.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise GrammarError(f"cannot be read: {error.strerror}", str(file)) from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GrammarError(f"is not valid TOML: {error}", str(file)) from None
    except RecursionError:
        raise GrammarError("is nested too deeply", str(file)) from None


def _tables(
    file: Path, content: dict[str, Any], word: str, read: Callable[[Path, Any], Found]
) -> list[Found]:
    """All `[[word]]` of a file; one whose values are of other types than they must be is named."""
    found: list[Found] = []
    try:
        for table in content.pop(word, []):
            found.append(read(file, table))  # noqa: PERF401 - their number says which one is wrong
    except (AttributeError, TypeError, ValueError) as error:
        where = f"{file}: [[{word}]] {len(found) + 1}"
        raise GrammarError(f"holds a value of a wrong type: {error}", where) from error
    return found


def _literals(told: str | Sequence[str]) -> tuple[bytes, ...]:
    return tuple(one.encode() for one in ([told] if isinstance(told, str) else told))


def _nothing_left(table: dict[str, Any], where: str) -> None:
    if table:
        word = next(iter(table))
        raise GrammarError(f"has an unknown key {word!r}", where, "see parsers/README.md")


def _pattern(file: Path, table: dict[str, Any]) -> Pattern:
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise GrammarError("a [[pattern]] has no name", str(file))
    where = f"{file}: pattern {name!r}"
    early = _literals(table.pop("early", ()))
    needles = _literals(table.pop("needle", ())) + early
    if not needles or not all(needles):
        raise GrammarError("has no needle", where, "give a literal that only such lines contain")
    severity = table.pop("severity", "")
    if severity and severity not in set(Severity):
        raise GrammarError(f"severity {severity!r} is not one of {', '.join(Severity)}", where)
    place = table.pop("place", "before")
    if place not in PLACES:
        raise GrammarError(f"place {place!r} is not one of {', '.join(PLACES)}", where)
    lead = table.pop("lead", None)
    timers = bool(table.pop("timers", False))
    pattern = Pattern(
        id=f"{file.stem}.{name}",
        about=table.pop("about", ""),
        needles=needles,
        early=frozenset(early),
        beside=str(table.pop("beside", "")).encode(),
        lead=_regex(f"(?:{lead})\\Z") if lead else None,
        regex=_regex(table.pop("regex", None)),
        place=place,
        starts=bool(table.pop("starts", False)),
        turn=bool(table.pop("turn", False)),
        alone=bool(table.pop("alone", False)),
        window=int(table.pop("window", 0)),
        from_zero=bool(table.pop("from_zero", False)),
        first_epoch=int(table.pop("first_epoch", 0)),
        behind=bool(table.pop("behind", False)),
        at_end=bool(table.pop("at_end", False)),
        timers=timers,
        severity=severity,
        rows=_rows(table, where),
        pairs=_pairs(table, where, timers=timers),
        block=_block(table.pop("block", None), where),
    )
    _nothing_left(table, where)
    return pattern


def _regex(text: object) -> Regex | None:
    return None if text is None else Regex(str(text).encode())


def _is_sound(pattern: Pattern, where: str) -> None:
    """All its regexes compile, have the groups that its rows name and take linear time."""
    block = pattern.block
    inside = (block.end, *(line.regex for line in block.lines)) if block else ()
    regexes = [one for one in (pattern.regex, pattern.lead, *inside) if one is not None]
    for regex in regexes:
        try:
            _ = regex.compiled
        except re.error as error:
            raise GrammarError(f"regex does not compile: {error}", where) from None
    _groups_exist((pattern.regex, pattern.lead), pattern.rows, where)
    _take_linear_time(regexes, where)


def _take_linear_time(regexes: Sequence[Regex], where: str) -> None:
    for regex in regexes:
        text = regex.pattern.decode()
        if nested := nested_repeat(text):
            raise GrammarError(
                f"regex repeats {nested}, which itself repeats or has alternatives: a line can "
                "take for ever to match",
                where,
                "repeat a set of characters instead, or possessively: (...)*+",
            )
        if row := repeats_in_a_row(text):
            raise GrammarError(
                f"regex repeats the same characters several times in {row}: a long line can take "
                "for ever to match",
                where,
                "repeat them once, or possessively: \\d++",
            )


def _rows(table: dict[str, Any], where: str) -> tuple[Row, ...]:
    fields = [_field(group, spec, where) for group, spec in table.pop("fields", {}).items()]
    return (*fields, *(_full_row(dict(row), where) for row in table.pop("rows", [])))


def split_spec(spec: str, where: str) -> tuple[str, str, str]:
    """`"kind name unit"` in its three parts; the unit may be missing."""
    words = spec.split()
    kind, name, unit = (*words, "")[:3] if len(words) in (2, 3) else ("", "", "")
    if kind not in set(Kind):
        raise GrammarError(f"{spec!r} is not 'kind name unit'", where)
    if unit not in UNITS:
        raise GrammarError(f"unit {unit!r} in {spec!r} is unknown", where)
    return kind, name, unit


def _field(group: str, spec: str, where: str) -> Row:
    kind, name, unit = split_spec(spec, where)
    return Row(kind, name, "", (Measure(UNITS[unit][0], group, "", unit),))


def _full_row(table: dict[str, Any], where: str) -> Row:
    kind, name, raw = (str(table.pop(word, "")) for word in ("kind", "name", "raw"))
    if kind not in set(Kind) or not name:
        raise GrammarError("a row needs a kind and a name", where)
    measures = []
    for column in ("seconds", "bytes", "count", "value", "text"):
        cell = table.pop(column, None)
        if cell is not None:
            measures.append(_measure(column, str(cell), where))
    _nothing_left(table, where)
    return Row(kind, name, raw, tuple(measures))


def _measure(column: str, cell: str, where: str) -> Measure:
    if column == "text":
        return Measure("text", "", cell, "text")
    content, _, unit = cell.partition(" ")
    if unit not in UNITS:
        raise GrammarError(f"unit {unit!r} in {cell!r} is unknown", where)
    group = _GROUP.fullmatch(content)
    return Measure(column, group[1] if group else "", "" if group else content, unit)


def _groups_exist(regexes: Sequence[Regex | None], rows: Sequence[Row], where: str) -> None:
    known = {group for regex in regexes if regex for group in regex.names}
    used = {m.group for row in rows for m in row.measures if m.group}
    used |= {group for row in rows for group in _GROUP.findall(row.name + row.raw)}
    used |= {g for row in rows for m in row.measures for g in _GROUP.findall(m.constant)}
    used |= {"step", "epoch"} if "epoch_steps" in known else set()
    if used - known:
        missing = ", ".join(sorted(used - known))
        raise GrammarError(f"the regex has no group {missing}", where)


def _pairs(table: dict[str, Any], where: str, *, timers: bool) -> Pairs | None:
    content = table.pop("pairs", None)
    keys = table.pop("keys", {})
    if content is None:
        return None
    content = dict(content)
    default = str(content.pop("default", "phase {key} ms" if timers else "metric {key}"))
    for spec in filter(None, [default.replace("{key}", "key"), *keys.values()]):
        split_spec(spec, where)
    pairs = Pairs(
        separator=str(content.pop("separator", "|")).encode(),
        assign=str(content.pop("assign", ":")).encode(),
        end=str(content.pop("end", "")).encode(),
        default=default,
        keys=dict(keys),
        timers=timers,
        literals=bool(content.pop("literals", False)),
    )
    _nothing_left(content, where)
    if pairs.literals and (pairs.separator != b"," or pairs.end not in {b")", b"]", b"}"}):
        raise GrammarError("literals stand between commas and end at a bracket", where)
    return pairs


#: A regex that matches no line.
_NOTHING: Final = "(?!)"


def _block(table: dict[str, Any] | None, where: str) -> Block | None:
    if table is None:
        return None
    table = dict(table)
    lines = []
    for content in table.pop("line", []):
        line = dict(content)
        cut = bool(line.pop("cut", False))
        lines.append(
            BlockLine(
                Regex((_NOTHING if cut else str(line.pop("regex", ""))).encode()),
                _rows(line, where),
                tuple(line.pop("keep", ())),
                bool(line.pop("last", False)),
                cut,
            )
        )
        _nothing_left(line, where)
    json = table.pop("json", None)
    block = Block(
        limit=int(table.pop("lines", 200)),
        gap=int(table.pop("gap", 0)),
        end=_regex(table.pop("end", None)),
        lines=tuple(lines),
        json=split_spec(json, where)[:2] if json else None,
    )
    _nothing_left(table, where)
    return block


def _flavour(file: Path, table: dict[str, Any]) -> TimerFlavour:
    where = f"{file}: timers {table.get('name')!r}"
    tree = {str(path): str(word) for path, word in table.pop("tree", {}).items()}
    wrong = [word for word in tree.values() if word not in set(Class)]
    if wrong:
        raise GrammarError(f"class {wrong[0]!r} is not one of {', '.join(Class)}", where)
    flavour = TimerFlavour(
        name=str(table.pop("name", "")),
        all=frozenset(table.pop("all", ())),
        any=frozenset(table.pop("any", ())),
        none=frozenset(table.pop("none", ())),
        sums=str(table.pop("sums", "step")),
        place=str(table.pop("place", "before")),
        tree=tree,
        aliases=dict(table.pop("aliases", {})),
        ignore=frozenset(table.pop("ignore", ())),
        overlaps=dict(table.pop("overlaps", {})),
        rough=frozenset(table.pop("rough", ())),
        follows=str(table.pop("follows", "")),
    )
    if not flavour.name or not (flavour.all or flavour.any):
        raise GrammarError("a flavour needs a name and the timers that identify it", where)
    if flavour.sums not in SUMS or flavour.place not in ("end", "before", "after"):
        raise GrammarError("sums or place is unknown", where, "see parsers/README.md")
    table.pop("about", None)
    _nothing_left(table, where)
    return flavour


def _sample(file: Path, table: dict[str, Any]) -> Sample:
    text = table.pop("line", table.pop("lines", ""))
    if not isinstance(text, str) or not text:
        raise GrammarError("a [[sample]] has no line", str(file))
    events = tuple(table.pop("events", ()))
    _nothing_left(table, f"{file}: a [[sample]]")
    return Sample(file.stem, text.encode(), events)
