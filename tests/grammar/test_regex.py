"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import pytest

from dsprof.grammar import Grammar, Regex, builtin_files
from dsprof.grammar.load import load_files
from dsprof.logs import read
from tests.conftest import SAMPLES


def regexes(grammar: Grammar) -> list[Regex]:
    blocks = [pattern.block for pattern in grammar.patterns if pattern.block]
    told = [regex for pattern in grammar.patterns for regex in (pattern.regex, pattern.lead)]
    told += [
        regex for block in blocks for regex in (block.end, *(one.regex for one in block.lines))
    ]
    return [regex for regex in told if regex is not None]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (rb"loss: (?P<loss>\d+), lr: (?:(?P<lr>\S+)|none)", {"loss", "lr"}),
        (rb"\(?P<no>\\(?P<yes>.)", {"yes"}),
        (rb"[(?P<no>](?P<yes>.)", {"yes"}),
        (rb"[]\](?P<no>](?P<yes>.)[^](?P<no>]", {"yes"}),
    ],
)
def test_groups_are_known_before_it_is_compiled(pattern: bytes, names: set[str]) -> None:
    regex = Regex(pattern)
    assert regex.names == names == set(regex.compiled.groupindex)


def test_the_groups_of_all_dialects_are_known_so() -> None:
    for regex in regexes(load_files(builtin_files())):
        assert regex.names == set(regex.compiled.groupindex), regex.pattern


def test_of_what_a_log_does_not_need_nothing_is_compiled() -> None:
    files = builtin_files()
    grammar = load_files(files, own=files)
    read([SAMPLES / "neox_pipeline_2023.log"], grammar=grammar)
    known = regexes(grammar)
    used = [regex for regex in known if "compiled" in vars(regex)]
    assert 0 < len(used) < len(known) / 4
