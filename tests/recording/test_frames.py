"""Calls as a recording tells them."""

from __future__ import annotations

import pytest

from dsprof.recording.frames import Frame, frames_of, line_of


def test_a_stack_is_told_apart_into_its_calls() -> None:
    assert frames_of("read (lib/io.py) < A.b (./data.py:7) < <module> (/home/a b/t.py:30)") == (
        Frame("read", "lib/io.py", 0),
        Frame("A.b", "./data.py", 7),
        Frame("<module>", "/home/a b/t.py", 30),
    )


@pytest.mark.parametrize(
    ("frame", "told", "is_own"),
    [
        (Frame("A.b", "/home/me/data.py", 7), "A.b (data.py:7)", True),
        (Frame("A.b", "./data.py", 0), "A.b (data.py)", True),
        (Frame("read", "lib/io.py", 0), "read (lib/io.py)", False),
        (Frame("<module>", "./train.py", 30), "train.py:30", True),
    ],
)
def test_a_call_is_told_in_few_words(frame: Frame, told: str, *, is_own: bool) -> None:
    assert (frame.told, frame.is_own) == (told, is_own)


def test_long_names_are_cut_where_a_sentence_tells_them() -> None:
    assert len(Frame("f" * 500, f"./{'a' * 500}.py", 3).told) < 140


@pytest.mark.parametrize("text", [None, 3.5, "", "no place", "x (y)" * 2000])
def test_what_is_no_stack_has_no_calls(text: object) -> None:
    assert frames_of(text) == ()


def test_the_line_is_that_of_the_job_and_of_a_library_only_where_there_is_no_other() -> None:
    read, load = Frame("read", "lib/io.py", 0), Frame("load", "./data.py", 7)
    assert line_of((read, load)) == "load (data.py:7)"
    assert line_of((read,)) == "read (lib/io.py)"
