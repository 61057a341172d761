"""The vocabulary: what dialects and recordings call things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from dsprof import grammar
from dsprof.events import CONFIG, GPU, MEMORY, METRICS, PROBLEMS
from dsprof.grammar import Pattern

CANONICAL = {
    "metric": METRICS, "memory": MEMORY, "gpu": GPU, "problem": PROBLEMS, "config": CONFIG,
}  # fmt: skip
PACKAGE = Path(__file__).parent.parent / "dsprof"


def names_in(pattern: Pattern) -> Iterable[tuple[str, str]]:
    """Kind and name of what a pattern gives."""
    lines = pattern.block.lines if pattern.block else ()
    for row in chain(pattern.rows, *(line.rows for line in lines)):
        yield row.kind, row.name
    for meaning in filter(None, pattern.pairs.keys.values() if pattern.pairs else ()):
        kind, name, *_ = meaning.split()
        yield kind, name


@cache
def dialects_by_name() -> dict[str, dict[str, set[str]]]:
    """The dialects that give a name, by kind and name."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for pattern in grammar.load().patterns:
        for kind, name in names_in(pattern):
            found[kind][name].add(pattern.id.partition(".")[0])
    return found


@cache
def words_of_the_package() -> frozenset[str]:
    """Every string constant of dsprof, without the vocabulary itself."""
    return frozenset(
        node.value
        for file in PACKAGE.rglob("*.py")
        if file != PACKAGE / "events.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.parametrize("kind", CANONICAL)
def test_each_canonical_name_is_one_that_a_dialect_or_dsprof_itself_gives(kind: str) -> None:
    given = dialects_by_name()[kind].keys() | words_of_the_package()
    assert CANONICAL[kind].keys() - given == set()


@pytest.mark.parametrize("kind", CANONICAL)
def test_a_name_that_several_dialects_give_is_a_canonical_one(kind: str) -> None:
    several = {name for name, dialects in dialects_by_name()[kind].items() if len(dialects) > 1}
    open_ended = {name for name in several if "{" in name}  # the source's own names
    assert several - open_ended - CANONICAL[kind].keys() == set()


@pytest.mark.parametrize("kind", ["problem", "gpu"])
def test_dialects_give_no_problems_and_counters_but_canonical_ones(kind: str) -> None:
    """Reports have a sentence for each of these."""
    assert dialects_by_name()[kind].keys() - CANONICAL[kind].keys() == set()
