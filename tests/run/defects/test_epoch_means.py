"""Lines that tell of one turn of many, and of the mean of all since the epoch began."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dsprof.run import Run
from tests.loaded import run_of_text

#: Turns of a loader with eight workers that is too slow: each eighth waits for it.
STARVED = [6.25, *(4.25 if at % 8 == 1 else 0.25 for at in range(1, 100))]


def told_every(apart: int, took: Sequence[float], epochs: int = 1) -> Run:
    """PyTorch's ImageNet example; all but 0.2 s of a turn are its waiting for data."""
    lines = []
    for epoch in range(epochs):
        for at in range(0, len(took), apart):
            mean = sum(took[: at + 1]) / (at + 1)
            lines.append(
                f"Epoch: [{epoch}][{at:3}/{len(took)}]\tTime {took[at]:6.3f} ({mean:6.3f})"
                f"\tData {took[at] - 0.2:6.3f} ({mean - 0.2:6.3f})\tLoss 7.0e+00 (7.0e+00)\n"
            )
    return run_of_text(*lines)


def test_turns_that_are_never_printed_count_as_much_as_those_that_are() -> None:
    run = told_every(8, STARVED)
    known = run.steps[~run.steps["warm_up"]]
    assert known["seconds"].to_list() == pytest.approx([6.0 / 8] * 12, rel=0.02)
    assert known["data"].to_list() == pytest.approx([6.0 / 8 - 0.2] * 12, rel=0.03)
    assert known["covers"].eq(8).all()
    assert run.repairs["name"].to_list() == ["single-turns"]
    assert run.findings[0].title == "73 % of a step is waiting for input data"


def test_the_first_turns_of_a_later_epoch_hold_the_start_of_its_loader() -> None:
    run = told_every(8, STARVED, epochs=2)
    later = run.steps[run.steps["step"] > 100]
    assert later["step"].iloc[0] == 108
    assert later["seconds"].iloc[0] == pytest.approx((6.25 + 6.0) / 9, rel=0.02)
    assert later["covers"].to_list() == [9, *[8] * 11]


def test_turns_of_which_the_decimals_tell_too_little_are_told_together() -> None:
    took = [0.12, *(0.24 if at % 10 == 1 else 0.12 for at in range(1, 2000))]
    run = told_every(10, took)
    known = run.steps[~run.steps["warm_up"]]
    mean = (known["seconds"] * known["covers"]).sum() / known["covers"].sum()
    assert mean == pytest.approx(0.132, rel=0.02)
    assert known["seconds"].nunique() < 20
    assert known["seconds"].between(0.125, 0.14).all()


def test_means_that_contradict_the_turns_leave_them_as_they_are() -> None:
    """As of an excerpt whose lines somebody edited, or of several processes."""
    line = "Epoch: [0][{:3}/99]\tTime  0.250 ({:6.3f})\tData  0.050 ( 0.050)\tLoss 7.0e+00\n"
    run = run_of_text(line.format(10, 6.25), line.format(20, 0.25), line.format(30, 0.25))
    assert run.steps["seconds"].to_list() == [0.25] * 3
    again = run_of_text(line.format(10, 0.5), line.format(10, 0.5))
    assert again.steps["seconds"].to_list() == [0.25]
    assert again.repairs.empty


def test_means_of_a_meter_that_no_epoch_resets_say_nothing_of_its_turns() -> None:
    """As in deepspeech.pytorch, whose 11th epoch begins with the mean of the first ten."""
    line = "Epoch: [11][{}/48]\tTime {:.3f} ({:.3f})\tData 0.002 (0.004)\tLoss 3.2168 (37.0903)\t\n"
    took, lines = [0.47, 0.407, 0.393, 0.403, 0.538, 0.538, 0.663, 0.664], []
    for at, seconds in enumerate(took, 1):
        mean = (528 * 1.2074 + sum(took[:at])) / (528 + at)
        lines.append(line.format(at, seconds, mean))
    run = run_of_text(*lines)
    assert run.steps["seconds"].to_list() == took
    assert run.repairs.empty


def _by_line(told: Sequence[float]) -> Run:
    """A loop that tells its meter of the time at each fiftieth turn, where it prints."""
    lines = []
    for at, seconds in enumerate(told):
        mean = sum(told[: at + 1]) / (at + 1)
        lines.append(
            f"Epoch: [0][{50 * at:3}/400]\tTime {seconds:6.3f} ({mean:6.3f})"
            f"\tData  0.050 ( 0.050)\tLoss 7.0e+00 (7.0e+00)\n"
        )
    return run_of_text(*lines)


