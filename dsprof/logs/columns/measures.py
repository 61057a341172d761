"""What the groups of many matches say: numbers, sizes, clocks, words. A column at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsprof import units
from dsprof.grammar.model import UNITS, Measure
from dsprof.logs.columns import arrow, clocks

#: Text of a group in each of many records; None where it did not take part.
Texts = list[bytes | None]
Groups = tuple[bytes | None, ...]

#: Units that are more than a factor.
READERS: Final[dict[str, Callable[[str], float | None]]] = {
    "size": units.size,
    "duration": units.duration,
    "amount": units.amount,
    "tera": lambda text: None if (v := units.amount(text)) is None else v / 1e12,
    "clock": clocks.seconds_of_clock,
}

_NUMERIC: Final = (
    r"^[-+]?(\d{1,60}(\.\d{0,60})?([eE][-+]?\d{1,9})?|\.\d{1,60}|nan|inf|NaN|Infinity)$"
)
#: This interval's and the mean of the last ones, as AMD's Primus prints them: `13372.8/13364.7`.
_AND_MEAN: Final = r"^(\d{1,60}\.\d{1,60})/\d{1,60}\.\d{1,60}$"
_LARGEST: Final = 1e18
_LONGEST_NAME: Final = 200
LONGEST_TEXT: Final = 800  # what an exception says at its end may be the most telling


def columns_of(groups: Sequence[Groups], index: dict[str, int]) -> dict[str, Texts]:
    """Group name → its text in each match; `index` says where a match's tuple holds it."""
    if not groups or not index:
        return {}
    turned = list(zip(*groups, strict=True))
    return {name: list(turned[place]) for name, place in index.items()}


def numbers_of(texts: Texts | pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64, and where the text was no number (the value there is NaN).

    Digits too many for a float or a whole number of 64 bits are none: nobody measured that.
    """
    array = arrow.binaries(texts) if isinstance(texts, list) else texts
    try:
        values = array.cast(pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        array = pc.replace_substring_regex(array, _AND_MEAN, r"\1")
        numeric = pc.match_substring_regex(array, _NUMERIC)
        numeric = pc.if_else(numeric, array, pa.nulls(len(array), array.type))
        values = numeric.cast(pa.string()).cast(pa.float64())
    found, missing = arrow.numpy_of(values)
    found = np.where(missing, np.nan, found)
    for i in np.flatnonzero(np.abs(found) >= _LARGEST).tolist():
        text = array[i].as_py().lstrip(b"+-")
        if text.isdigit() or (np.isinf(found[i]) and text[:1] not in b"iI"):
            found[i], missing[i] = np.nan, True
    return found, missing


def measure_of(
    measure: Measure, texts: dict[str, Texts], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values in seconds, bytes or units of one, and where the source told one."""
    _, factor = UNITS[measure.unit]
    if not measure.group:
        value = units.number(measure.constant)
        scale = factor if isinstance(factor, float) else 1
        scaled = float("nan") if value is None else value * scale
        return np.full(count, scaled), np.zeros(count, bool)
    column = texts.get(measure.group, [None] * count)
    if factor == "clock":
        values = clocks.seconds_of_clocks(column)
        return values, ~np.isnan(values)
    if isinstance(factor, str):
        read = READERS[factor]
        said = {text: None if text is None else read(plain(text)) for text in set(column)}
        values = np.array([said[text] for text in column], np.float64)
        return values, np.array([said[text] is not None for text in column], bool)
    values, missing = numbers_of(column)
    return values * factor, ~missing


def filled(
    template: str, texts: dict[str, Texts], count: int, longest: int = _LONGEST_NAME
) -> Iterable[str | None]:
    """The template with each record's groups in it; None where one of them is missing.

    Args:
        longest: bytes that are taken of a group.
    """
    used = [name for name in texts if "{" + name + "}" in template]
    if not used:
        return [template] * count
    rows = list(zip(*(texts[name] for name in used), strict=True))
    said = {values: _filled_one(template, used, values, longest) for values in set(rows)}
    return [said[values] for values in rows]


def _filled_one(template: str, names: Sequence[str], values: Groups, longest: int) -> str | None:
    for name, value in zip(names, values, strict=True):
        if value is None:
            return None
        template = template.replace("{" + name + "}", plain(value)[:longest])
    return template


def plain(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()
