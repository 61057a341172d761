"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dsprof.text.layout import ACCENT, QUIET, STRONG, say
from dsprof.text.parts import BLENT, Part
from dsprof.text.settings import settings
from dsprof.text.words import count_of, measured_by
from dsprof.units import format_seconds

if TYPE_CHECKING:
    from dsprof.compare import Comparison, Side

_DEAR: Final = 0.005  # of a step: a part below that is not worth a line
_LOUD: Final = ("communication", "wait")
_AT_LEAST: Final = "≥ is at least: more of it lies in other timers."
_AT_MOST: Final = "≥ is at least, ≤ at most: timers of compute hold communication, too."


def difference(found: Comparison) -> RenderableType:
    """The answer, the numbers behind it, and what was configured differently."""
    parts: list[RenderableType] = [say(_answer(found), STRONG), say(found.why, QUIET)]
    parts += [say(f"That holds if {found.assumed}.")] if found.assumed else []
    sides = {"first": found.first, "second": found.second}
    parts += [say(f"The {n} run failed: {one.failure}.") for n, one in sides.items() if one.failure]
    parts += [Text(), _times(found)]
    signs = {part.sign for side in (found.first, found.second) for part in side.parts}
    if signs - {""}:
        parts.append(say(_AT_MOST if "≤" in signs else _AT_LEAST, QUIET))
    configured = settings(found.settings)
    if configured:
        parts += [Text(), *configured]
    return Group(*parts)


def _answer(found: Comparison) -> str:
    if found.low == found.high == 1:
        return "No difference"
    if found.answer == "cannot tell":
        enough = (
            f"; about {count_of(_rounded(found.needed), 'step time')} of each run would be enough"
            if found.needed and found.ratio is not None  # else `why` says it
            else ""
        )
        return f"Cannot tell{_change(found)}{enough}"
    word = {"regression": "Slower", "improvement": "Faster", "none": "No difference that matters"}
    return f"{word[found.answer]}{_change(found)}"


def _rounded(count: int) -> int:
    """To two digits: it is an estimate."""
    return int(float(f"{count:.2g}"))


def _change(found: Comparison) -> str:
    """`: +12 % time per step (+9 % to +15 %)`; "" where there is no interval."""
    if found.ratio is None or found.low is None or found.high is None:
        return ""
    span = f"{_percent(found.low)} to {_percent(found.high)}"
    of = " in timers" if found.seconds_from == "timers" else ""
    return f": {_percent(found.ratio)} time{of} per {found.per} ({span})"


def _percent(ratio: float) -> str:
    """A change of ten times and more as a factor: nobody reads +8,900 %."""
    if ratio >= 10:
        return f"×{ratio:,.0f}"
    percent = (ratio - 1) * 100
    return f"{percent:+.1f} %" if abs(percent) < 9.95 else f"{percent:+,.0f} %"


def _times(found: Comparison) -> Table:
    """What was judged where that is not the mean step, the mean step, and where it goes."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    sides = found.first, found.second
    _facts(table, "", ["first", "second", "change"])
    if any(side.rows != side.steps for side in sides):
        recorded = all(side.recorded for side in sides)
        by = measured_by(found.seconds_from, recorded=recorded)
        judged = [Part("", "", side.seconds, None) for side in sides]
        _change_of(table, f"judged, {by}" if by else "judged", judged, STRONG)
        _facts(table, "times judged", [f"{side.rows:,}" for side in sides])
    measures = [
        measured_by(side.seconds_from, recorded=side.recorded) or "unknown" for side in sides
    ]
    alike = measures[0] == measures[1]
    steps = [Part("", "", side.step_seconds, None) for side in sides]
    _change_of(table, f"one {found.per}", steps, STRONG, comparable=alike)
    for name in _names(sides):
        parts = [_part(side, name) for side in sides]
        label = name if name == BLENT else Part(name, "", None, None).label  # room for the whole
        _change_of(table, label, parts, ACCENT if name in _LOUD else "")
    averaged = "times averaged" if any(side.rows != side.steps for side in sides) else "step times"
    _facts(table, averaged, [f"{side.steps:,}" for side in sides])
    if not alike:
        _facts(table, "told by", measures)
    return table


def _names(sides: tuple[Side, Side]) -> list[str]:
    """Parts of either mean step that are worth a line, dearest first, unknown ones last."""
    dearest: dict[str, float] = {}
    for part in (part for side in sides for part in side.parts):
        dearest[part.name] = max(dearest.get(part.name, 0.0), part.seconds or 0.0)
    least = _DEAR * max(side.step_seconds or 0.0 for side in sides)
    unknown = {part.name for side in sides for part in side.parts if part.seconds is None}
    worth = [name for name, spent in dearest.items() if spent > least or name in unknown]
    return sorted(worth, key=lambda name: -dearest[name])


def _part(side: Side, name: str) -> Part | None:
    """The part of that name, of nothing where the class is known and has none; None where all
    that this run's timers hold is told apart."""
    told = next((part for part in side.parts if part.name == name), None)
    if told is None and name == BLENT and side.parts:
        return None
    return told or Part(name, "", 0.0 if name in side.classes else None, None)


def _change_of(
    table: Table,
    label: str,
    pair: Sequence[Part | None],
    style: str,
    *,
    comparable: bool = True,
) -> None:
    """A line of both, and the change where both say the same thing."""
    change = _ratio(*pair) if comparable else ""
    table.add_row(*(say(cell, style) for cell in (label, *map(_seconds, pair), change)))


def _ratio(before: Part | None, after: Part | None) -> str:
    if not (before and after and before.seconds) or after.seconds is None:
        return ""
    unknown = before.sign or after.sign
    return "" if unknown else _percent(after.seconds / before.seconds)


def _seconds(part: Part | None) -> str:
    if part is None:
        return "–"
    if part.seconds is None:
        return "unknown"
    return part.sign + format_seconds(part.seconds)


def _facts(table: Table, label: str, cells: list[str]) -> None:
    table.add_row(say(label, QUIET), *(say(cell, QUIET) for cell in cells))
