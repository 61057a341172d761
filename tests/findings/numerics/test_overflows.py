"""Overflows and losses that are none."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings.numerics.skips import told_skips
from tests.findings.plants import WELL, Row, alone, metric, one, problem, quiet, run_of, steps, why
from tests.loaded import run_of_text


def skipped(*counts: tuple[int, int]) -> list[dict[str, object]]:
    return [metric("skipped", step, count) for step, count in counts]


def test_skips_of_the_start_are_a_warning_that_says_they_are_over() -> None:
    found = alone(run_of(steps(40, WELL) + skipped((30, 18), (40, 18))), "overflow-streak")
    assert found.title == "18 of 40 steps were skipped: gradients overflowed"
    assert found.severity is Severity.WARNING
    assert (found.share, found.seconds_per_step) == (None, None)  # no step since is skipped
    assert "No more since step 30" in found.summary
    assert found.gain is None


def test_skips_that_go_on_are_critical() -> None:
    found = alone(
        run_of(steps(40, WELL) + skipped((10, 4), (20, 8), (30, 12), (40, 16))), "overflow-streak"
    )
    assert found.severity is Severity.CRITICAL
    assert "8 of the last 20" in found.summary or "4 of the last 10" in found.summary


@pytest.mark.parametrize(("skips", "spent"), [(1995, True), (1600, False)])
def test_a_scale_that_so_many_skips_leave_at_its_minimum_is_not_told_to_begin_lower(
    skips: int, spent: bool
) -> None:
    found = alone(run_of([*steps(1, WELL), *skipped((2000, skips))]), "overflow-streak")
    assert ("leave a scaler at its minimum" in found.summary) == spent
    assert (found.advice[0].setting == "model and data") == spent


def test_a_last_step_that_alone_follows_is_told_as_one() -> None:
    rows = skipped((1, 1), (39, 20), (40, 21))
    found = alone(run_of(steps(40, WELL) + rows), "overflow-streak")
    assert "The last of them was skipped, too: it goes on." in found.summary


def test_a_skip_now_and_then_is_no_finding() -> None:
    assert quiet(run_of(steps(100, WELL) + skipped((50, 1), (100, 2))), "overflow-streak")


def test_a_resumed_run_is_judged_by_what_it_skipped_itself() -> None:
    rows = [metric("step_seconds", s, 1.0) for s in range(1001, 1041)]
    found = alone(run_of(rows + skipped((1001, 0), (1040, 13))), "overflow-streak")
    assert found.title.startswith("13 of 39 steps")


def test_a_counter_that_rises_faster_than_steps_counts_no_more_of_them_than_there_are() -> None:
    counts = skipped((1000, 100), (1010, 400), (1020, 402))
    found = alone(run_of(counts), "overflow-streak")
    assert found.title.startswith("402 of 1,020 steps were skipped")


def test_the_scale_that_was_found_is_advised() -> None:
    rows = [*skipped((30, 18), (40, 18)), metric("loss_scale", 40, 2.0**14)]
    json = '{"fp16": {"enabled": true, "initial_scale_power": 32}}'
    found = alone(run_of(steps(40, WELL) + rows, ds_config=json), "overflow-streak")
    assert found.advice[0][:3] == ("fp16.initial_scale_power", "32", "14")


def test_a_log_that_counts_no_skips_is_not_judged() -> None:
    assert why(run_of(steps(40, WELL)), "overflow-streak") == "no line counts skipped steps"


def test_a_loss_that_stays_nan_is_critical() -> None:
    rows = [metric("loss", s, 2.0 if s < 20 else math.nan) for s in range(1, 41)]
    found = alone(run_of(steps(40, WELL) + rows), "nan-loss")
    assert found.severity is Severity.CRITICAL
    assert found.title == "The loss is not finite at step 20"
    assert found.steps == (20, 40)


def test_a_check_of_gradients_that_fails_says_nothing_of_the_loss() -> None:
    said = problem("nan", "found NaN in local grad norm for bucket #0 in backward pass", step=40)
    found = alone(run_of([*steps(40, WELL), said]), "nan-loss")
    assert found.title == "The gradient norm is not finite after step 40"
    assert "infinite" not in found.summary


def test_a_loss_that_recovers_is_a_warning() -> None:
    rows = [metric("loss", s, math.inf if s == 20 else 2.0) for s in range(1, 41)]
    assert alone(run_of(steps(40, WELL) + rows), "nan-loss").severity is Severity.WARNING


def test_finite_losses_are_no_finding() -> None:
    rows = [metric("loss", s, 2.0) for s in range(1, 41)]
    assert quiet(run_of(steps(40, WELL) + rows), "nan-loss")


def test_an_infinite_gradient_of_a_skipped_step_is_the_loss_scaler_at_work() -> None:
    rows = [metric("loss", s, 2.0) for s in range(1, 41)]
    rows += [metric("grad_norm", 7, math.inf), metric("overflow", 7, 1.0)]
    assert quiet(run_of(steps(40, WELL) + rows), "nan-loss")


def test_an_infinite_gradient_of_a_step_that_another_launch_skipped_is_told() -> None:
    rows = [metric("loss", s, 2.0) for s in range(1, 41)] + [metric("overflow", 7, 1.0)]
    rows += [metric("loss", s, 2.0, segment=1) for s in range(1, 41)]
    rows.append(metric("grad_norm", 7, math.inf, segment=1))
    found = alone(run_of(rows), "nan-loss")
    assert found.title == "The gradient norm is not finite at step 7, the first one shown"


def test_without_a_loss_nothing_is_said() -> None:
    assert "no line shows a loss" in (why(run_of(steps(40, WELL)), "nan-loss") or "")


def test_overflows_of_a_log_without_steps_are_counted_once_for_all_ranks() -> None:
    told = [
        {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0, "rank": rank}
        for _ in range(4)
        for rank in range(2)
    ]
    found = alone(run_of(told), "overflow-streak")
    assert found.title == "4 steps were skipped: gradients overflowed"
    assert found.share is None


def test_steps_that_are_not_finite_are_counted_once_and_told_in_words() -> None:
    names = ("loss", "grad_norm")
    bad = [metric(name, 20, float("nan"), text="nan") for name in names]
    well = [metric("loss", step, 2.0) for step in (10, 30, 40)]
    found = alone(run_of([*well[:1], *bad, *well[1:]]), "nan-loss")
    assert found.title == "The gradient norm and loss are not finite at step 20"
    assert "1 of the printed steps" in found.summary


def test_skips_of_a_log_without_steps_are_compared_with_the_bar_of_the_training() -> None:
    over = (
        "{}%|█ | {}/500 [00:0{}<01:40, 5.00it/s][2026-11-21 05:55:0{},100] [INFO] "
        "[loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
        "Attempted loss scale: {}, reducing to {}\n"
    )
    bars = [
        over.format(0, n, n // 5, n // 5, 2 ** (16 - n // 5), 2 ** (15 - n // 5))
        for n in (0, 5, 10, 15, 20)
    ]
    end = " 20%|███ | 100/500 [00:20<01:20, 5.00it/s]\n"
    found = alone(run_of_text("  Total optimization steps = 500\n", *bars, end), "overflow-streak")
    assert found.title == "5 steps were skipped: gradients overflowed"
    assert "5.0 % of the 100 steps that the training's bar counts" in found.summary
    other = alone(
        run_of_text(*bars, end), "overflow-streak"
    )  # any loop's: it says nothing of steps
    assert "This source does not say of how many" in other.summary


def test_one_row_of_the_counter_does_not_say_that_it_is_over() -> None:
    found = alone(run_of(skipped((30, 20))), "overflow-streak")
    assert "No more" not in found.summary
    assert "Whether it goes on is unknown" in found.summary
    assert (found.confidence, found.share, found.seconds_per_step) == ("medium", None, None)
    assert found.advice[0].to == "lower by up to 20"
    assert "which the log does not show" in found.advice[0].why


def test_one_overflow_told_by_four_ranks_and_the_engine_is_one_skip() -> None:
    common = {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0}
    told = [common | {"text": "Grad overflow on iteration 13"} for _ in range(4)]
    assert quiet(run_of([*told, common | {"rank": 0, "text": "Attempted"}]), "overflow-streak")


def test_lines_without_a_rank_of_one_moment_are_one_skip() -> None:
    common = {"kind": "metric", "name": "overflow", "raw": "overflow", "value": 1.0}
    told = [
        common
        | {"text": f"Attempted {moment}", "at": pd.Timestamp("2022-07-05") + moment * _SECOND}
        for moment in range(3)
        for _ in range(4)
    ]
    found = alone(run_of(told), "overflow-streak")
    assert found.title == "3 steps were skipped: gradients overflowed"


_SECOND = pd.Timedelta(seconds=1)


def test_ranks_that_tell_milliseconds_apart_of_one_scale_that_is_lowered_tell_of_one_skip() -> None:
    said = (
        "[2026-11-21 05:55:07,{}] [INFO] [unfused_optimizer.py:207:step] [deepspeed] fp16 dynamic "
        "loss scale overflow! Skipping step. Attempted loss scale: {}, reducing to {}\n"
    )
    lowered = [said.format(ms, "512.0", "256.0") for ms in ("416", "417", "421")]
    assert told_skips(run_of_text(*lowered)) == 1
    assert told_skips(run_of_text(*lowered, said.format("580", "256.0", "128.0"))) == 2
    kept = [said.format(ms, "1.0", "1.0") for ms in ("416", "552", "688")]
    assert told_skips(run_of_text(*kept)) == 3  # quick steps whose scale cannot shrink


def test_a_storm_up_to_the_last_step_is_critical_and_no_matter_of_the_first_scale() -> None:
    rows = skipped(*((step, max(0, step - 960)) for step in range(10, 1001, 10)))
    found = alone(run_of([*rows, metric("loss_scale", 1000, 2.0)]), "overflow-streak")
    assert found.severity is Severity.CRITICAL
    assert found.title.startswith("40 of 1,000 steps were skipped")
    assert "The last 40 steps were all skipped" in found.summary
    assert not any(advice.setting == "fp16.initial_scale_power" for advice in found.advice)
    assert found.advice[0].setting == "learning rate, warm-up"


def test_steps_are_counted_from_the_first_one_where_the_log_begins_with_them() -> None:
    rows = skipped(*((step, max(0, step - 10)) for step in range(1, 61)))
    assert alone(run_of(rows), "overflow-streak").title.startswith("50 of 60 steps")


def test_skips_of_which_only_one_has_a_step_are_all_counted_and_not_of_the_start() -> None:
    told = [metric("overflow", 380 if n == 0 else None, 1.0) for n in range(5)]
    found = alone(run_of([metric("loss", 380, 2.0), *told]), "overflow-streak")
    assert found.title == "5 steps were skipped: gradients overflowed"
    assert not any(advice.setting == "fp16.initial_scale_power" for advice in found.advice)


def test_clipping_that_the_engine_prints_as_set_is_not_advised() -> None:
    rows = [metric("loss", step, math.nan) for step in range(1, 5)]
    found = alone(run_of(rows, gradient_clipping="1.0"), "nan-loss")
    assert not any(advice.setting == "gradient_clipping" for advice in found.advice)


def test_clipping_by_a_norm_that_is_no_number_is_not_advised() -> None:
    rows = [metric("grad_norm", step, math.nan) for step in range(1, 5)]
    settings = [advice.setting for advice in alone(run_of(rows), "nan-loss").advice]
    assert settings[0] == "torch.autograd.set_detect_anomaly()"
    assert "gradient_clipping" not in settings


def test_of_several_engines_the_one_that_skips_most_is_told() -> None:
    rows = skipped((10, 0), (20, 0)) + [
        row | {"engine": 1} for row in skipped((10, 5), (15, 7), (20, 10))
    ]
    found = alone(run_of(rows), "overflow-streak")
    assert found.title == "10 of 20 steps of engine 1 were skipped: gradients overflowed"


def test_lines_of_skips_are_counted_for_each_engine_that_they_tell_of() -> None:
    rows = [metric("loss", s, 2.0, engine=engine) for s in range(1, 101) for engine in (0, 1)]
    rows += [overflow_at("1024", s) | {"engine": 0} for s in range(90, 101)]
    rows += [overflow_at("65536", s) | {"engine": 1} for s in range(1, 4)]
    found = alone(run_of(rows), "overflow-streak")
    assert found.title == "11 of 100 steps of engine 0 were skipped: gradients overflowed"
    assert "The last 11 steps were all skipped" in found.summary


def test_the_loss_scale_of_another_engine_is_not_advised() -> None:
    counts = [metric("skipped", s, min(s, 4.0)) for s in range(1, 21)]
    rows = [*counts, *(metric("loss_scale", s, 2.0**12) for s in range(1, 21))]
    rows += [metric("loss_scale", s, 2.0**16, engine=1) for s in range(1, 21)]
    advice = {a.setting: a.to for a in alone(run_of(rows), "overflow-streak").advice}
    assert advice["fp16.initial_scale_power"] == "12"


def test_a_loss_scale_that_is_infinite_is_not_advised() -> None:
    line = (
        " iteration {0:8d}/ 100 | consumed samples: {0} | elapsed time per iteration (ms): 1000.0 "
        "| global batch size: 8 | lm loss: 1.0E+00 | loss scale: inf | number of skipped "
        "iterations: {1} | number of nan iterations: 0 |\n"
    )
    run = run_of_text(*(line.format(s, int(s < 4)) for s in range(1, 31)))
    advice = {a.setting: a.to for a in one(run, "overflow-streak").advice}
    assert advice["--initial-loss-scale"] == "lower"


def overflow_at(scale: str, step: int | None = None, **more: pd.Timestamp) -> dict[str, object]:
    said = f"Attempted loss scale: {scale}, reducing to {scale}"
    return metric("overflow", step, 1.0, text=said, **more)


def test_a_skip_that_only_uses_up_hysteresis_halves_no_scale() -> None:
    spent = "Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1"
    texts = [
        f"Attempted loss scale: {2**power}, reducing to {2 ** (power - 1)}"
        for power in range(16, 9, -1)
    ]
    told = [metric("overflow", None, 1.0, text=text) for text in (spent, *texts)]
    found = alone(run_of(told), _STREAK)
    assert found.title.startswith("8 steps were skipped")
    assert found.advice[0].to == "lower by up to 7"


def growing(*more: str) -> list[Row]:
    """Skips of a scaler that comes down to 2^15 and tries 2^16 again after each 20 steps; then
    `more` of them."""
    down = [f"Attempted loss scale: {2**p}, reducing to {2 ** (p - 1)}" for p in range(20, 15, -1)]
    tries = [
        "Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
        "Attempted loss scale: 65536, reducing to 32768",
    ]
    texts = dict(enumerate(down, 1))
    for step in range(26, 120, 22):
        texts |= {step: tries[0], step + 1: tries[1]}
    texts |= dict(enumerate(more, 118))
    rows: list[Row] = [metric("step_seconds", step, 1.0) for step in range(1, 121)]
    return [*rows, *(metric("overflow", step, 1.0, text=text) for step, text in texts.items())]


@pytest.mark.parametrize("window", [20, 1000, None])
def test_skips_of_a_scale_that_had_just_grown_are_put_down_to_its_growing(
    window: int | None,
) -> None:
    fp16 = {"enabled": True} | ({} if window is None else {"loss_scale_window": window})
    run = run_of(growing(), ds_config=json.dumps({"fp16": fp16}))
    found = alone(run, _STREAK)
    assert "only scales that had just grown overflowed" in found.summary
    advised = {advice.setting: advice.to for advice in found.advice}
    assert advised.get("fp16.loss_scale_window") == ("1000" if window == 20 else None)
    assert "learning rate, warm-up" not in advised


def test_skips_of_a_log_without_steps_are_tries_too_where_the_scale_had_grown() -> None:
    tried = [
        "Attempted loss scale: 8192, but hysteresis is 2. Reducing hysteresis to 1",
        "Attempted loss scale: 8192, reducing to 4096",
    ]
    told = [metric("overflow", None, 1.0, text=text) for text in tried * 3]
    found = alone(run_of(told), _STREAK)
    assert "only scales that had just grown overflowed" in found.summary
    assert "at the start" not in found.summary
    assert [advice.setting for advice in found.advice] == ["bf16.enabled"]


def test_skips_of_a_scale_that_had_held_are_put_down_to_gradients() -> None:
    fell = "Attempted loss scale: 32768, reducing to 16384"
    found = alone(run_of(growing(fell), ds_config='{"fp16": {"loss_scale_window": 20}}'), _STREAK)
    assert "had just grown" not in found.summary
    assert found.advice[0].setting == "learning rate, warm-up"


def test_a_scale_at_its_floor_is_not_advised_to_start_lower() -> None:
    rows = [overflow_at("1", step) for step in range(1, 31)]
    rows += [metric("step_seconds", step, 1.0) for step in range(1, 31)]
    found = alone(run_of([*rows, *skipped(*((step, step) for step in range(1, 31)))]), _STREAK)
    assert found.title == "30 of 30 steps were skipped: gradients overflowed even at loss scale 1"
    assert [advice.setting for advice in found.advice] == ["model and data", "bf16.enabled"]
    assert found.gain is None


def test_overflows_at_the_floor_of_a_log_without_steps_are_no_matter_of_the_scale() -> None:
    moments = [pd.Timestamp("2021-11-27") + second * _SECOND for second in range(4)]
    found = alone(run_of([overflow_at("1", at=moment) for moment in moments]), _STREAK)
    assert found.title == "4 steps were skipped: gradients overflowed even at loss scale 1"
    assert "at the start are normal" not in found.summary
    assert found.advice[0].setting == "model and data"


def test_a_scale_that_is_printed_as_0_is_below_1() -> None:
    found = alone(run_of([overflow_at("0"), overflow_at("0")]), _STREAK)
    assert found.title.endswith("gradients overflowed even at a loss scale below 1")


def test_scales_that_apex_halves_below_1_are_told_as_such() -> None:
    line = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}\n"
    found = alone(run_of_text(*(line.format(2.0**-power) for power in range(1, 6))), _STREAK)
    assert found.title.endswith("even at loss scale 0.0625")
    low = alone(run_of_text(*(line.format(2.0**power) for power in range(6, 1, -1))), _STREAK)
    assert "DeepSpeed ends a job" not in low.summary  # of which it is none
    assert found.advice[0].setting == "model and data"


def test_one_overflow_at_the_floor_is_told_and_one_above_it_is_not() -> None:
    at_floor = alone(run_of([overflow_at("1.0")]), _STREAK)
    assert at_floor.title.startswith("1 step was skipped")
    assert quiet(run_of([overflow_at("2")]), _STREAK)


@pytest.mark.parametrize(("left", "is_low"), [(2, True), (8, True), (16, False)])
def test_a_scale_that_is_nearly_at_its_floor_is_told_to_end_the_job(
    left: int, is_low: bool
) -> None:
    down = [f"Attempted loss scale: {left << p}, reducing to {left << p - 1}" for p in (4, 3, 2, 1)]
    told = [metric("overflow", None, 1.0, text=text) for text in down]
    for version, ends in (("0.6.4", False), ("0.6.5", True)):
        found = alone(run_of(told, deepspeed_version=version), _STREAK)
        said = f"left a loss scale of {left}: DeepSpeed ends a job" in found.summary
        assert said == (is_low and ends)


def test_a_scale_put_at_its_floor_in_front_of_all_overflow_lines_is_a_skip_more() -> None:
    start = pd.Timestamp("2021-11-27")
    scale = metric("loss_scale", None, 1.0, at=start, pattern="deepspeed.loss_scale_change")
    later = overflow_at("1", at=start + 19 * _SECOND)
    run = run_of([scale, later])
    assert alone(run, _STREAK).title.startswith("At least 2 steps were skipped")
    assert told_skips(run) == 2
    at_once = run_of([scale, overflow_at("1", at=start)])
    assert alone(at_once, _STREAK).title.startswith("1 step was skipped")
    raised = run_of([scale | {"value": 2.0}, later])
    assert alone(raised, _STREAK).title.startswith("1 step was skipped")


def trained(*losses: float, pattern: str = "huggingface.train") -> list[Row]:
    """Records of the Trainer, the first of a step that nothing tells."""
    return [
        metric("loss", 10 * number or None, loss, pattern=pattern)
        for number, loss in enumerate(losses)
    ]


def test_a_loss_of_exactly_0_behind_a_large_one_may_be_one_that_the_trainer_hides() -> None:
    found = alone(run_of(trained(3.55, 0.0, 0.0)), "nan-loss")
    assert found.title == "The loss is exactly 0 at step 10: it may not be finite"
    assert "It was 3.55 in the record before, and is 0 at step 10 and in each record" in (
        found.summary
    )
    assert found.confidence == "medium"
    assert found.advice[0].setting == "logging_nan_inf_filter"


@pytest.mark.parametrize("pattern", ["huggingface.train", "huggingface.train_swift_log"])
def test_losses_and_gradients_of_exactly_0_in_each_record_teach_nothing(pattern: str) -> None:
    rows = trained(*[0.0] * 5, pattern=pattern)
    found = alone(run_of([*rows, metric("grad_norm", 20, 0.0)]), "nan-loss")
    assert "exactly 0 in each of the 5 records, and so are the gradients" in found.title
    assert found.advice[0].setting == "logging_nan_inf_filter"
    assert quiet(run_of([*rows, metric("grad_norm", 20, 1e-3)]), "nan-loss")
    assert quiet(
        run_of([*rows, metric("grad_norm", 20, 0.0), metric("reward", 20, 0.5)]), "nan-loss"
    )
    assert quiet(run_of([*rows[:4], metric("grad_norm", 20, 0.0)]), "nan-loss")


@pytest.mark.parametrize(
    "rows",
    [
        trained(3.55, 0.0, 2.1),  # it goes on
        trained(0.02, 0.0, 0.0),  # learnt by heart
        trained(0.0, 0.0, 0.0),  # as of GRPO
        trained(3.55, 0.0, pattern="deepspeed.loss"),
    ],
)
def test_other_losses_of_0_are_none(rows: list[Row]) -> None:
    assert quiet(run_of(rows), "nan-loss")


_STREAK = "overflow-streak"


@pytest.mark.parametrize(("scale", "sought"), [(2.0**23, True), (2.0**10, False)])
def test_a_scaler_that_halves_a_high_scale_from_the_start_is_still_looking_for_one(
    scale: float, sought: bool
) -> None:
    rows = [*steps(10, WELL), *skipped(*((step, step) for step in range(1, 11)))]
    found = alone(run_of([*rows, metric("loss_scale", 10, scale)]), _STREAK)
    assert ("was still at 8,388,608 at the end" in found.summary) is sought
    assert ("the model no longer learns" in found.summary) is not sought
    assert (found.severity is Severity.WARNING) is sought
    assert (found.gain is None) is sought


@pytest.mark.parametrize(("last", "known"), [(13, True), (20, False)])
def test_steps_without_a_count_behind_a_streak_are_not_known_to_be_of_it(
    last: int, known: bool
) -> None:
    """As where the last record of a copy is cut in front of its number of skipped steps."""
    rows = [*steps(10, WELL), *skipped((10, 10)), metric("loss", last, 10.5)]
    found = alone(run_of(rows), _STREAK)
    assert ("the model no longer learns" in found.summary) is known
    assert (
        "How many of the 10 steps since then were skipped is not told." in found.summary
    ) is not known
    assert (found.severity is Severity.CRITICAL) is known
    scaled = alone(run_of([*rows, metric("loss_scale", last, 2.0**22)]), _STREAK)
    assert ("None has succeeded yet" in scaled.summary) is known


@pytest.mark.parametrize(
    ("counts", "scale", "json", "usual"),
    [
        ([(100, 16)], 2.0**17, "", True),
        ([(30, 16), (100, 16)], 2.0**17, "", True),
        ([(100, 17)], 2.0**17, "", False),  # more than 2^32 can be halved to there
        ([(100, 16)], 2.0**14, "", False),
        ([(50, 10), (100, 16)], 2.0**17, "", False),  # behind updates that went well
        ([(50, 10), (90, 16), (100, 16)], 2.0**17, "", False),
        ([(100, 16)], 2.0**17, '{"fp16": {"initial_scale_power": 20}}', False),
    ],
)
def test_a_scaler_that_comes_down_from_a_high_scale_is_a_note(
    counts: list[tuple[int, int]], scale: float, json: str, usual: bool
) -> None:
    """Megatron begins at 2^32, and skips a step for each time that its scale is halved."""
    rows = [*steps(100, WELL), *skipped(*counts), metric("loss_scale", 100, scale)]
    found = one(run_of(rows, ds_config=json) if json else run_of(rows), _STREAK)
    assert (found.severity is Severity.INFO) is usual
    assert ("come down to its scale, 131,072" in found.title) is usual
    assert "100 steps were skipped" in found.title


def test_a_loss_is_called_lost_only_where_enough_records_follow() -> None:
    rows = [metric("loss", s, 2.0 if s < 20 else math.nan) for s in range(1, 41)]
    lost, short = alone(run_of(rows), "nan-loss"), alone(run_of(rows[:21]), "nan-loss")
    assert "Not one of the 20 records that follow is finite" in lost.summary
    assert lost.confidence == "high"
    assert "lost" not in short.summary
    assert "ends 1 record later, not finite either" in short.summary
    assert short.confidence == "medium"


def test_gradient_norms_alone_that_are_none_may_be_of_steps_that_are_skipped() -> None:
    rows = [metric("loss", step, 4.5) for step in range(1, 21)]
    rows += [metric("grad_norm", step, math.nan) for step in range(1, 21)]
    found = alone(run_of(rows), "nan-loss")
    assert "Not one of the 19 gradient norms that follow is finite" in found.summary
    assert "A loss scaler skips such steps" in found.summary


def test_finite_values_in_between_are_not_counted_as_lost() -> None:
    bad = {3, 4, 5, 6, 7, 8, 9, 20}
    rows = [metric("loss", s, math.nan if s in bad else 2.0) for s in range(1, 21)]
    assert "It is the last one that the source tells" in alone(run_of(rows), "nan-loss").summary


@pytest.mark.parametrize("last", [55, 80])
def test_a_launch_that_begins_anew_before_a_nan_and_has_losses_is_no_end(last: int) -> None:
    rows = [metric("loss", s, 2.0 if s < 41 else math.nan) for s in range(1, 61)]
    again = [metric("loss", s, 1.9, segment=1) for s in range(31, last + 1)]
    found = alone(run_of(rows + again), "nan-loss")
    assert found.severity is Severity.WARNING
    assert "later ones are finite again" in found.summary


def test_losses_of_another_engine_do_not_make_one_finite_again() -> None:
    rows = [
        metric("loss", s, 2.0 if s < 20 or engine else math.nan, engine=engine)
        for s in range(1, 41)
        for engine in (0, 1)
    ]
    rows += [metric("loss", s, 2.0, engine=1) for s in range(41, 51)]
    found = alone(run_of(rows), "nan-loss")
    assert found.severity is Severity.CRITICAL
    assert "Not one of the 20 records that follow is finite" in found.summary


def test_a_finite_gradient_norm_beside_it_makes_no_loss_finite() -> None:
    rows = [metric("loss", s, 2.0 if s < 20 else math.nan) for s in range(1, 41)]
    rows += [metric("grad_norm", s, math.nan if s == 20 else 1.0) for s in range(1, 41)]
    assert alone(run_of(rows), "nan-loss").confidence == "high"


def test_overflows_of_an_earlier_launch_do_not_go_on_in_one_without() -> None:
    rows = [metric("step_seconds", s, 1.0) for s in range(1, 61)]
    rows += [overflow_at("1024", s) for s in (40, 45, 50, 55, 58)]
    again = [metric("step_seconds", s, 1.0, segment=1) for s in range(1, 31)]
    found = alone(run_of(rows + again), "overflow-streak")
    assert "No more since step 58" in found.summary
    assert found.seconds_per_step is None


def test_an_infinite_loss_at_the_end_may_be_a_skipped_step() -> None:
    rows = [metric("loss", s, 2.0 if s < 3184 else math.inf) for s in range(3180, 3186)]
    found = alone(run_of(rows), "nan-loss")
    assert "often a step that is skipped" in found.summary
    assert "lost" not in found.summary
    assert not any(advice.setting.startswith("learning rate") for advice in found.advice)


def test_a_log_that_begins_not_finite_does_not_say_where_that_began() -> None:
    rows = [metric("grad_norm", step, math.nan) for step in (None, 5426, 5427)]
    found = alone(run_of(rows), "nan-loss")
    assert found.title == "The gradient norm is not finite at step 5,426, the first one shown"


def test_bf16_is_not_advised_where_the_loss_scale_is_1_at_every_step() -> None:
    rows = [metric(name, s, v) for s in (2, 3) for name, v in (("loss", math.nan), _UNSCALED)]
    settings = [advice.setting for advice in alone(run_of(rows), "nan-loss").advice]
    assert "bf16.enabled" not in settings
    assert "learning rate, warm-up" in settings


_UNSCALED = ("loss_scale", 1.0)


def test_skips_up_to_a_last_window_that_held_some_steps_may_all_be_of_the_start() -> None:
    found = alone(run_of(steps(20, WELL) + skipped((10, 10), (20, 18))), "overflow-streak")
    assert found.advice[0].setting == "fp16.initial_scale_power"
    assert "which the log does not show" in found.advice[0].why
    later = alone(
        run_of(steps(30, WELL) + skipped((10, 10), (20, 18), (30, 26))), "overflow-streak"
    )
    assert later.advice[0].setting == "learning rate, warm-up"


def test_a_start_of_skips_alone_asks_for_a_scale_that_is_lower_by_more() -> None:
    found = alone(run_of([*steps(6, WELL), *skipped((5, 5), (6, 6))]), _STREAK)
    assert found.advice[0].to == "lower by 6 or more"
    assert found.advice[0].why.endswith("none has been enough yet")


def test_more_skips_than_a_scale_has_halves_are_not_of_the_start() -> None:
    found = alone(run_of([*steps(1, WELL), *skipped((2000, 1200))]), "overflow-streak")
    assert found.advice[0].setting == "learning rate, warm-up"


@pytest.mark.parametrize(
    ("step", "skips", "severity"),
    [(2000, 1995, "critical"), (2000, 1200, "warning"), (80, 60, "warning")],
)
def test_skips_that_cannot_all_be_of_the_earlier_half_go_on_by_a_single_count(
    step: int, skips: int, severity: str
) -> None:
    found = alone(run_of([*steps(1, WELL), *skipped((step, skips))]), _STREAK)
    assert found.severity == severity
    assert ("At least 995 of the last 1,000 were skipped" in found.summary) == (skips == 1995)


def test_steps_that_were_nearly_all_skipped_are_not_said_to_be_all() -> None:
    found = alone(run_of([*steps(1, WELL), *skipped((2000, 1995))]), _STREAK)
    assert found.summary.startswith("All but 5 of the steps so far taught the model nothing")


def test_one_overflow_at_a_scale_far_below_1_tells_that_no_scale_helps() -> None:
    run = run_of_text(
        "10.0.0.7: Grad overflow on iteration 139\n"
        "10.0.0.7: [2021-02-12 11:05:20,845] [INFO] [logging.py:60:log_dist] [Rank 0] Overflow "
        "detected. Skipping step. Attempted loss scale: 3.25e-27, reducing to 1.625e-27\n"
    )
    found = alone(run, "overflow-streak")
    assert found.title == (
        "At least 1 step was skipped: gradients overflowed even at loss scale 3.25e-27"
    )
    assert "more were skipped than are shown" in found.summary
    assert "cannot go lower" not in found.summary
    newer = found.advice[1]
    assert (newer.setting, newer.to) == ("DeepSpeed", "0.6.0 or later, with bf16.enabled: true")


@pytest.mark.parametrize(
    ("scales", "first"),
    [
        ((8388608, 131072, 4096, 4096), "--initial-loss-scale"),  # a few went well in between
        ((8388608, 16777216, 4096, 4096), "learning rate, warm-up"),  # it had grown
    ],
)
def test_a_scale_that_only_fell_at_the_start_had_not_been_stable(
    scales: tuple[int, ...], first: str
) -> None:
    line = (
        " iteration {:8}/    1000 | consumed samples: {:12} | elapsed time per iteration (ms): "
        "820.7 | learning rate: 4.000000E-05 | global batch size:    16 | lm loss: 1.072453E+01 | "
        "loss scale: {:.1f} | number of skipped iterations: {:3} | "
        "number of nan iterations:   0 |\n"
    )
    told = zip((10, 20, 30, 40), scales, (10, 6, 5, 0), strict=True)
    run = run_of_text(*(line.format(step, 16 * step, scale, n) for step, scale, n in told))
    assert one(run, "overflow-streak").advice[0].setting == first


def test_a_scale_that_fell_below_1_is_not_said_to_be_at_its_floor() -> None:
    """apex's scaler has none: it halves 1, too."""
    scales = [2.0**power for power in range(15, -2, -1)]
    said = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to"
    found = alone(run_of_text(*(f"{said} {scale}\n" for scale in scales)), "overflow-streak")
    assert "Loss scales below 1 enlarge nothing: a different initial scale" in found.summary


@pytest.mark.parametrize(("total", "note"), [(19, True), (40, False)])
def test_skips_that_found_a_scale_which_holds_are_a_note_though_it_is_low(
    total: int, note: bool
) -> None:
    rows = [
        *(metric("loss_scale", step, 16384.0) for step in (100, 200)),
        *(metric("skipped", step, float(total)) for step in (100, 200)),
    ]
    found = alone(run_of(rows), "overflow-streak")
    assert (found.severity is Severity.INFO) == note
