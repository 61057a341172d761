"""Time whose use the source does not tell is never called compute."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.findings import findings_of
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    config,
    metric,
    phase,
    quiet,
    rules,
    run_of,
    silent,
    steps,
    words_of,
)
from tests.loaded import run_of_text, sample
from tests.recording.recorded import CLASSES, MS, header, write_steps

UNTIMED = "unaccounted-time"


def test_seconds_outside_all_timers_are_a_finding_of_their_own() -> None:
    found = alone(run_of(steps(3, WELL, 1.25), world_size=2, zero_stage=1), "unaccounted-time")
    assert found.severity is Severity.WARNING
    assert found.seconds_per_step == pytest.approx(0.25)
    assert found.share == pytest.approx(0.2)


def test_timers_of_which_a_sentence_gives_the_sum_are_all_in_it() -> None:
    four = {"forward": 0.2, "backward_inner": 0.4, "generate": 0.3, "recompute": 0.1}
    found = alone(run_of(steps(3, four), world_size=2), UNTIMED)
    assert "backward_inner, generate and 2 more timers take 1.00 s per step" in found.summary
    first = {name: four[name] for name in ("forward", "backward_inner", "generate")}
    found = alone(run_of(steps(3, first, 0.9), world_size=2), UNTIMED)
    assert "backward_inner, generate and forward take 900 ms per step" in found.summary


def test_a_third_of_a_step_unexplained_is_critical() -> None:
    found = alone(run_of(steps(3, WELL, 1.5), world_size=2, zero_stage=1), "unaccounted-time")
    assert found.severity is Severity.CRITICAL


@pytest.mark.parametrize(("count", "usual"), [(7, 1.02), (7, 1.3), (10, 1.02), (24, 1.02)])
def test_what_one_of_few_steps_holds_is_said_to_and_not_charged_to_all(
    count: int, usual: float
) -> None:
    """Timers explain 1 s of each step; the sixth one takes 11 s."""
    rows = steps(count, WELL, usual)
    for row in rows:
        if row["name"] == "step_seconds" and row["step"] == 6:
            row["seconds"] = 11.0
    run = run_of(rows, world_size=2, zero_stage=1)
    if count >= 8:
        assert "step-spikes" in rules(run)
        assert silent(run, UNTIMED)
        return
    found = alone(run, UNTIMED)
    part = "99 %" if usual == 1.02 else "84 %"
    assert found.title.endswith(f" is explained by no timer, {part} of that in step 6")
    assert "How often steps such as step 6 come, so few do not tell." in found.summary
    assert found.severity is (Severity.INFO if usual == 1.02 else Severity.WARNING)


def test_a_step_that_timers_explain_is_no_finding() -> None:
    assert quiet(run_of(steps(4, WELL, 1.05), world_size=2, zero_stage=1), "unaccounted-time")


def test_a_log_without_timers_is_unknown_and_never_healthy() -> None:
    run = run_of(steps(40, {}))
    found = findings_of(run)[0]
    assert found.rule == "unaccounted-time"
    assert found.title == (
        "A step takes 1.00 s; where that goes is unknown: this log has no timers"
    )
    assert found.advice[0].setting == "wall_clock_breakdown"
    assert found.severity is Severity.INFO
    assert "healthy" not in rules(run)


def test_a_rate_of_computation_stands_beside_the_peaks_of_common_gpus() -> None:
    rates = [metric("tflops", step, 69.8) for step in range(1, 5)]
    found = alone(run_of([*steps(4, {}, 14.3), *rates]), "unaccounted-time")
    assert found.title.startswith("A step takes 14.3 s (69.8 TFLOP/s a GPU); where that goes is")
    assert found.summary.startswith("For comparison: the peak of a V100 is 125 TFLOP/s")
    untimed = alone(run_of(rates), "unaccounted-time")
    assert untimed.title.startswith("Where the time of a step goes is unknown")


def test_a_utilisation_that_lines_state_stands_in_the_place_of_such_peaks() -> None:
    rates = [metric("tflops", step, 314.7) for step in range(1, 5)]
    used = [metric("mfu", step, 14.0) for step in range(1, 5)]
    found = alone(run_of([*steps(4, {}, 1.3), *rates, *used]), "unaccounted-time")
    assert found.summary.startswith("That is 14 % of the GPUs' peak, as the log states (MFU).")


def test_the_first_step_of_a_launch_is_not_called_a_step_where_it_is_the_only_one() -> None:
    line = " iteration {}/ 100 | elapsed time per iteration (ms): 9000.0 | lm loss: 8.5E+00 |\n"
    titles = [alone(run_of_text(line.format(step)), UNTIMED).title for step in (1, 7)]
    assert [title.split(";")[0] for title in titles] == [
        "The first step, the only one shown, took 9.00 s",
        "A step takes 9.00 s",
    ]
    later = " iteration 2/ 100 | lm loss: 8.0E+00 |\n"
    untimed = alone(run_of_text(line.format(1) + later), UNTIMED)
    assert untimed.title.startswith("The first step, the only one timed, took 9.00 s;")


def test_the_only_record_of_a_log_that_numbers_none_is_not_called_the_first_step(
    tmp_path: Path,
) -> None:
    log = tmp_path / "train.log"
    log.write_text("{'loss': 0.5, 'grad_norm': 0.25, 'step_time': 9.0, 'epoch': 0.25}\n")
    assert alone(load(log), UNTIMED).title.startswith("A step takes 9.00 s;")


def test_the_mean_rate_of_a_training_is_told_where_no_step_has_a_time() -> None:
    rate = metric("train_steps_per_second", None, 0.081)
    found = alone(run_of([metric("loss", 900, 2.0), rate]), "unaccounted-time")
    assert found.summary.startswith("Over the whole training it states 0.081 steps/s")
    assert "Nor does" not in found.summary


def test_the_mean_of_a_whole_training_or_so_far_is_told_where_no_record_has_a_time() -> None:
    records = "".join(f"{{'loss': 2.5, 'epoch': 0.{each}}}\n" for each in (1, 2))
    end = "{'train_runtime': 71.5, 'train_steps_per_second': 0.839, 'train_loss': 0.8}\n"
    whole = alone(run_of_text(records + end), "unaccounted-time")
    assert whole.title.startswith("A step took 1.19 s in the mean of the whole training; where")
    swift = "{'loss': 1.5, 'train_speed(iter/s)': 0.25, 'epoch': 0.16, 'global_step': 15}\n"
    so_far = alone(run_of_text(swift), "unaccounted-time")
    assert so_far.title.startswith(
        "A step took 4.00 s in the mean so far, by the trainer's own clock; where"
    )
    assert so_far.summary.startswith("No single step has a time")


def test_seconds_of_printed_steps_are_not_mixed_with_sums_of_timers() -> None:
    """DeepSpeed states throughput every tenth step, timers every step: only the first is whole."""
    rows = steps(30, WELL, None)
    rows += [metric("samples_per_second", step, 5.0) for step in (10, 20, 30)]
    run = run_of(rows, world_size=2, zero_stage=1, train_batch_size=10)  # 2 s a step
    found = alone(run, "unaccounted-time")
    assert found.share == pytest.approx(0.5)
    assert "step-spikes" not in rules(run)


def test_timer_lines_without_a_step_are_not_called_missing() -> None:
    loose = {"kind": "phase", "name": "forward", "raw": "fwd", "seconds": 0.5, "rank": 0}
    found = alone(run_of([loose, metric("step_seconds", 30, 0.3)]), "unaccounted-time")
    assert found.title.endswith("its timer lines cannot be assigned to steps")
    assert "wall_clock_breakdown" not in found.summary  # it is on
    assert "wall_clock_breakdown" not in {one.setting for one in found.advice}


def test_percentages_of_a_log_whose_timers_have_no_step_are_told_largest_first() -> None:
    loose = {"kind": "phase", "name": "forward", "raw": "fwd", "seconds": 0.5, "rank": 0}
    own = [metric("communication_percent", None, 4.8), metric("backward_percent", None, 69.3)]
    found = alone(run_of([loose, *own, metric("step_seconds", 30, 0.3)]), "unaccounted-time")
    assert found.title == (
        "A step takes 300 ms; where that goes is told by the log's own percentages alone: "
        "backward 69 %, communication 4.8 %"
    )


def test_timers_of_the_set_up_are_not_called_timers_of_steps() -> None:
    setup = {"kind": "phase", "name": "load-checkpoint", "seconds": 2.0, "timers": "megatron-setup"}
    found = alone(run_of([setup, metric("step_seconds", 30, 0.3)]), "unaccounted-time")
    assert found.title.endswith("its timers are of set-up and checkpoints, not of steps")


def test_timers_that_only_read_zero_are_told_as_such() -> None:
    zero = {"kind": "phase", "name": "forward", "seconds": 0.0, "step": 30, "timers": "flat"}
    found = alone(run_of([zero, metric("step_seconds", 30, 0.3)]), "unaccounted-time")
    assert found.title.endswith("its timers of steps all read 0")


@pytest.mark.parametrize("odd", [math.nan, math.inf, -0.005, 1e300])
def test_durations_that_no_clock_reads_are_said_to_be_why_no_timer_tells(odd: float) -> None:
    row = {"kind": "phase", "name": "forward", "seconds": odd, "step": 30, "timers": "zero"}
    found = alone(run_of([row, metric("step_seconds", 30, 0.3)]), UNTIMED)
    assert found.title.endswith("its timers read no possible durations")
    assert "wall_clock_breakdown" not in {one.setting for one in found.advice}  # it is on


def recorded(rows: list[Row]) -> Run:
    """The same as a recording tells it."""
    return run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])


@pytest.mark.parametrize("seconds", [1.25, 1.6])
def test_a_recording_is_not_told_to_record_nor_to_mind_deepspeed_s_timers(seconds: float) -> None:
    run = recorded(steps(40, WELL, seconds))
    found = alone(run, "unaccounted-time")
    assert "39 recorded steps, 2 to 40" in found.summary
    assert "between the recorded phases" in found.summary
    assert [advice.setting for advice in found.advice] == ["py-spy record"]
    for unfit in ("dsprof attach", "DeepSpeed's timers", "printed", "log"):
        assert unfit not in words_of(found)


def test_the_rank_is_named_on_which_nearly_all_of_it_is(tmp_path: Path) -> None:
    """Before forward rank 0 needs 50 of 100 ms, for which rank 1 does not wait: it computes."""
    for rank, idle in ((0, 50), (1, 2)):
        writer = Writer.create(tmp_path, header(rank=rank, world=2, config={"world_size": 2}))
        forward = writer.name("forward", 0, "compute")
        reduce = writer.name("all_reduce", writer.name("backward", 0, "compute"))
        group = writer.name("0 ranks 0-1")
        for step in range(1, 31):
            begin = step * 100 * MS
            meets = begin + 96 * MS
            writer.span(forward, begin + idle * MS, meets, step)
            writer.collective(reduce, group, meets, meets, 4 * MS, step, size=64, seq=step)
            writer.step(step, begin, begin + 100 * MS, CLASSES)
        writer.close()
    run = load(tmp_path)
    found = alone(run, "unaccounted-time")
    assert found.title.startswith("26 % of a step is explained by no timer")
    assert found.title.endswith(", 96 % on rank 0")
    assert "96 % of it is on rank 0, 50.0 ms per step there" in found.summary
    assert found.advice[0].to == "a minute of rank 0"


@pytest.mark.parametrize("rows", [steps(3, {}), [metric("lr", None, 0.1)]])
def test_a_recording_without_phases_or_steps_is_not_asked_for_settings_of_logs(
    rows: list[Row],
) -> None:
    found = alone(recorded(rows), "unaccounted-time")
    assert "this recording" in found.title.lower()
    assert not found.advice
    assert "breakdown" not in words_of(found)


def test_a_fork_of_megatron_for_deepspeed_is_not_told_an_option_that_it_does_not_have() -> None:
    line = (
        "[default3]: iteration       {}/ 3125000 | consumed samples:          960 | elapsed time "
        "per iteration (s): 7.2310 | learning rate: 4.438E-07 | global batch size:    96 | lm "
        "loss: 1.010967E+01 | loss scale: 4096.0 | grad norm: 178.553 | number of skipped "
        "iterations:   0 | number of nan iterations:   0 | samples per second: 13.276 |\n"
    )
    found = findings_of(run_of_text(line.format(10) + line.format(20)))[0]
    assert found.advice[0][:3] == ("wall_clock_breakdown", "", "true, if DeepSpeed trains it")
    assert "timing-log-level" not in words_of(found)


def test_an_offloaded_update_is_named_as_part_of_a_step_that_is_not_divided() -> None:
    """ZeRO-Offload of 2020, whose JSON says it in its own way."""
    line = (
        "[2021-12-14 07:22:1{},101] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 time (ms) | "
        "forward: 300.00 | backward: 3000.00 | backward_inner: 2950.00 | backward_allreduce: 50.00"
        " | step: 4500.00\n"
    )
    told = '{{\n  "zero_optimization": {{\n    "stage": 2, \n    "cpu_offload": {}\n  }}\n}}\n'
    head = "[2021-12-14 07:21:48,894] [INFO] [config.py:1061:print]   json = "
    for given, named in (("true", True), ("false", False)):
        text = head + told.format(given) + "".join(line.format(step) for step in range(4))
        found = next(one for one in findings_of(run_of_text(text)) if one.phase == "step")
        assert found.title.endswith("is inside step, which no timer divides")
        assert ("The optimizer is offloaded" in found.summary) is named


def test_megatron_alone_is_told_its_own_option_for_timers() -> None:
    run = run_of([row | {"pattern": "megatron.iteration"} for row in steps(3, {})])
    found = alone(run, "unaccounted-time")
    assert [advice.setting for advice in found.advice] == ["--timing-log-level", "dsprof attach"]
    assert "DeepSpeed" not in words_of(found)


@pytest.mark.parametrize(
    "pattern",
    [
        *("verl.step", "torchtitan.step", "fairseq.update", "loops.nanogpt", "loops.sagemaker"),
        "nanotron.log_metrics",
    ],
)
@pytest.mark.parametrize("phases", [{}, {"forward": 0.9}])
def test_a_trainer_without_deepspeed_is_told_none_of_its_settings(
    pattern: str, phases: dict[str, float]
) -> None:
    rows = [row | {"pattern": pattern} for row in steps(3, phases)]
    found = alone(run_of(rows), "unaccounted-time")
    assert [advice.setting for advice in found.advice] == ["dsprof attach"]
    assert "DeepSpeed" not in words_of(found)
    assert "communication logger" not in words_of(found)
    engine = metric("lr", 3, 0.1) | {"pattern": "deepspeed.step"}
    beside = alone(run_of([*rows, engine]), "unaccounted-time")
    assert len(beside.advice) == 2


def test_megatron_on_deepspeed_is_told_deepspeed_s_setting() -> None:
    engine = metric("lr", 3, 0.1) | {"pattern": "deepspeed.step"}
    rows = [row | {"pattern": "megatron.iteration"} for row in steps(3, {})]
    found = alone(run_of([*rows, engine]), "unaccounted-time")
    assert found.advice[0].setting == "wall_clock_breakdown"


def test_where_nothing_shows_deepspeed_its_timers_are_advised_on_that_condition() -> None:
    imported = config("accelerator", "cuda") | {"pattern": "deepspeed.accelerator"}
    rows = [row | {"pattern": "huggingface.train"} for row in steps(3, {})]
    found = alone(run_of([imported, *rows]), "unaccounted-time")
    assert found.advice[0][:3] == ("wall_clock_breakdown", "", "true, if DeepSpeed trains it")
    assert found.summary.startswith("If DeepSpeed trains it, wall_clock_breakdown prints ")
    shown = alone(run_of(rows, zero_stage=2), "unaccounted-time")
    assert shown.advice[0][:3] == ("wall_clock_breakdown", "", "true")
    assert "If DeepSpeed" not in shown.summary


def test_time_between_the_steps_is_never_healthy_and_shown_by_two_stamped_lines() -> None:
    rows = steps(20, WELL)
    lines = [metric("lr", step, 0.1) for step in range(1, 21)]
    for step, line in enumerate(lines, 1):
        line["at"] = pd.Timestamp("2024-05-01", tz="UTC") + pd.Timedelta(seconds=4 * step)
    timed = [row for row in rows if row.get("name") not in ("step_seconds", "samples_per_second")]
    run = run_of(timed + lines, world_size=2, zero_stage=1)
    found = findings_of(run)[0]
    assert found.title == "75 % of a step is in no timer, by the time stamps of the lines"
    assert [proof.text for proof in found.evidence] == [
        "step 1 is stamped 00:00:04",  # where step 2, the first that is averaged, begins
        "step 20 is stamped 00:01:20",
    ]
    assert "healthy" not in rules(run)


def test_stamps_are_shown_as_fine_as_they_are() -> None:
    """Whole seconds would not prove that 30 steps took 43 ms each."""
    found = alone(sample("zero1_accumulation_0.19.8"), "unaccounted-time")
    assert [proof.text for proof in found.evidence] == [
        "step 10 is stamped 07:50:04.067",
        "step 40 is stamped 07:50:05.386",
    ]


def test_a_stamp_is_proved_by_the_line_that_has_it() -> None:
    """What the engine says of skipped steps stands in front of the line of every 2,000th step."""
    skip = (
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384"
    )
    head = "[2024-09-23 {}] [INFO] "
    text = "\n".join(
        line
        for number, (early, at) in enumerate(
            [("10:15:33,253", "10:15:47,101"), ("10:15:48,674", "10:16:03,214")], 1
        )
        for line in (
            head.format(early) + f"[loss_scaler.py:183:update_scale] {skip}",
            head.format(at) + "[logging.py:96:log_dist] [Rank 0] "
            f"step={2000 * number}, skipped={number}, lr=[0.001], mom=[[0.8, 0.999]]",
        )
    )
    first, last = alone(run_of_text(text + "\n"), "unaccounted-time").evidence
    assert (first.text, first.line) == ("step 2,000 is stamped 10:15:47.101", 2)
    assert (last.text, last.line) == ("step 4,000 is stamped 10:16:03.214", 4)


@pytest.mark.parametrize(
    ("header", "proofs"),
    [
        ("", ["step 10 is stamped 10:00:41", "step 60 is stamped 10:04:06"]),
        (
            "I0501 10:%02d:%02d.000000 77 train.py:9] ",
            ["step 11 is stamped 10:00:45", "step 59 is stamped 10:04:01"],
        ),
    ],
)
def test_time_stamps_prove_the_time_between_steps_also_where_all_that_are_marked_stick_out(
    header: str, proofs: list[str]
) -> None:
    text = ""
    for step in range(1, 61):
        minute, second = divmod(4 * step + step // 10, 60)
        if step % 10 == 0:
            text += (
                f"[2026-05-01 10:{minute:02d}:{second:02d},000] [INFO] [logging.py:123:log_dist]"
            )
            text += f" [Rank 0] step={step}, skipped=0, lr=[0.1], mom=[0.9]\n"
        text += (header % (minute, second) if header else "") + "[Rank 0] time (ms) | "
        text += f"fwd: {700 if step % 10 else 2400}.00 | bwd: 200.00 | step: 100.00\n"
    between = next(found for found in findings_of(run_of_text(text)) if found.rule == UNTIMED)
    assert "by the time stamps" in between.title
    assert [proof.text for proof in between.evidence] == proofs


def test_a_log_that_times_nothing_at_all_says_so() -> None:
    found = alone(run_of([metric("loss", step, 1.0) for step in range(1, 9)]), "unaccounted-time")
    assert found.summary.startswith("Nor does this log say how long a step takes.")


@pytest.mark.parametrize(
    ("name", "step", "when"),
    [("samples_per_second_mean", 8, "in the mean so far"), ("samples_per_second", None, "once")],
)
def test_a_rate_that_is_of_no_single_step_says_how_long_one_takes(
    name: str, step: int | None, when: str
) -> None:
    run = run_of([metric("loss", 8, 1.0), metric(name, step, 16.0)], train_batch_size=64)
    found = alone(run, "unaccounted-time")
    assert found.summary.startswith(
        f"It states 16 samples/s {when}: by that a step, of 64 samples, takes 4.00 s,"
    )


def test_a_lone_bar_says_how_long_steps_took_but_of_no_single_one() -> None:
    told = "{'loss': 1.5, 'epoch': 0.01}\n  0%|   | 33/80332 [11:22<428:46:31, 19.22s/it]"
    found = alone(run_of_text(told + "{'loss': 1.25, 'epoch': 0.02}\n"), "unaccounted-time")
    assert found.summary.startswith("Nor does this log say how long any single step takes.")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("41/500 [04:27<49:49,  6.51s/it]", "42/500 [08:04<1:28:00, 11.52s/it]", "The one step"),
        ("41/500 [04:27<49:49,  6.51s/it]", "44/500 [14:04<2:25:00, 19.18s/it]", "A step takes"),
        ("41/500 [04:27<49:49,  6.51s/it]", "61/500 [06:47<48:49,  6.67s/it]", "A step takes"),
        ("401/500 [00:31<00:09,  0.08s/it]", "404/500 [02:04<00:29,  0.31s/it]", "A step takes"),
    ],
)
def test_a_step_that_is_unlike_all_that_its_bar_counts_is_not_passed_off_for_a_usual_one(
    first: str, second: str, said: str
) -> None:
    bars = [f"{{'loss': 2.5, 'epoch': 0.1}}\n  1%|#   | {bar}\n" for bar in (first, second)]
    found = alone(run_of_text(*bars), "unaccounted-time")
    assert found.title.startswith(said)
    assert ("how long a usual step takes is unknown" in found.summary) == said.startswith("The")


@pytest.mark.parametrize(
    ("took", "said"),
    [
        ([2.0] * 10 + [12.0, 13.0, 12.5], "The last 3 steps took 12.5 s each, after 2.00 s up to"),
        ([12.0] * 3 + [2.0] * 10, "A step takes"),  # a slow start
        ([2.0] * 10 + [12.0, 13.0, 12.5, 2.0], "A step takes"),  # it recovered
        ([2.0] * 2 + [12.0, 13.0, 12.5], "A step takes"),  # which are the usual ones?
        ([2.0] * 10 + [12.0], "A step takes"),  # a single one, as with a save in it
        ([2.0] * 10 + [5.0, 5.0, 5.0], "A step takes"),
    ],
)
def test_the_last_steps_are_told_where_they_took_much_longer_than_all_before(
    took: list[float], said: str
) -> None:
    run = run_of([metric("step_seconds", step, each) for step, each in enumerate(took, 1)])
    assert alone(run, "unaccounted-time").title.startswith(said)


def test_a_window_of_quick_and_slow_steps_is_neither() -> None:
    took = [(5, 5, 2.0), (10, 5, 2.0), (15, 5, 7.0), (16, 1, 12.0), (17, 1, 12.0)]
    rows = [metric("step_seconds", step, each, steps=many) for step, many, each in took]
    assert alone(run_of(rows), "unaccounted-time").title.startswith(
        "The last 2 steps took 12.0 s each, after 2.00 s up to step 10; where that goes is unknown"
    )


@pytest.mark.parametrize(
    ("inside", "outside", "where"),
    [
        (0.20, 0.00, "inside backward, which no timer divides"),
        (0.10, 0.10, "explained by no timer, 50 % of that inside backward"),
        (0.15, 0.05, "explained by no timer, 75 % of that inside backward"),
        (0.00, 0.20, "explained by no timer"),
    ],
)
def test_what_no_timer_explains_is_said_to_lie_where_it_lies(
    inside: float, outside: float, where: str
) -> None:
    timed = WELL | {"forward": 0.10, "backward": inside}
    found = alone(run_of(steps(5, timed, 1.0), world_size=1), "unaccounted-time")
    assert found.title == f"20 % of a step is {where}"
    assert any(proof.text.startswith("backward") for proof in found.evidence) is (inside > 0)
    assert any("step 5: 1.00 s" in proof.text for proof in found.evidence) is (outside > 0)


@pytest.mark.parametrize(
    ("inside", "where"),
    [
        ({"one": 0.195, "two": 0.005}, "one"),
        ({"one": 0.12, "two": 0.08}, "one and two"),
        ({"one": 0.09, "two": 0.06, "three": 0.05}, "one, two and three"),
        ({"one": 0.07, "two": 0.06, "three": 0.04, "four": 0.03}, "one, two and 2 more timers"),
    ],
)
def test_time_that_several_timers_make_up_is_not_said_to_lie_in_one(
    inside: dict[str, float], where: str
) -> None:
    found = alone(run_of(steps(5, WELL | {"forward": 0.10} | inside), world_size=1), UNTIMED)
    assert found.title == f"20 % of a step is inside {where}, which no timer divides"


def test_the_little_that_lies_elsewhere_is_not_in_the_share_that_a_title_gives() -> None:
    inside = WELL | {"forward": 0.10, "one": 0.30, "two": 0.02}
    found = alone(run_of(steps(5, inside, 1.12), world_size=1), UNTIMED)
    assert found.title == "27 % of a step is inside one, which no timer divides"
    assert found.seconds_per_step == pytest.approx(0.30)
    assert "two" not in words_of(found)
    outside = WELL | {"forward": 0.10, "two": 0.02}
    found = alone(run_of(steps(5, outside, 1.12), world_size=1), UNTIMED)
    assert found.title == "27 % of a step is explained by no timer"
    assert found.seconds_per_step == pytest.approx(0.30)
    assert "two" not in words_of(found)


#: Timers of which one holds another.
ZERO = ("forward", "backward", "backward_inner", "step")


@pytest.mark.parametrize(
    ("inside", "where"),
    [
        (0.20, "inside backward, but in no part of it that is timed"),
        (0.10, "explained by no timer, 50 % of that inside backward beside its parts"),
    ],
)
def test_time_beside_the_parts_of_a_timer_is_spoken_of_only_where_it_has_parts(
    inside: float, where: str
) -> None:
    timed = WELL | {"forward": 0.10, "backward": WELL["backward_inner"] + inside}
    rows = [row | {"timers": "zero"} for row in steps(5, timed, None) if row["name"] in ZERO]
    rows += [row for row in steps(5, timed, 1.0) if row["name"] not in ZERO]
    found = alone(run_of(rows, world_size=1), UNTIMED)
    assert found.title == f"20 % of a step is {where}"


def test_a_timer_that_takes_the_same_in_each_step_is_told_once() -> None:
    found = alone(
        run_of(steps(5, WELL | {"forward": 0.10, "backward": 0.2}), world_size=1), UNTIMED
    )
    assert found.evidence[0].text == "backward: 200 ms per step, as at step 5"


def stalling(every_step: float) -> Run:
    """All of 40 steps are `every_step` longer than their timers, each tenth three seconds more."""
    rows = steps(40, WELL, None)
    rows += [metric("step_seconds", n, 1 + every_step + 3 * (n % 10 == 5)) for n in range(1, 41)]
    return run_of(rows, world_size=2, zero_stage=1)


def test_what_single_steps_take_too_long_is_the_spikes_and_not_told_again() -> None:
    assert rules(stalling(0.0)) == ["step-spikes"]


def test_where_only_steps_that_stick_out_are_divided_those_are_judged() -> None:
    """As where timers are printed at every tenth step, which takes longer for that."""
    rows: list[Row] = []
    for step in range(1, 41):
        slow = step % 10 == 0
        rows.append(metric("step_seconds", step, 3.0 if slow else 1.0))
        rows += [phase("forward", step, 1.5)] * slow
    run = run_of(rows, world_size=1)
    assert "step-spikes" in rules(run)
    found = alone(run, "unaccounted-time")
    assert found.seconds_per_step == pytest.approx(1.5)
    assert "stick out" not in found.summary


def test_a_step_that_does_not_stick_out_is_judged_without_those_that_do() -> None:
    found = alone(stalling(0.25), "unaccounted-time")
    assert found.seconds_per_step == pytest.approx(0.25)
    assert found.share == pytest.approx(0.25 / (1.25 + 4 * 3 / 39))  # of all steps
    assert "mean of 35 printed steps" in found.summary
    assert "without the 4 that stick out" in found.summary


@pytest.mark.parametrize(
    ("timers", "said"),
    [
        ("zero", "DeepSpeed's timers run from forward to step"),
        ("pipeline-micro", "DeepSpeed's pipeline engine does not time gradient reduction"),
        ("megatron", ""),
        ("flat", ""),  # of a user's own grammar
    ],
)
def test_what_deepspeed_does_not_time_is_said_of_its_own_timers_alone(
    timers: str, said: str
) -> None:
    parts = {"forward": 0.3, "backward_inner": 0.4, "reduce_grads": 0.1}
    rows = [row | {"timers": timers} if "timers" in row else row for row in steps(6, parts, 1.2)]
    summary = alone(run_of(rows, world_size=2, zero_stage=1), "unaccounted-time").summary
    assert said in summary
    assert ("DeepSpeed" in summary) is bool(said)


def test_steps_whose_spans_are_deleted_have_no_timer_of_that_name(tmp_path: Path) -> None:
    """A recording keeps of them how long each class took, and the rest."""
    writer = Writer.create(tmp_path, header(), keep_bytes=64 << 10)
    write_steps(writer, 1, 500)  # 20 % of each step is in no phase
    writer.close()
    found = alone(load(tmp_path), UNTIMED)
    assert found.title == "20 % of a step is explained by no timer"
    assert "inside" not in found.summary


def test_two_stamps_that_prove_a_mean_are_as_far_apart_as_its_steps_took() -> None:
    line = "[rank0]:[titan] 2025-06-16 22:{} - root - INFO - step: {}  loss:  6.1384  memory: 49.66"
    line += "GiB(52.28%)  tps: 5,856  tflops: 339.16  mfu: 34.29%\n"
    stamps = ("30:50,000", "31:05,000", "31:19,000", "31:33,000")
    run = run_of_text(*(line.format(at, 200 + 10 * n) for n, at in enumerate(stamps)))
    found = findings_of(run)[0]
    assert found.title.startswith("A step takes 1.43 s")  # 43 s, 30 steps
    assert [proof.text for proof in found.evidence] == [
        "step 200 is stamped 22:30:50",
        "step 230 is stamped 22:31:33",
    ]
