"""No pattern can be made slow, and no bytes make the reader fail."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsprof import grammar
from dsprof.grammar import Pattern, Regex
from dsprof.logs import Reader
from dsprof.logs.sources.source import Source

GRAMMAR = grammar.builtin()
#: What regexes consume: one of each class of characters, and pieces that tempt them.
FILLERS = (
    b"a", b"A", b"1", b".", b"-", b" ", b"[", b"]", b"(", b"{", b"'", b":", b"|", b"=", b"/",
    b"\t", b"\r", b"\xff", b"a.", b"1 ", b", ", b"x: ", b"| ", b"a: 1 | ", b"A1: ", b"torch.",
    b"%|", b"[rank0]: ", b"2024-01-02 ",
)  # fmt: skip
LONG = 100_000
SHORT = 10_000
LIMIT = 0.25  # seconds for LONG bytes; honest lines take microseconds


def heads(pattern: Pattern) -> Iterator[bytes]:
    """The needles, and what the samples say from the needle on, cut at several places."""
    for needle in pattern.needles:
        yield needle
        samples = (s.text for s in GRAMMAR.samples if needle in s.text)
        for text in list(samples)[:2]:
            line = text[text.index(needle) :].split(b"\n")[0]
            for part in (0.3, 0.6, 0.9):
                yield line[: max(len(needle), int(len(line) * part))]


def seconds(regex: Regex, text: bytes) -> float:
    start = time.process_time()
    regex.match(text)
    return time.process_time() - start


def is_slow(regex: Regex, head: bytes, filler: bytes) -> bool:
    """Over the limit, and not for noise of the machine: time grows faster than the text."""
    text = head + filler * (LONG // len(filler))
    if seconds(regex, text) < LIMIT:
        return False
    longer = min(seconds(regex, text) for _ in range(5))
    shorter = min(seconds(regex, text[: len(text) // 4]) for _ in range(5))
    return longer > LIMIT or longer > 8 * max(shorter, 1e-3)


@pytest.mark.parametrize("pattern", GRAMMAR.patterns, ids=lambda p: p.id)
def test_no_line_makes_a_pattern_slow(pattern: Pattern) -> None:
    regexes = [(regex, head) for head in set(heads(pattern)) if (regex := pattern.regex)]
    if pattern.block is not None:
        starts = (b"", b"    ", b"-" * 20)
        regexes += [(line.regex, start) for line in pattern.block.lines for start in starts]
        regexes += [(pattern.block.end, start) for start in starts if pattern.block.end]
    if pattern.lead is not None:
        regexes.append((pattern.lead, b""))
    slow = [
        (regex.pattern[:60], head, filler)
        for regex, head in regexes
        for filler in FILLERS
        if is_slow(regex, head, filler)
    ]
    assert slow == []


def reading(text: bytes) -> float:
    reader = Reader(GRAMMAR, Source("hostile.log"))
    start = time.process_time()
    for at in range(0, len(text), 1 << 18):
        reader.feed(text[at : at + (1 << 18)])
    reader.finish()
    reader.log()
    return time.process_time() - start


NEEDLES = [needle for pattern in GRAMMAR.patterns for needle in pattern.needles]


ENDS = (b"", b"\n", b"  x\n", b"\r")
OPENING = re.compile(rb"[\[({'\"]")


def units() -> Iterator[bytes]:
    """Each needle with one of the ends, which its own bytes choose; those that open what a value
    may be in, and are sought until it closes, also without."""
    for needle in dict.fromkeys(NEEDLES):
        end = ENDS[zlib.crc32(needle) % len(ENDS)]
        yield needle + end
        if end and OPENING.search(needle):
            yield needle


def test_needles_without_end_are_read_in_linear_time() -> None:
    """Each needle again and again: on one line, as lines, or before carriage returns.

    Some are read together, which costs half as much, and one by one where these are slower than
    most.
    """
    texts = [
        {unit: unit * (SHORT // len(unit)) for unit in some} for some in batched([*units()], 8)
    ]
    times = [reading(b"\n".join(some.values())) for some in texts]
    usual = min(median(times), 0.05)  # seconds, where all of them are slow
    slow = [
        unit
        for some, time in zip(texts, times, strict=True)
        if time > 1.7 * usual
        for unit, text in some.items()
        if reading(text) > 0.6 * usual and grows(unit, SHORT, 4 * SHORT)
    ]
    assert slow == []


def batched(units: list[bytes], size: int) -> Iterator[list[bytes]]:
    return (units[at : at + size] for at in range(0, len(units), size))


def grows(unit: bytes, size: int, larger: int) -> bool:
    """Whether reading takes three times as long as the size says, each time it is tried:
    what else the machine does makes it so now and then."""
    text, more = (unit * (n // len(unit)) for n in (size, larger))
    for _ in range(4):
        most = 3 * larger / size * min(reading(text) for _ in range(3))
        if any(reading(more) < most for _ in range(3)):
            return False
    return True


@pytest.mark.parametrize("filler", FILLERS, ids=repr)
def test_needles_with_much_behind_them_are_read_in_linear_time(filler: bytes) -> None:
    text = b"".join(needle + filler * (3000 // len(filler)) for needle in dict.fromkeys(NEEDLES))
    assert reading(text) < 0.4 or not grows(text, len(text), 4 * len(text))


def pieces() -> st.SearchStrategy[bytes]:
    """Arbitrary bytes among needles, samples cut anywhere, and what separates things."""
    cut = st.builds(
        lambda sample, a, b: sample.text[a : a + b],
        st.sampled_from(GRAMMAR.samples),
        st.integers(0, 200),
        st.integers(0, 400),
    )
    marks = st.sampled_from([b"\n", b"\r", b"\x1b[0m", b"\x00", b" | ", b": ", b"nan", b"9" * 400])
    return st.one_of(st.binary(max_size=40), st.sampled_from(NEEDLES), cut, marks)


@settings(max_examples=150)
@given(st.lists(pieces(), max_size=25), st.integers(1, 4000))
def test_no_bytes_make_the_reader_fail(parts: list[bytes], portion: int) -> None:
    text = b"".join(parts)
    reader = Reader(GRAMMAR, Source("hostile.log"))
    for at in range(0, len(text), portion):
        reader.feed(text[at : at + portion])
    reader.finish()
    events = reader.log().events
    assert set(events["line"].to_pylist()) <= set(range(1, text.count(b"\n") + 2))
