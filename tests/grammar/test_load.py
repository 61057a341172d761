"""Dialect files that say what cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof.errors import GrammarError
from dsprof.grammar import Grammar
from dsprof.grammar.load import load_files

PATTERN = '[[pattern]]\nname = "step"\nregex = "loss=(?P<loss>.)"\n'
ROW = PATTERN + 'needle = "loss"\nrows = [{ kind = "metric", name = "loss", value = "{loss}" }]'


def load(folder: Path, text: str) -> Grammar:
    file = folder / "acme.toml"
    file.write_text(text)
    return load_files([file])


@pytest.mark.parametrize(
    "line",
    [
        "needle = 5",
        'needle = "loss"\nfields = "loss"',
        'needle = "loss"\nfields = { loss = 3 }',
        'needle = "loss"\nfirst_epoch = "two"',
        'needle = "loss"\nrows = [3]',
        'needle = "loss"\nblock = 3',
    ],
)
def test_a_value_of_a_wrong_type_is_a_fault_of_the_file_and_no_bug(
    tmp_path: Path, line: str
) -> None:
    right = PATTERN + 'needle = "loss"\n'
    with pytest.raises(GrammarError, match="wrong type") as told:
        load(tmp_path, right + PATTERN.replace("step", "other") + line)
    assert told.value.where.endswith("acme.toml: [[pattern]] 2")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[pattern]]", "has no name"),
        (PATTERN, "has no needle"),
        (PATTERN + 'needle = "loss"\n' + PATTERN + 'needle = "loss"', "defined twice"),
        (PATTERN + 'needle = "loss"\nseverity = "bad"', "severity 'bad' is not one of"),
        (PATTERN + 'needle = "loss"\nplace = "there"', "place 'there' is not one of"),
        (PATTERN + 'needle = "loss"\ncolour = "red"', "unknown key 'colour'"),
        (PATTERN + 'needle = "loss"\nfields = { lr = "metric lr" }', "has no group lr"),
        (PATTERN + 'needle = "loss"\nfields = { loss = "metric" }', "is not 'kind name unit'"),
        (PATTERN + 'needle = "loss"\nfields = { loss = "metric loss km" }', "unit 'km'"),
        (PATTERN.replace("(?P", "(?") + 'needle = "loss"', "does not compile"),
        (PATTERN + 'needle = "loss"\nlead = "(a+)+"', "itself repeats"),
        ('[[timers]]\nname = "x"', "timers that identify it"),
        ('[[timers]]\nname = "x"\nall = ["a"]\nsums = "day"', "sums or place is unknown"),
        ('[[timers]]\nname = "x"\nall = ["a"]\ntree = { a = "work" }', "class 'work'"),
        ("[[sample]]", "has no line"),
        (PATTERN + 'needle = "loss"\nrows = [{ kind = "metric" }]', "needs a kind and a name"),
        (ROW.replace("{loss}", "{loss} km"), "unit 'km' in '{loss} km' is unknown"),
        (PATTERN + 'needle = "loss"\npairs = { literals = true }', "between commas"),
        ("[[sampel]]", "unknown key 'sampel'"),
        ("a = [", "is not valid TOML"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(GrammarError, match=fault) as told:
        load(tmp_path, text)
    assert "acme.toml" in told.value.where


def test_one_literal_needs_no_list(tmp_path: Path) -> None:
    (pattern,) = load(tmp_path, PATTERN + 'needle = "loss="\nearly = "lr="').patterns
    assert (pattern.needles, pattern.early) == ((b"loss=", b"lr="), frozenset([b"lr="]))
