"""Replayed steps: what is left when a planted fault goes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dsprof.analysis.compared import meetings
from dsprof.analysis.whatif import Gain, data_ready, no_straggler, parts, quicker
from dsprof.events import CLASSES, Class


def phases(late: float, load: float = 0.0, jitter: float = 0.0) -> pd.DataFrame:
    """40 steps of 2 ranks: 60 ms of compute, 10 ms of transfer; rank 1 is late by `late`."""
    noise = np.random.default_rng(0).normal(0, jitter, (40, 2))
    rows = []
    for step in range(40):
        for rank in range(2):
            own = 0.06 + (late if rank == 1 else 0.0) + noise[step, rank]
            last = max(0.06 + noise[step, 0], 0.06 + late + noise[step, 1])
            told = {"compute": own, "communication": 0.01 + last - own, "data": load}
            rows += [
                {"step": step, "rank": rank, "name": name, "class": name, "self_seconds": seconds}
                for name, seconds in told.items()
            ]
    return pd.DataFrame(rows).astype({"step": "Int64", "rank": "Int32"})


def without_late(rows: pd.DataFrame, *slow: int, timed: bool = True) -> Gain:
    found, where_they_meet = parts(rows), meetings(rows)
    assert found is not None
    assert where_they_meet is not None
    return no_straggler(found[0], where_they_meet, slow or (1,), timed=timed)


def table(late: float, load: float = 0.0, jitter: float = 0.0) -> np.ndarray:
    found = parts(phases(late, load, jitter))
    assert found is not None
    return found[0]


def test_without_its_late_rank_a_step_is_as_short_as_the_others_work() -> None:
    gain = without_late(phases(0.03))
    assert (gain.low, gain.high) == pytest.approx((0.0285, 0.0315))  # 5 % to each side


def test_no_step_becomes_shorter_than_what_the_others_work() -> None:
    """The margin around a delay of three seconds is more than all that the others do."""
    gain = without_late(phases(3.0))
    assert (gain.low, gain.high) == pytest.approx((2.85, 3.01))


def test_what_makes_a_rank_late_outside_of_all_phases_is_told_by_the_waiting_alone() -> None:
    rows = phases(0.03)
    late = (rows["rank"] == 1) & (rows["class"] == "compute")
    rows = rows.assign(self_seconds=rows["self_seconds"].mask(late, 0.06))
    gain = without_late(rows, timed=False)
    assert (gain.low, gain.high) == pytest.approx((0.0285, 0.0315))  # 5 % to each side


def test_what_a_late_rank_waits_itself_for_the_others_does_not_make_up_for_its_delay() -> None:
    """The others update 20 ms longer, too, but after they have waited for it."""
    rows = phases(0.03)
    update = rows[rows["class"] == "compute"].assign(name="optimizer", **{"class": "optimizer"})
    update["self_seconds"] = np.where(update["rank"] == 0, 0.02, 0.0)
    gather = update.assign(name="gather", **{"class": "communication"})
    gather["self_seconds"] = np.where(update["rank"] == 1, 0.02, 0.0)
    gain = without_late(pd.concat([rows, update, gather]))
    assert (gain.low, gain.high) == pytest.approx((0.0285, 0.0315))  # 5 % to each side


def test_without_a_late_rank_a_step_is_as_long_as_the_next_one_works() -> None:
    rows = phases(0.03)
    third = rows[rows["rank"] == 1].assign(rank=2).astype({"rank": "Int32"})
    early = {"compute": -0.01, "communication": 0.01, "data": 0.0}
    third["self_seconds"] += third["class"].map(early).astype(float)
    gain = without_late(pd.concat([rows, third]))
    assert (gain.low, gain.high) == pytest.approx((0.0095, 0.0105))  # 5 % to each side
    both = without_late(pd.concat([rows, third]), 1, 2)
    assert (both.low, both.high) == pytest.approx((0.0285, 0.0315))


def test_what_no_phase_of_the_others_holds_makes_up_for_a_delay() -> None:
    rows = phases(0.03)
    waits = (rows["rank"] == 0) & (rows["class"] == "communication")
    rows = rows.assign(self_seconds=rows["self_seconds"].mask(waits, 0.02))
    rest = pd.DataFrame({0: 0.02, 1: 0.0}, index=range(40))
    found, where_they_meet = parts(rows, rest), meetings(rows)
    assert found is not None
    assert where_they_meet is not None
    gain = no_straggler(found[0], where_they_meet, [1])
    assert (gain.low, gain.high) == pytest.approx((0.0095, 0.0105))  # 5 % to each side


def test_whoever_meets_the_late_rank_earlier_in_a_smaller_group_has_waited_for_it_there() -> None:
    """Rank 0 waits in its pair, ranks 2 and 3 where all meet, and nobody in both."""
    seconds = np.zeros((40, 4, len(CLASSES)))
    seconds[:, :, CLASSES.index(Class.COMPUTE)] = 0.03
    seconds[:, 1, CLASSES.index(Class.OTHER)] = 0.05
    where_they_meet = np.full((40, 4, 2), 0.001)
    where_they_meet[:, 1, 0] = 0.0015  # what meeting costs
    where_they_meet[:, 0, 0] = where_they_meet[:, 2:, 1] = 0.051
    seconds[:, :, CLASSES.index(Class.COMMUNICATION)] = where_they_meet.sum(axis=2)
    gain = no_straggler(seconds, where_they_meet, [1], timed=False)
    assert (gain.low, gain.high) == pytest.approx((0.0475, 0.0525), rel=0.02)


def test_jitter_widens_the_interval_around_the_truth() -> None:
    gain = without_late(phases(0.03, jitter=0.005))
    assert 0.0235 < gain.low < 0.0285
    assert 0.0315 < gain.high < 0.037


def test_nothing_is_gained_from_a_rank_that_is_not_late() -> None:
    gain = without_late(phases(0.0, jitter=0.005))
    assert gain.low == 0
    assert gain.high < 0.005


def test_batches_that_are_ready_save_what_all_ranks_wait_for_them() -> None:
    gain = data_ready(table(0.0, load=0.02))
    assert (gain.low, gain.high) == pytest.approx((0.019, 0.021))  # 5 % to each side


def test_where_one_wait_is_nearly_all_of_the_time_the_work_is_left() -> None:
    """Of an epoch that starts its loader's workers anew: the mean wait is known to twice itself."""
    found = phases(0.0, load=0.001)
    rare = (found["step"] == 20) & (found["class"] == "data")
    told = parts(found.assign(self_seconds=found["self_seconds"].mask(rare, 40.0)))
    assert told is not None
    assert data_ready(told[0]).high == pytest.approx(1.0 + 0.001 * 39 / 40 + 0.01)


