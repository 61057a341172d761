"""Samples of GPUs whose clock is held back."""

from __future__ import annotations

from itertools import count

import pandas as pd

from dsprof.analysis.gpus import throttled

_LINES = count(1)


def samples(
    name: str, *values: float, gpu: str | None = "GPU-a", rank: int | None = 0
) -> pd.DataFrame:
    """Samples of one counter of one GPU, in order."""
    return pd.DataFrame(
        {
            "name": name,
            "value": values,
            "text": pd.array([gpu] * len(values), "str"),
            "rank": pd.array([rank] * len(values), "Int64"),
            "host": pd.array(["a"] * len(values), "str"),
            "source": "run",
            "line": [next(_LINES) for _ in values],
        }
    )


def test_the_gpu_that_is_held_back_in_most_of_its_samples_is_the_worst() -> None:
    hot = samples("throttled_thermal", 0, 1, 1, 1, 0, gpu="GPU-b", rank=3)
    found = throttled(
        pd.concat(
            [
                samples("throttled_thermal", 0, 0, 0, 1),
                hot,
                samples("throttled_hardware", 0, 0, 0, 1, gpu="GPU-b", rank=3),
                samples("temperature", 60, 99),
                samples("temperature", 84, 91, 85, gpu="GPU-b", rank=3),
            ],
            ignore_index=True,
        )
    )
    assert found is not None
    assert (found.device, found.rank, found.host) == ("GPU-b", 3, "a")
    assert (found.count, found.of, found.share, found.devices) == (3, 5, 0.6, 2)
    assert (found.why, found.celsius) == ("too hot", 91)
    assert found.row["line"] == hot["line"][3]  # the last sample in which it is held back


def test_where_no_gpu_is_held_back_the_share_is_0() -> None:
    rows = samples("throttled_hardware", 0, 0, 0, rank=None).assign(host=None)
    found = throttled(rows)
    assert found is not None
    assert (found.share, found.count, found.of, found.celsius) == (0.0, 0, 3, None)
    assert (found.rank, found.host, found.device) == (None, None, "GPU-a")
    assert found.row["line"] == rows["line"][2]


def test_the_power_limit_and_unknown_values_are_no_reasons() -> None:
    assert throttled(samples("throttled_power", 1, 1)) is None
    assert throttled(samples("throttled_thermal", float("nan"))) is None


def test_a_gpu_without_a_name_is_that_of_its_rank() -> None:
    found = throttled(
        pd.concat(
            [
                samples("throttled_thermal", 0, 0, gpu=None, rank=0),
                samples("throttled_thermal", 1, 1, gpu=None, rank=1),
            ],
            ignore_index=True,
        )
    )
    assert found is not None
    assert (found.device, found.rank, found.share, found.devices) == ("", 1, 1.0, 2)


def test_a_sample_of_a_gpu_that_two_ranks_share_is_one_sample() -> None:
    one = samples("throttled_thermal", 1, 0, 0)
    found = throttled(pd.concat([one, one.assign(rank=1)], ignore_index=True))
    assert found is not None
    assert (found.count, found.of, found.devices) == (1, 3, 1)
