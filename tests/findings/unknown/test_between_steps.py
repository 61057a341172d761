"""What passes between the steps that DeepSpeed's rates count: the time stamps tell it alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings.finding import Finding
from dsprof.findings.rules import findings_of
from dsprof.page.verdict import verdict
from dsprof.run import Run
from dsprof.text.overview import overview
from tests.findings.plants import one
from tests.loaded import run_of_text
from tests.text.said import shown

RULE = "unaccounted-time"
_SETTINGS = """[2026-01-01 00:00:00,000] [INFO] [config.py:987:print_user_config]   json = {
    "train_batch_size": 16,
    "timers": {
        "throughput": {
            "synchronized": %s
        }
    }
}
"""


def is_twentieth(step: int) -> bool:
    return step > 0 and step % 20 == 0


def tenth(_: int) -> float:
    return 0.1


def written(
    passes: Callable[[int], float],
    said: str = "",
    synchronized: str = "true",
    timers: str | Callable[[int], str] = "",
    mean: float | Callable[[int], float] = 161.0,
    takes: Callable[[int], float] = tenth,
    behind: int = 0,
) -> list[str]:
    """The lines of 160 steps of which DeepSpeed counts what each `takes`, every fifth printed;
    behind each of them so many seconds pass, and behind each twentieth something is `said`. Each
    may have `timers`. `mean` is the rate of all steps so far, or tells it for each. The job went on
    from a checkpoint `behind` so many steps."""
    lines, at = [_SETTINGS % synchronized], pd.Timestamp("2026-01-01 00:00:10.003")
    for step in range(1, 161):
        lines += [said] * is_twentieth(step - 1)
        at += pd.Timedelta(takes(step) + passes(step - 1), "s")
        if timers:
            told = timers if isinstance(timers, str) else timers(step)
            lines.append(f"[Rank 0] time (ms) | {told}\n")
        if step % 5 == 0:
            stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO]"
            so_far = mean if isinstance(mean, float) else mean(step)
            rate = (160 + step % 3) * 0.1 / takes(step)
            rates = f"RunningAvgSamplesPerSec={so_far}, CurrSamplesPerSec={rate}"
            own = f"[Rank 0] step={behind + step}, skipped=0, lr=[0.1]"
            lines += [
                f"{stamp} [logging.py:96:log_dist] {own}\n",
                f"{stamp} [timer.py:199:stop] epoch=0/micro_step=0/global_step={step}, {rates}\n",
            ]
    return lines


def job(passes: Callable[[int], float], **more: Any) -> Run:
    return run_of_text(*written(passes, **more))


def counting(takes: Callable[[int], float]) -> Callable[[int], float]:
    """The rate of all steps so far, as DeepSpeed counts them: from the third on."""
    return lambda step: 16 * (step - 2) / sum(map(takes, range(3, step + 1)))


def priced(run: Run) -> list[Finding]:
    """What is said of it beside that no timer divides a step."""
    return [one for one in findings_of(run) if one.rule == RULE and one.seconds_per_step]


def test_what_passes_behind_every_step_is_told_with_its_cost() -> None:
    run = job(lambda _: 0.06)
    (found,) = priced(run)
    assert findings_of(run)[0] is found
    assert found.title == (
        "38 % of the time passes between DeepSpeed's steps, where its rates do not count"
    )
    assert found.severity is Severity.CRITICAL
    assert found.seconds_per_step == pytest.approx(0.06, rel=0.02)
    assert found.advice[0].setting == "DataLoader(num_workers=...)"
    assert "in the mean of 31 windows of 5 steps" in found.summary
    assert found.evidence[-1].text.startswith("step 160: 161 samples/s, so 16 take ")


def test_what_passes_behind_some_steps_alone_is_told_with_how_often() -> None:
    (found,) = priced(job(lambda step: 1.5 if is_twentieth(step) else 0.0))
    assert found.title.endswith(
        ", nearly all of it in 7 of 31 windows of 5 steps, one every 20 steps"
    )
    assert found.share == pytest.approx(7 * 1.5 / (155 * 0.1 + 7 * 1.5), rel=0.02)
    assert found.summary.count(" a step, the others 100 ms.") == 1
    assert found.advice[0].setting == "what happens at these steps"


def test_where_rates_leave_nothing_out_only_the_lack_of_timers_is_noted() -> None:
    assert not priced(job(lambda _: 0.004))
    assert findings_of(job(lambda _: 0.004))[0].title.startswith("A step takes ")


def test_rates_on_a_clock_that_waits_for_no_gpu_tell_nothing_of_what_lies_between() -> None:
    assert priced(job(lambda _: 0.06))
    assert not priced(job(lambda _: 0.06, synchronized="false"))


def test_steps_that_print_no_rate_and_are_slower_pass_not_between_steps() -> None:
    (found,) = priced(job(lambda _: 0.06, mean=130.0))
    assert found.seconds_per_step == pytest.approx(0.16 - 16 / 130, rel=0.02)
    assert not priced(job(lambda _: 0.06, mean=100.0))


def test_evaluations_between_steps_are_left_to_their_own_rule() -> None:
    run = job(lambda step: 1.5 if is_twentieth(step) else 0.0, said="ppl: 12.25, loss: 2.5\n")
    assert not priced(run)
    assert findings_of(run)[0].rule == "evaluation-stall"


def test_the_page_says_what_the_number_is_of() -> None:
    shown = verdict(job(lambda _: 0.06))
    assert "is what DeepSpeed's own figures leave of it" in str(shown)


_TIMERS = "fwd: 10.00 | bwd: 20.00 | bwd_inner: 15.00 | bwd_allreduce: 5.00 | step: 10.00"


def test_beside_timers_what_lies_between_steps_is_told_from_what_they_leave_of_the_rates() -> None:
    (found,) = priced(job(lambda _: 0.06, timers=_TIMERS))
    assert found.seconds_per_step == pytest.approx(0.12, rel=0.02)
    said = "60.6 ms of it passes between step() and the next forward(), such as in"
    assert said in found.summary
    assert "; 59.4 ms between forward() and the end of step()." in found.summary
    assert found.advice[0].setting == "DataLoader(num_workers=...)"


def test_rates_that_no_time_stamp_exceeds_hold_no_loading_of_the_script() -> None:
    (found,) = priced(job(lambda _: 0.0, timers=_TIMERS))
    assert found.seconds_per_step == pytest.approx(0.06, rel=0.05)
    assert "as with a loader of its own, is not in it." in found.summary
    assert "loading data, " not in found.summary


def test_what_the_rates_of_all_steps_count_lies_up_to_the_end_of_a_step() -> None:
    (found,) = priced(job(lambda _: 0.06, timers=_TIMERS, mean=100.0))
    assert found.seconds_per_step == pytest.approx(0.12, rel=0.02)
    assert "with the engine's own loader (training_data) from loading on" in found.summary
    assert "passes between step() and" not in found.summary


def test_a_loader_that_becomes_slower_is_told_as_such() -> None:
    run = job(lambda step: 0.2 * (step > 80))
    found = one(run, "slowdown")
    assert found.title == "From step 85 on, a step takes 200 % longer"
    said = "Of what was added, 100 % is spent between step() and the next forward(), where"
    assert said in found.summary
    assert "(16 of 31 windows of 5 steps)" in found.summary
    assert found.evidence[1].text == "step 85: 260 ms a step in the 5 up to it"
    assert found.advice[0].setting == "DataLoader(num_workers=...)"
    (note,) = (each for each in priced(run) if each is not found)
    assert note.severity is Severity.INFO
    assert "counted in slowdown, too" in note.summary


def test_steps_without_a_rate_that_become_slower_do_not_pass_between_steps() -> None:
    def slower(step: int) -> float:
        return 16 * (step - 2) / (0.1 * (step - 2) + 0.2 * max(0, step - 80))

    run = job(lambda step: 0.2 * (step > 80), mean=slower)
    assert "The source does not time what grew." in one(run, "slowdown").summary
    assert not priced(run)


def test_a_loader_that_becomes_slower_is_told_beside_timers() -> None:
    run = job(lambda step: 0.4 * (step > 80), timers=_TIMERS)
    found = one(run, "slowdown")
    assert found.title == "From step 85 on, a step takes 400 % longer"
    assert "is spent between step() and the next forward(), where" in found.summary


def test_windows_that_stick_out_by_what_passes_between_steps_are_told_once() -> None:
    run = job(lambda step: 1.5 if is_twentieth(step) else 0.0)
    assert findings_of(run)[0] is priced(run)[0]
    note = one(run, "step-spikes")
    assert note.severity is Severity.INFO
    assert "100 % is spent between step() and the next forward(), where" in note.summary
    assert "This time is counted in unaccounted-time, too" in note.summary


def test_a_mean_rate_that_began_to_count_elsewhere_is_not_asked() -> None:
    rising = job(lambda _: 0.06, mean=lambda step: 100.0 * step**2)
    assert priced(rising)[0].seconds_per_step == pytest.approx(0.06, rel=0.02)


def test_printed_steps_that_are_slower_than_the_others_do_not_pass_between_steps() -> None:
    """Each fifth step alone is printed, and each twentieth of these takes 2 s by its own rate."""
    lines, at = [_SETTINGS % "true"], pd.Timestamp("2026-01-01 00:00:10.003")
    elapsed = 0.0
    for step in range(1, 401):
        took = 2.0 if is_twentieth(step) else 0.1
        at += pd.Timedelta(took, "s")
        elapsed += took * (step > 2)
        if step % 5 == 0:
            stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO]"
            mean = 16 * (step - 2) / elapsed
            rates = f"RunningAvgSamplesPerSec={mean}, CurrSamplesPerSec={16 / took}"
            lines += [
                f"{stamp} [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.1]\n",
                f"{stamp} [timer.py:199:stop] epoch=0/micro_step=0/global_step={step}, {rates}\n",
            ]
    run = run_of_text(*lines)
    found = one(run, "step-spikes")
    assert found.severity is Severity.CRITICAL
    assert "The source does not time what grew." in found.summary
    assert not priced(run)


def test_what_passes_between_calls_of_the_pipeline_engine_is_told() -> None:
    """It logs what it spends in train_batch(), the mean of five calls."""
    lines, at = [], pd.Timestamp("2026-01-01 00:00:10.003")
    for step in range(5, 155, 5):
        at += pd.Timedelta(5 * 0.15, "s")
        stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO]"
        lines += [
            f"{stamp} [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.1]\n",
            f"steps: {step} loss: 1.5000 iter time (s): 0.050 samples/sec: 640.000\n",
        ]
    (found,) = priced(run_of_text(*lines))
    assert found.title == (
        "67 % of the time passes between DeepSpeed's steps, where its times do not count"
    )
    assert "between one train_batch() and the next, such as in evaluating" in found.summary
    assert found.seconds_per_step == pytest.approx(0.1, rel=0.01)
    assert "num_workers" not in str(found.advice)  # train_batch() loads by itself
    assert "what DeepSpeed's own figures leave of it" in str(verdict(run_of_text(*lines)))


_ALL = "fwd: 40.00 | bwd: 50.00 | bwd_inner: 45.00 | bwd_allreduce: 5.00 | step: 10.00"


def test_windows_that_stick_out_beside_timers_that_tell_the_rest_are_told() -> None:
    run = job(lambda step: 3.0 if is_twentieth(step) else 0.0, timers=_ALL)
    found = one(run, "step-spikes")
    assert found.severity is Severity.CRITICAL
    assert found.seconds_per_step == pytest.approx(7 * 3 / 155, rel=0.05)
    assert not priced(run)


def test_what_windows_that_stick_out_take_is_no_part_of_what_timers_leave_of_the_others() -> None:
    timers = _ALL.replace("40.00", "20.00").replace("50.00", "30.00").replace("45.00", "25.00")
    run = job(lambda step: 0.6 if is_twentieth(step) else 0.0, timers=timers)
    found = one(run, "step-spikes")
    assert found.severity is Severity.CRITICAL
    assert found.seconds_per_step == pytest.approx(7 * 0.6 / 155, rel=0.05)
    assert priced(run)[-1].seconds_per_step == pytest.approx(0.04, rel=0.05)


def test_a_job_that_goes_on_from_a_checkpoint_counts_its_rates_anew() -> None:
    def takes(step: int) -> float:
        return 0.1 if step <= 80 else 0.13

    run = job(lambda _: 0.06, takes=takes, mean=counting(takes), behind=1000)
    (found,) = priced(run)
    assert found.seconds_per_step == pytest.approx(0.06, rel=0.02)


def test_a_slow_beginning_does_not_change_why_rates_are_not_those_of_the_steps() -> None:
    def takes(step: int) -> float:
        return 10.0 if step < 9 else 0.1

    run = job(lambda _: 0.06, takes=takes, mean=counting(takes))
    seen = overview(run)
    assert seen.samples_per_second_counted == pytest.approx(160, rel=0.02)
    assert seen.samples_per_second_mean == pytest.approx(33, rel=0.05)
    assert "stated leave out part of a step" in shown(run, 200)


def test_steps_that_stick_out_by_their_timers_take_no_part_of_what_passes_between_steps() -> None:
    """Every fifth is printed; of those between them, some take 1 s by their timers."""

    def takes(step: int) -> float:
        return 1.0 if step % 30 == 13 else 0.1

    def timers(step: int) -> str:
        return f"fwd: {400 * takes(step)} | bwd: {500 * takes(step)} | step: {100 * takes(step)}"

    run = job(lambda _: 0.25, takes=takes, timers=timers, mean=counting(takes))
    (found,) = priced(run)
    assert re.search(r" 2[45]\d ms of it passes between", found.summary)
    assert "between forward() and" not in found.summary


def test_stamps_of_the_beginning_alone_do_not_tell_how_a_run_goes_on() -> None:
    def takes(step: int) -> float:
        return 0.1 if step <= 120 else 0.4

    def timers(step: int) -> str:
        return f"fwd: {400 * takes(step)} | bwd: {500 * takes(step)} | step: {100 * takes(step)}"

    lines = written(lambda _: 0.3, takes=takes, timers=timers, mean=counting(takes))
    many = len(lines) // 2
    lines[many:] = [re.sub(r"^\[2026[^\]]*\] ", "", line) for line in lines[many:]]
    found = one(run_of_text(*lines), "slowdown")
    assert found.title.endswith(" on, a step takes 300 % longer")
    assert found.steps == pytest.approx((121, 160), abs=2)


def test_a_window_in_which_a_rate_is_lost_is_longer() -> None:
    lines = written(lambda step: 0.2 * (step > 80))
    lines = [line for line in lines if "global_step=85," not in line]
    run = run_of_text(*lines)
    steps = run.steps.set_index("step")
    assert steps["covers"][[80, 90, 95]].to_list() == [5, 10, 5]
    assert one(run, "slowdown").evidence[1].text == "step 90: 280 ms a step in the 10 up to it"


def test_longer_windows_count_for_more_in_the_mean() -> None:
    lines = written(lambda step: 0.5 * (20 < step <= 30 or 80 < step <= 90))
    lines = [line for line in lines if "step=85," not in line]
    assert overview(run_of_text(*lines)).seconds == pytest.approx(0.1 + 20 * 0.5 / 155, rel=0.01)
