"""Quotes of a log end behind a word, and say that something was left out."""

from __future__ import annotations

import pytest

from dsprof.quotes import quoted, quoted_in_title


def test_a_short_message_is_quoted_whole() -> None:
    assert quoted("address already in use", 22) == "address already in use"


def test_a_long_message_is_cut_behind_a_word_and_says_so() -> None:
    assert quoted("this process has 10.01 GiB memory in use", 29) == "this process has 10.01 GiB…"
    assert quoted("code: -98, name: EADDRINUSE", 12) == "code: -98…"


def test_one_long_word_is_cut_where_the_room_ends() -> None:
    assert quoted("x" * 50, 10) == "x" * 9 + "…"


def test_a_title_does_not_quote_where_in_cpp_an_error_was_raised() -> None:
    said = "RuntimeError: [/opt/build/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed"
    assert quoted_in_title(said) == "RuntimeError: Connection closed"
    assert quoted_in_title("[Rank 3] no [of 4] left") == "[Rank 3] no [of 4] left"


_LONG = "The size of tensor a (3) must match the size of tensor b (4)"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("KeyErrorKeyError: : 'labels''labels'", "KeyError: 'labels'"),
        ("ValueErrorValueErrorValueError: : : nonono", "ValueError: no"),
        (
            f"TypeErrorTypeError: : {_LONG}{_LONG[:30]}",
            f"TypeError: {_LONG}",
        ),
        ("KeyErrorKeyError: : 'labels'KeyError", "KeyErrorKeyError: : 'labels'KeyError"),
        ("KeyError: 'labels'", "KeyError: 'labels'"),
    ],
)
def test_what_processes_printed_into_one_line_is_said_once(printed: str, said: str) -> None:
    assert quoted_in_title(printed) == said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"/opt/{'x' * 40}/deepspeed/runtime/zero/stage3.py", "…/runtime/zero/stage3.py"),
        ("/app/swift/trainers.py", "/app/swift/trainers.py"),
    ],
)
def test_a_title_quotes_the_end_of_a_long_path(path: str, said: str) -> None:
    text = 'its traceback breaks off at File "{}", line 2131, in step'
    assert quoted_in_title(text.format(path)) == text.format(said)