def test_what_one_rank_saves_while_another_works_as_long_elsewhere_makes_no_step_shorter() -> None:
    seconds = np.zeros((4, 2, len(CLASSES)))
    seconds[:, :, CLASSES.index(Class.COMPUTE)] = [0.05, 0.07]
    seconds[:, :, CLASSES.index(Class.OPTIMIZER)] = [0.02, 0.01]
    assert quicker(seconds, Class.OPTIMIZER, 0.5) == pytest.approx(0.005)
    seconds[:, 1, CLASSES.index(Class.OPTIMIZER)] = 0.0
    assert quicker(seconds, Class.OPTIMIZER, 0.5) == pytest.approx(0.0)
    seconds[:, 0, CLASSES.index(Class.OPTIMIZER)] = 0.04
    assert quicker(seconds, Class.OPTIMIZER, 1.0) == pytest.approx(0.02)


def test_steps_that_a_rank_does_not_tell_are_left_out() -> None:
    rows = phases(0.03)
    assert len(table(0.03)) == 40
    found = parts(rows[~((rows["step"] == 7) & (rows["rank"] == 1))])
    assert found is not None
    assert found[0].shape[:2] == (39, 2)
    assert parts(rows[rows["step"] == 1]) is None
    assert parts(rows[rows["step"] % 2 == rows["rank"]]) is None  # each step by one of them alone


def test_a_wait_for_data_of_one_rank_costs_at_most_what_it_waits() -> None:
    rows = phases(0.0, load=0.02)
    quick = (rows["rank"] == 0) & (rows["class"] == "data")
    found = parts(rows.assign(self_seconds=rows["self_seconds"].mask(quick, 0.0)))
    assert found is not None
    gain = data_ready(found[0])
    assert (gain.low, gain.high) == pytest.approx((0.0, 0.021))  # 5 % more


def test_the_mean_of_two_steps_is_known_to_two_standard_errors() -> None:
    seconds = np.zeros((2, 2, len(CLASSES)))
    seconds[:, 1, CLASSES.index(Class.COMPUTE)] = [0.01, 0.03]  # 20 ms, give or take 20 ms
    seconds[:, :, CLASSES.index(Class.COMMUNICATION)] = 0.1
    gain = no_straggler(seconds, 0.1 - seconds.sum(axis=2, keepdims=True), [1])
    assert gain.low == 0.0
    assert gain.high == pytest.approx(0.04 * 1.05)
