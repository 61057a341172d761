"""A process that recorded the same rows in every step is summed up in another way, to the same."""

from __future__ import annotations

import numpy as np
import pytest

from dsprof.run.recorded.nested import alike, summed

PATHS = ("step", "backward", "backward/all_reduce", "backward/scope/all_gather", "data")
Rows = dict[str, np.ndarray]


def rows(words: list[int], steps: int = 4) -> Rows:
    """Rows of each step, of these words."""
    size, times = steps * len(words), np.random.default_rng(3)
    return {
        "engine": np.zeros(size, np.uint8),
        "step": np.repeat(np.arange(1, steps + 1, dtype=np.int32), len(words)),
        "word": np.tile(np.array(words, np.int32), steps),
        "seconds": times.random(size) + [9.0 if word == 2 else 0.0 for word in words] * steps,
        "count": np.ones(size),
        "line": np.arange(size, dtype=np.int32),
        "file": np.arange(size, dtype=np.int16) // (size // 2 + 1),
    }


NONE = rows([])
CASES = {
    "spans and calls": (rows([8, 2, 0]), rows([5, 5, 7])),
    "no call": (rows([8, 2, 0]), NONE),
    "calls alone, outside of any phase": (NONE, rows([5, 7])),
    "a phase in parts": (rows([2, 0, 2]), rows([5])),
    "a call that outlasts its phase": (rows([0, 2]), rows([5] * 12)),
}


@pytest.mark.parametrize("both", CASES.values(), ids=CASES)
def test_both_ways_give_the_same_part(both: tuple[Rows, Rows]) -> None:
    one, other = alike(both, PATHS), summed(both, PATHS)
    assert one is not None
    np.testing.assert_array_equal(one.visits, other.visits)
    np.testing.assert_array_equal(one.lengths, other.lengths)
    for name in other.columns:
        np.testing.assert_allclose(one.rows(name), other.rows(name), rtol=1e-12, err_msg=name)


SPANS, CALLS = rows([8, 2, 0]), rows([5])
UNLIKE = {
    "a step lacks a row": {name: column[1:] for name, column in SPANS.items()},
    "another phase in one step": SPANS | {"word": np.r_[SPANS["word"][:-1], 4]},
    "steps out of order": SPANS | {"step": SPANS["step"][::-1]},
    "a time that is unknown": SPANS | {"seconds": np.r_[SPANS["seconds"][:-1], np.nan]},
    "nothing": NONE,
}


@pytest.mark.parametrize("spans", UNLIKE.values(), ids=UNLIKE)
def test_steps_that_differ_are_left_to_the_usual_way(spans: Rows) -> None:
    assert alike((spans, NONE if spans is NONE else CALLS), PATHS) is None
