"""Values that are printed as Python prints them: which commas and brackets are theirs."""

from __future__ import annotations

import time
from argparse import Namespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof.logs.columns import literals
from tests.loaded import run_of_text

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_NAMES = st.text("abcdefgh_", min_size=1)


@settings(max_examples=40)
@given(st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=6), st.text().map(str.encode))
def test_whatever_python_prints_is_taken_apart_as_it_was_put_together(
    arguments: dict[str, object], behind: bytes
) -> None:
    opening, printed = b"Namespace(", repr(Namespace(**arguments)).encode("utf-8", "replace")
    text = printed + behind
    end = literals.closing(text, len(opening), len(text))
    assert end == len(printed) - 1
    parts = [part.strip().decode() for part in literals.split(text[len(opening) : end])]
    expected = [f"{name}={value!r}" for name, value in arguments.items()]
    assert parts == [one.encode("utf-8", "replace").decode() for one in expected]


@pytest.mark.parametrize(
    ("arguments", "stage"),
    [
        ("seed=1, zero_stage=2)", 2),
        ("zero_stage=2) and more, zero_stage=3)", 2),
        ("prompt='a, zero_stage=1, (b', zero_stage=2)", 2),
        ('prompt="it\'s, zero_stage=1)", zero_stage=2)', 2),
        (r"prompt='it\'s, zero_stage=1)', zero_stage=2)", 2),
        ("f=<function f at 0x7f>, device=device(type='cuda'), zero_stage=2)", 2),
        ("teacher=Namespace(zero_stage=1), zero_stage=2)", 2),
        ("teacher=Namespace(zero_stage=1), seed=1)", None),
        ("prompt='zero_stage=1, zero_stage=1, zero_stage=1)", None),
        ("betas=[0.9, zero_stage=1", None),
        ("seed=1, zero_stage=1", None),  # its line lost its end, which may have been `12`
        ("zero_stage=2, seed=1", 2),
    ],
)
def test_only_an_argument_of_the_script_itself_is_a_setting(
    arguments: str, stage: int | None
) -> None:
    assert run_of_text(f"Namespace({arguments}\nready\n").config.get("zero_stage") == stage
    assert run_of_text(f"Namespace({arguments}").config.get("zero_stage") == stage


@pytest.mark.parametrize("text", [b"'\\", b"\\'", b"'\"", b"([{", b"')", b"\\", b"a=',", b",'\\"])
def test_no_text_takes_more_than_its_length(text: bytes) -> None:
    text *= 250_000 // len(text)
    begun = time.process_time()
    literals.closing(text, 0, len(text))
    literals.split(text)
    assert time.process_time() - begun < 1.25


@pytest.mark.parametrize("opening", ["Namespace(a=", "Namespace(a=()", r"Namespace(a='\'"])
def test_a_line_of_brackets_that_stay_open_takes_no_more_than_its_length(opening: str) -> None:
    begun = time.process_time()
    run_of_text(opening * (200_000 // len(opening)) + "\n")
    assert time.process_time() - begun < 5