def test_a_time_that_is_taken_where_a_line_is_printed_is_of_all_turns_since_the_one_before() -> (
    None
):
    run = _by_line([8.462, 33.566, 32.605, 32.910, 33.171])
    assert run.steps["seconds"].to_list()[1:] == pytest.approx(
        [33.566 / 50, 32.605 / 50, 32.910 / 50, 33.171 / 50]
    )
    assert run.steps["data"].to_list()[1:] == pytest.approx([0.05] * 4, rel=0.01)
    (repaired,) = run.repairs["text"]
    assert repaired.startswith("by its means, this loop takes the time only where it prints")


def test_a_time_that_a_loop_divides_itself_before_it_prints_stays_as_it_is() -> None:
    run = _by_line([3.5, 0.662, 0.655, 0.658, 0.661])
    assert run.steps["seconds"].to_list()[1:] == pytest.approx([0.662, 0.655, 0.658, 0.661])
    assert run.repairs.empty


def test_turns_that_all_take_as_long_do_not_show_when_their_time_is_taken() -> None:
    """As far on in an epoch, where three decimals tell nothing of how long a turn waited."""
    lines = [
        f"Epoch: [0][{at}/90000]\tTime  0.012 ( 0.012)\tData  0.001 ( 0.00{1 + (at > 40_250)})"
        f"\tLoss 7.0e+00 (7.0e+00)\n"
        for at in range(40_000, 40_500, 50)
    ]
    run = run_of_text(*lines)
    assert run.steps["data"].between(0.0009, 0.0021).all()
    assert not run.repairs["text"].str.startswith("by its means").any()


def test_the_means_of_a_job_that_is_resumed_inside_an_epoch_begin_there() -> None:
    line = "Epoch: [0][{:3}/999]\tTime {:6.3f} ({:6.3f})\tData {:6.3f} ({:6.3f})\tLoss 7.0e+00\n"
    lines = [line.format(400, 9.25, 9.25, 9.05, 9.05)]
    for n in range(1, 11):
        mean = (9.25 + 40 * n * 0.75) / (40 * n + 1)
        lines.append(line.format(400 + 40 * n, 0.25, mean, 0.05, mean - 0.2))
    steps = run_of_text(*lines).steps
    assert steps["seconds"].to_list() == pytest.approx([9.25, *[0.75] * 10], rel=0.02)
    assert steps["covers"].to_list() == [1, *[40] * 10]


def test_the_rate_of_a_turn_of_timm_becomes_that_of_all_of_them() -> None:
    line = (
        "Train: 0 [{:4}/1250 ( 4%)]  Loss: 6.5 (6.5)  Time: {:.3f}s, {:>7.2f}/s  ({:.3f}s, "
        "{:>7.2f}/s)  LR: 1.250e-04  Data: {:.3f} ({:.3f})\n"
    )
    run = run_of_text(
        line.format(0, 8.0, 32, 8.0, 32, 7.5, 7.5),
        line.format(50, 0.5, 512, 1.12, 228.57, 0.1, 0.7),
        line.format(100, 0.5, 512, 1.07, 239.25, 0.1, 0.65),
    )
    assert run.steps["seconds"].to_list() == pytest.approx([8.0, 0.9824, 1.019])
    assert run.steps["samples_per_second"].to_list() == pytest.approx([32, 260.59, 251.23], 1e-4)
    assert run.steps["data"].to_list() == pytest.approx([7.5, 0.564, 0.599])


def test_a_line_of_swin_tells_of_all_turns_since_the_one_before() -> None:
    line = "INFO Train: [0/9][{}/99]\teta 0:10:52 lr 0.00075\ttime 0.5000 ({})\tloss 1.5\n"
    run = run_of_text(line.format(0, "0.5000"), line.format(50, "1.4804"))
    assert run.steps["seconds"].to_list() == pytest.approx([0.5, 1.5], rel=1e-3)
    assert run.steps["covers"].to_list() == [1, 50]


def test_turns_right_behind_each_other_are_told_by_their_own_lines() -> None:
    """Of single turns the means of many tell too little, however quick or slow they were."""
    took = [8.5] * 14 + [1.15, 0.154, 67.619, 0.16, 3.062, 0.154, 15.261, 0.154]
    lines = []
    for at in range(14, len(took)):
        mean = sum(took[: at + 1]) / (at + 1)
        lines.append(
            f"Epoch: [0][{at}/5005]\tTime {took[at]:.3f} ({mean:.3f})"
            f"\tData {took[at] - 0.1:.3f} ({mean - 0.1:.3f})\tLoss 6.9 (6.9)\n"
        )
    steps = run_of_text(*lines).steps
    first = sum(took[:15]) / 15
    assert steps["seconds"].to_list() == pytest.approx([first, *took[15:]], abs=0.001)
    waited = [seconds - 0.1 for seconds in (first, *took[15:])]
    assert steps["data"].to_list() == pytest.approx(waited, abs=0.001)
    assert steps["covers"].to_list() == [15, *[1] * 7]
