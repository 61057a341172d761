"""Sums over the rows of a step are the same, however alike its rows are in every step."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dsprof.run.steps.stretches import steps_of

WIDTH = 3


def rows(lengths: list[int], ranks: list[int], codes: list[int]) -> pd.DataFrame:
    """Rows of the steps 1, 2, ..., so many of each; ranks and codes follow each other in a ring."""
    step = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    size = len(step)
    return pd.DataFrame(
        {
            "segment": 0,
            "engine": 0,
            "step": step,
            "rank": np.resize(ranks, size),
            "code": np.resize(codes, size).astype(np.int8),
            "seconds": np.random.default_rng(1).random(size),
        }
    )


EVEN = rows([4] * 5, [0, 0, 1, 1], [0, 2, 0, -1])
CASES = {
    "the same rows in every step": EVEN,
    "as many, but others": rows([4] * 5, [0, 0, 1, 1], [0, 2, 1]),
    "of other ranks": rows([4] * 5, [0, 0, 1], [0, 2, 0, -1]),
    "a step more, a step less": rows([4, 6, 4, 2, 0], [0, 1], [0, 2]),
    "a step in two stretches": pd.concat([EVEN[:10], EVEN[12:], EVEN[10:12]], ignore_index=True),
    "a time that is unknown": EVEN.assign(seconds=EVEN["seconds"].mask(EVEN.index == 7)),
    "no rank is named": EVEN.assign(rank=-1),
    "one line names no rank": EVEN.assign(rank=EVEN["rank"].mask(EVEN.index == 4, -1)),
    "no row": EVEN[:0],
}


@pytest.mark.parametrize("table", CASES.values(), ids=CASES)
def test_sums_counts_and_ranks_are_those_of_each_step(table: pd.DataFrame) -> None:
    """Of the steps 2 to 5: the first is none of them."""
    steps = pd.DataFrame({"segment": 0, "engine": 0, "step": np.arange(2, 6)})
    at = steps_of(steps, table)
    (code,) = at.once(table["code"].to_numpy())
    sums = at.sums(code, WIDTH, table["seconds"].to_numpy())
    counts, ranks = at.sums(code, WIDTH), at.ranks(table["rank"])
    lasts = at.lasts(code, WIDTH)
    for number, step in enumerate(steps["step"]):
        mine = table[table["step"] == step]
        named = set(mine["rank"]) - {-1}
        assert ranks[number] == (max(1, len(named)) if len(mine) else 0)
        for word in range(WIDTH):
            some = mine.loc[mine["code"] == word, "seconds"]
            assert counts[number, word] == len(some)
            assert lasts[number, word] == (some.index[-1] if len(some) else -1)
            expected = some.sum(skipna=False)
            assert sums[number, word] == pytest.approx(expected, nan_ok=True)
