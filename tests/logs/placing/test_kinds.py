"""What a record is to its step: a line that both names one and holds its timers."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dsprof import grammar
from dsprof.logs import Reader
from dsprof.logs.sources.source import Source
from tests.logs.reading import PFX, STEP

ACME = """
title = "A loop of one's own"

[[pattern]]
name   = "tick"
needle = "acme tick "
regex  = 'acme tick (?P<step>\\d+): data (?P<data>\\d+), model (?P<model>\\d+)'
place  = "own"
timers = true

[pattern.fields]
data  = "phase acme_data ms"
model = "phase acme_model ms"

[[timers]]
name  = "acme"
all   = ["acme_data", "acme_model"]
sums  = "{sums}"
place = "{place}"

[timers.tree]
acme_data  = "data"
acme_model = "compute"
"""

TICK = b"acme tick %d: data %d, model 70\n"
ENGINE = PFX + b"time (ms) | fwd: %d.00 | bwd: 20.00 | step: 3.00\n"

every_way = pytest.mark.parametrize(
    ("place", "sums"), [*product(("end", "before", "after"), ("step", "mean", "window"))]
)


@cache
def dialect(place: str, sums: str) -> grammar.Grammar:
    with TemporaryDirectory() as folder:
        text = ACME.format(place=place, sums=sums)
        Path(folder, "acme.toml").write_text(text, encoding="utf-8")
        return grammar.load([Path(folder)])


@pytest.fixture
def told(place: str, sums: str) -> Any:
    """Steps that timers of a name belong to, and those that they were printed for (in ms)."""
    own = dialect(place, sums)

    def read(text: bytes, name: str = "acme_data") -> list[tuple[int | None, int]]:
        reader = Reader(own, Source("run.log"))
        reader.feed(text)
        reader.finish()
        rows = reader.log().events.to_pylist()
        return [(row["step"], round(1e3 * row["seconds"])) for row in rows if row["name"] == name]

    return read


def alike(steps: list[int]) -> list[tuple[int | None, int]]:
    return [(step, step) for step in steps]


@every_way
@pytest.mark.parametrize("apart", [1, 10])
def test_timers_in_a_line_that_names_its_step_are_of_that_step(told: Any, apart: int) -> None:
    steps = [*range(apart, 40 * apart + 1, apart)]
    assert told(b"".join(TICK % (n, n) for n in steps)) == alike(steps)


@every_way
def test_timers_in_a_line_that_was_printed_late_are_of_the_step_it_names(told: Any) -> None:
    steps = [1, 2, 3, 5, 4, *range(6, 20)]
    assert told(b"".join(TICK % (n, n) for n in steps)) == alike(steps)


@every_way
def test_timers_in_a_line_of_step_zero_are_of_no_step(told: Any) -> None:
    text = b"".join(TICK % (n, n) for n in range(0, 41, 10))
    assert told(text) == [(None, 0), *alike([10, 20, 30, 40])]


@every_way
def test_lines_with_step_and_timers_do_not_count_among_closing_lines_of_others(told: Any) -> None:
    """A script's own line under DeepSpeed's timers, whose step line is every tenth."""
    text = b"".join(
        (PFX + STEP % n + b"\n" if n % 10 == 0 else b"") + ENGINE % n + TICK % (n, n)
        for n in range(1, 31)
    )
    assert told(text) == alike([*range(1, 31)])
    assert told(text, "forward") == alike([*range(1, 31)])
