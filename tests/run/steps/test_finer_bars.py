"""Times of ms-swift's records, finer than the whole seconds beside them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dsprof.run.steps.bars import bar_seconds
from tests.loaded import run_of_text


def told(times: Iterable[tuple[int, float]], *, out: int = 0, rate: bool = False) -> str:
    """Records of these steps, and how long training had lasted by then; the mean time of a step
    leaves `out` some of them."""
    lines = []
    for step, lasted in times:
        each = lasted / (step - out)
        speed = f"(iter/s)': {1 / each:.6f}" if rate else f"(s/it)': '{each:.4f}'"
        minutes, seconds = divmod(int(lasted), 60)
        lines.append(
            f"{{'loss': '1.5', 'learning_rate': '1e-05', 'global_step/max_steps': '{step}/400', "
            f"'elapsed_time': '{minutes}m {seconds}s', 'train_speed{speed}}}\n"
        )
    return "".join(lines)


def seconds(text: str) -> dict[int, float]:
    rows = bar_seconds(run_of_text(text).told)
    return dict(zip(rows["step"].astype(int), rows["seconds"], strict=True))


TIMES = [(5, 3.5), (10, 6.75), (15, 9.75), (20, 11.75)]
EACH = {10: 0.65, 15: 0.6, 20: 0.4}


@pytest.mark.parametrize("rate", [False, True])
@pytest.mark.parametrize("out", [0, 1, 3])
def test_a_mean_time_of_a_step_tells_how_long_each_few_took(out: int, rate: bool) -> None:
    assert seconds(told(TIMES, out=out, rate=rate)) == pytest.approx(EACH, rel=1e-3)


def test_a_mean_that_the_whole_seconds_contradict_tells_nothing() -> None:
    text = told(TIMES).replace("'1.", "'2.").replace("(s/it)': '0.", "(s/it)': '2.")
    assert seconds(text) == {}


def test_digits_that_tell_less_than_whole_seconds_are_not_used() -> None:
    times = [(10_000 + 100 * n, 10_000.9 + 100 * n) for n in range(4)]
    assert set(seconds(told(times)).values()) == {1.0}


def test_bars_between_such_records_end_no_window_that_whole_seconds_leave_unsure() -> None:
    text = told(TIMES)
    first, rest = text.split("\n", 1)
    bar = "Train:   2%|2         | 7/400 [00:05<04:00,  1.50it/s]\n"
    assert seconds(f"{first}\n{bar}{rest}") == pytest.approx(EACH, rel=1e-3)
