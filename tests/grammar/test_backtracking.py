"""A regex that a line could keep busy for ever is refused where it is loaded."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from dsprof.errors import GrammarError
from dsprof.grammar import builtin_files
from dsprof.grammar.backtracking import nested_repeat, repeats_in_a_row
from dsprof.grammar.load import load_files

SLOW = [
    "(a+)+$",
    "(?:a*)*$",
    "(?:a|a)*$",
    "(?:a|aa)+$",
    "(a{1,3})+$",
    "(a?a?)+$",
    "(?P<x>a{2,}){20,}$",
    "((?:ba?)*a*)+$",
    r"(?:[^'\\]|\\.|a)*'",
]
FAST = [
    "a+b+$",
    "(?:ab)+$",
    "[(a+)]+$",
    r"\(a+\)+",
    "(?>a+)+$",
    "(?:a|b)*+$",
    "(a++)+$",
    "(a+)?b",
    "(?#(a+)b+",
    "(?P<x>a)(?P=x)*",
    r"(?:[a-z]\w{0,60}\.){1,10}x",
]


@pytest.mark.parametrize("pattern", SLOW)
def test_a_repeat_of_a_repeat_is_named(pattern: str) -> None:
    assert nested_repeat(pattern)
    assert pattern.startswith(nested_repeat(pattern)) or nested_repeat(pattern) in pattern


@pytest.mark.parametrize("pattern", FAST)
def test_a_regex_that_takes_linear_time_is_let_through(pattern: str) -> None:
    assert nested_repeat(pattern) == ""
    shorter, longer = (min(seconds(pattern, size) for _ in range(3)) for size in (5_000, 20_000))
    assert longer < 60 * max(shorter, 1e-3)


@pytest.mark.parametrize(
    "pattern",
    [r"\d+\d+\d+", ".*.*.*x", "x[ab]*[abc]*a*", r"\w{1,300}\w{1,300}\w{1,300}", r"(\d+,?\d+,?\d+)"],
)
def test_repeats_of_the_same_signs_in_a_row_are_named(pattern: str) -> None:
    assert repeats_in_a_row(pattern)
    assert repeats_in_a_row(pattern) in pattern


@pytest.mark.parametrize(
    "pattern",
    [
        *FAST,
        r"\d+\.\d+\.\d+",
        r"\s*\d+\s*\w+ .*",
        r"\d++\d+\d+",
        r"[^|]*\|[^|]*\|[^|]*",
        r"a{1,9}.*\d+",
    ],
)
def test_repeats_that_something_holds_apart_are_let_through(pattern: str) -> None:
    assert repeats_in_a_row(pattern) == ""


def test_a_dialect_file_with_repeats_in_a_row_or_too_deep_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[[pattern]]\nname = "slow"\nneedle = "loss"\nregex = "loss .*.*.*$"\n')
    with pytest.raises(GrammarError, match=r"own\.toml: pattern 'slow'.*several times in"):
        load_files([file])
    file.write_text("a = " + "[" * 100_000)
    with pytest.raises(GrammarError, match="nested too deeply"):
        load_files([file])


def seconds(pattern: str, size: int) -> float:
    start = time.process_time()
    re.match(pattern, "a" * size + "!")
    return time.process_time() - start


def test_a_dialect_file_with_such_a_regex_is_refused_with_the_place_and_the_way_out(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        """[[pattern]]
name = "slow"
needle = "loss"
regex = '''loss (?P<value>(?:\\d+,?)+)$'''
"""
    )
    with pytest.raises(GrammarError) as raised:
        load_files([file])
    assert "own.toml: pattern 'slow'" in str(raised.value)
    assert r"(?:\d+,?)+" in str(raised.value)
    assert "possessively" in str(raised.value)


def test_regexes_of_leads_and_blocks_are_held_to_it_too(tmp_path: Path) -> None:
    for more in ("lead = '(?: +x?)*'", "[pattern.block]\nend = '(=+)*$'"):
        file = tmp_path / "own.toml"
        file.write_text(f'[[pattern]]\nname = "slow"\nneedle = "loss"\n{more}\n')
        with pytest.raises(GrammarError, match="for ever"):
            load_files([file])


def test_each_regex_of_the_dialects_that_ship_takes_linear_time() -> None:
    """No command asks this of them when it starts."""
    assert load_files(builtin_files()).patterns
