"""What no phase of a rank holds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dsprof.analysis.rest import untimed, untimed_by_step
from tests.analysis.test_ranks import two_ranks


def test_what_no_timer_of_a_rank_holds_is_the_rest_of_its_step() -> None:
    steps = pd.DataFrame({"step": range(3), "seconds": [1.5, 1.6, 1.7]})
    late = two_ranks(3)
    work = (late["name"] == "forward") & (late["rank"] == 1)
    rest = untimed(late.assign(self_seconds=late["self_seconds"].mask(work, 1.0)), steps)
    assert rest is not None
    assert rest.to_dict() == pytest.approx({0: 0.1, 1: 0.5})


def test_the_rest_of_each_step_is_unknown_where_a_rank_or_the_step_has_no_time() -> None:
    steps = pd.DataFrame({"step": [0, 1, 2], "seconds": [1.75, np.nan, 2.0]})
    phases = two_ranks(3)
    rest = untimed_by_step(phases[(phases["rank"] == 0) | (phases["step"] == 0)], steps)
    assert rest.to_numpy() == pytest.approx(
        np.array([[0.25, 0.25], [np.nan, np.nan], [0.5, np.nan]]), nan_ok=True
    )


@pytest.mark.parametrize("seconds", [1.5, 1.4, np.nan])
def test_where_timers_hold_all_of_a_step_no_rank_has_a_rest(seconds: float) -> None:
    steps = pd.DataFrame({"step": range(3), "seconds": seconds})
    assert untimed(two_ranks(3), steps) is None
