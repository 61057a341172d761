"""Skips that single lines tell of, and of how many steps they are."""

from __future__ import annotations

from dsprof.findings.numerics.skips import halvings_at_start, told_since, told_skips
from tests.findings.plants import alone, run_of
from tests.loaded import run_of_text


def test_the_optimizers_own_count_says_of_how_many_steps_skips_are() -> None:
    common = {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0}
    told = [common | {"text": f"Grad overflow on iteration {n}"} for n in (0, 1, 2, 7)]
    found = alone(run_of(told), "overflow-streak")
    assert found.title == "4 steps were skipped: gradients overflowed"
    assert "50 % of its first 8 steps, by the optimizer's count" in found.summary


def test_skips_behind_the_last_line_that_counts_them_are_counted_once() -> None:
    over = "[2026-11-21 05:55:0{},41{}] [INFO] [fused_optimizer.py:344:_update_scale] {}\n"
    grad = "Grad overflow on iteration {}"
    step = "[2026-11-21 05:55:02,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=3\n"
    lines = [
        over.format(1, 1, grad.format(18)),
        step,
        over.format(1, 2, grad.format(18)),  # another rank's, printed late
    ]
    assert told_since(run_of_text(*lines)) == 0
    more = [over.format(3, rank, grad.format(23)) for rank in range(4)]
    assert told_since(run_of_text(*lines, *more)) == 1
    assert told_since(run_of_text(*more)) == 0  # nothing counts them


_SCALER = "[2026-02-03 10:00:{:02d},253] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] {}\n"
_STAGE = "[2026-02-03 10:00:{:02d},254] [INFO] [fp8_stage_1_and_2.py:676:step] [deepspeed] {}\n"
_SKIPS = "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: "


def _two_lines_a_skip(*seconds: int) -> list[str]:
    """As MS-AMP prints an overflow that hysteresis holds, and half a second later the next one."""
    held = f"{_SKIPS}32768, but hysteresis is 2. Reducing hysteresis to 1"
    return [
        line.format(second + later, text)
        for second in seconds
        for line, later, text in (
            (_SCALER, 0, held),
            (_STAGE, 0, f"{_SKIPS}32768.0, reducing to 32768.0"),
            (_SCALER, 1, f"{_SKIPS}32768, reducing to 16384"),
            (_STAGE, 1, f"{_SKIPS}32768.0, reducing to 16384.0"),
        )
    ]


def test_a_skip_that_the_scaler_and_the_optimizer_tell_of_is_one() -> None:
    run = run_of_text(*_two_lines_a_skip(1, 11, 21, 31))
    assert told_skips(run) == 8
    assert "8 steps were skipped" in alone(run, "overflow-streak").title


def test_skips_at_the_least_scale_are_each_one() -> None:
    least = ["2.0, reducing to 1.0", "1.0, reducing to 1", *["1, reducing to 1"] * 4]
    lines = [_SCALER.format(n, _SKIPS + text) for n, text in enumerate(least)]
    assert told_skips(run_of_text(*lines)) == 6


def test_only_skips_before_the_scale_grows_could_be_spared_by_a_lower_one_at_the_start() -> None:
    tries = _two_lines_a_skip(11, 21, 31, 41)
    assert halvings_at_start(run_of_text(*tries)) == (1, 7)
    down = [f"{2**power}, reducing to {2 ** (power - 1)}" for power in (18, 17, 16)]
    start = [_SCALER.format(n, _SKIPS + text) for n, text in enumerate(down, start=1)]
    run = run_of_text(*start, *tries)
    assert halvings_at_start(run) == (4, 7)
    power = next(a for a in alone(run, "overflow-streak").advice if "power" in a.setting)
    assert power.to == "lower by up to 4"


def test_a_scale_so_large_that_it_is_printed_with_an_exponent_was_halved_too() -> None:
    scales = [f"{2.0**power}, reducing to {2.0 ** (power - 1)}" for power in (64, 63, 62)]
    assert scales[0].startswith("1.8446744073709552e+19")
    lines = [_SCALER.format(n, _SKIPS + text) for n, text in enumerate(scales)]
    assert halvings_at_start(run_of_text(*lines)) == (3, 0)


def test_a_skip_that_only_uses_up_hysteresis_halves_nothing() -> None:
    texts = [
        "65536, reducing to 65536",
        "65536, reducing to 32768.0",
        "32768.0, reducing to 16384.0",
    ]
    lines = [_STAGE.format(n, _SKIPS + text) for n, text in enumerate(texts)]
    assert halvings_at_start(run_of_text(*lines)) == (2, 1)
