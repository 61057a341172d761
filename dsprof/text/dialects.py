"""Dialects in words: which there are, what a user's own get wrong, what nobody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dsprof import grammar as grammars
from dsprof.grammar import Grammar, Sample
from dsprof.logs import Coverage
from dsprof.logs.samples import Shown, covered, faults, read_sample, strangers
from dsprof.quotes import quoted
from dsprof.text.layout import QUIET, STRONG, beside, columns, heading, place, say
from dsprof.text.words import count_of, plain

_SHAPES: Final = 40
_LINE: Final = 70


def dialects(grammar: Grammar) -> RenderableType:
    """Every dialect in force, and how many kinds of lines it knows."""
    patterns = Counter(pattern.id.partition(".")[0] for pattern in grammar.patterns)
    parts: list[RenderableType] = []
    for file, (title, about) in grammar.titles.items():
        note = f"{file}.toml, {count_of(patterns[file], 'pattern')}"
        parts += [heading(title, note), Padding(say(about, QUIET), (0, 0, 0, 2)), Text()]
    folder = f"Your own files: {grammars.user_folder()}/*.toml, or --parsers DIR"
    manual = f"How to write one: {grammars.builtin_folder()}/README.md"
    return Group(*parts, say(folder, QUIET), say(manual, QUIET))


def unknown(coverage: Coverage) -> RenderableType:
    """Shapes of the lines that look like metrics and that no pattern reads."""
    if not coverage.metric_lines:
        return heading(f"None of its {count_of(coverage.lines, 'line')} looks like a metric")
    told = (
        f"{coverage.read_lines:,} of {count_of(coverage.metric_lines, 'line')} "
        "that look like metrics are understood"
    )
    rows = columns(8)
    for count, shape, source, line, example in coverage.shapes[:_SHAPES]:
        said = (Text(plain(text), no_wrap=True, overflow="ellipsis") for text in (shape, example))
        rows.add_row(say(f"{count:,} ×", QUIET), Group(*said, beside(place(source, line))))
    left = len(coverage.shapes) - _SHAPES
    more = [say(f"and {count_of(left, 'shape')} more", QUIET)] if left > 0 else []
    return Group(heading(told), rows, *more)


def mistakes(folder: Path) -> list[str]:
    """What the dialect files of a folder get wrong by their own samples; none if they are right.

    Raises:
        GrammarError: a file cannot be read or says something that cannot be meant.
    """
    shipped = folder.resolve() == grammars.builtin_folder().resolve()
    grammar = grammars.builtin() if shipped else grammars.load([folder])
    own = {file.stem for file in folder.glob("*.toml")}
    samples = [
        (sample, read_sample(sample, grammar)) for sample in grammar.samples if sample.file in own
    ]
    shown, _ = covered(told for _, told in samples)
    mine = [p.id for p in grammar.patterns if p.id.partition(".")[0] in own]
    return [
        *(mistake for one in samples for mistake in _of_sample(*one, grammar)),
        *(f"{pattern}: no sample shows it" for pattern in mine if pattern not in shown),
    ]


def verdict(found: list[str]) -> RenderableType:
    if not found:
        return say("Every sample reads as written, and every pattern has one.", STRONG)
    return Group(heading(count_of(len(found), "mistake")), *(say(mistake) for mistake in found))


def _of_sample(sample: Sample, told: Shown, grammar: Grammar) -> Iterator[str]:
    line = quoted(plain(sample.text.decode("utf-8", "replace")), _LINE)
    for fault in faults(sample, told):
        yield f'{sample.file}: sample "{line}" {fault}'
    for pattern in sorted(strangers(sample, told, grammar)):
        yield f'{sample.file}: sample "{line}" is also read by {pattern}'
