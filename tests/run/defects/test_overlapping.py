"""Lines whose times are means over more steps than lie between them."""

from __future__ import annotations

from collections import deque

import pytest

from dsprof.run import Run
from tests.loaded import run_of_text

TOOK = [30.0, *(2.0 for _ in range(99)), 22.0, *(2.0 for _ in range(99))]  # of 200 turns


def told_every(apart: int, turns: int = len(TOOK)) -> Run:
    """A loop of mmengine that prints every so many turns; a tenth of each waits for data."""
    recent, lines = deque[float](maxlen=10), []
    for turn, seconds in enumerate(TOOK[:turns], 1):
        recent.append(seconds)
        mean = sum(recent) / len(recent)
        if turn % apart == 0:
            lines.append(
                f"mmengine - INFO - Iter(train) [{turn:4}/900]  lr: 1e-3  time: {mean:.4f}"
                f"  data_time: {mean / 10:.4f}  loss: 2\n"
            )
    return run_of_text(*lines)


@pytest.mark.parametrize("apart", [1, 2, 5])
def test_each_step_counts_once_in_lines_that_stand_closer_together_than_their_windows(
    apart: int,
) -> None:
    run = told_every(apart)
    assert run.repairs["name"].to_list() == ["overlapping-windows"]
    known = run.steps[run.steps["seconds"].notna()]
    assert known["step"].to_list() == list(range(10, 201, 10))
    assert known["covers"].eq(10).all()
    assert known["seconds"].mean() == pytest.approx(sum(TOOK) / len(TOOK), rel=1e-4)
    assert known["seconds"].gt(3.0).sum() == 2
    assert known["data"].to_list() == pytest.approx((known["seconds"] / 10).to_list(), abs=1e-4)
    assert len(run.steps) == 200 / apart
    assert run.steps["loss"].eq(2.0).all()


def test_the_first_step_is_left_out_with_the_window_that_holds_it() -> None:
    one, ten = told_every(1), told_every(10)
    for run in (one, ten):
        (warm,) = run.steps.loc[run.steps["warm_up"] & run.steps["seconds"].notna(), "step"]
        assert warm == 10
    assert one.findings[0].title == ten.findings[0].title
    assert ten.repairs.empty


def test_what_is_left_at_the_end_is_no_window_but_in_a_log_of_no_other() -> None:
    run = told_every(1, turns=17)
    assert run.steps["step"][run.steps["seconds"].notna()].to_list() == [10]
    run = told_every(1, turns=4)
    (row,) = run.steps[run.steps["seconds"].notna()].to_dict("records")
    assert (row["step"], row["covers"], row["seconds"]) == (4, 4, 9.0)


def test_windows_of_twenty_turns_overlap_in_lines_of_each_tenth() -> None:
    """As `MetricLogger` prints them unless it is told otherwise, in each epoch from turn 0 on."""
    means = {10: 4.0, 20: 3.0, 30: 2.0, 40: 2.0}
    run = run_of_text(*(
        f"Epoch: [0]  [{turn:4}/900]  eta: 0:01:00  lr: 0.001  loss: 2.0 (2.0)"
        f"  time: {mean:.4f}  data: 0.1000  max mem: 80\n"
        for turn, mean in means.items()
    ))  # fmt: skip
    known = run.steps[run.steps["seconds"].notna()]
    assert known[["step", "covers", "seconds"]].to_numpy().tolist() == [[20, 20, 3], [40, 20, 2]]


def test_no_window_reaches_back_behind_the_first_step() -> None:
    """Its first line stands at step 2, the next ones five steps apart."""
    line = "mmengine - INFO - Iter(train) [{:4}/900]  lr: 1e-3  time: 2.0000  loss: 2\n"
    run = run_of_text(*(line.format(turn) for turn in (2, 7)))
    (row,) = run.steps[run.steps["seconds"].notna()].to_dict("records")
    assert (row["step"], row["covers"]) == (7, 7)
