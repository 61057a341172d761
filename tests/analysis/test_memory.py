"""How large a card is, and how its memory moves."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.analysis.memory import capacity

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which", 79.15),
        ("Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 37 GiB already", 39.59),
    ],
)
def test_both_wordings_of_out_of_memory_tell_the_size_of_the_card(text: str, gib: float) -> None:
    problems = pd.DataFrame({"kind": ["oom"], "text": [text]})
    assert capacity({}, problems) == pytest.approx(gib * GIB)


def test_what_a_recording_knows_comes_first() -> None:
    problems = pd.DataFrame({"kind": ["oom"], "text": ["a total capacity of 79.15 GiB"]})
    assert capacity({"gpu_memory_bytes": 80 * GIB}, problems) == 80 * GIB


def test_other_problems_tell_nothing() -> None:
    problems = pd.DataFrame({"kind": ["exit"], "text": ["a total capacity of 79.15 GiB"]})
    assert capacity({}, problems) is None
