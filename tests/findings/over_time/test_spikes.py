"""Steps that stick out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import Run, load
from tests.findings.beside.test_checkpoints import saving_by_the_clock
from tests.findings.over_time.test_throughput import noisy, run_with
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    config,
    metric,
    one,
    phase,
    quiet,
    run_of,
    silent,
    steps,
    why,
)
from tests.loaded import run_of_text
from tests.recording.recorded import MS, header
from tests.run.steps.test_bars import bar


def test_spikes_are_counted_and_their_rhythm_is_found() -> None:
    seconds = noisy(1_000, seed=6, spread=0.02)
    seconds[99::100] = 20.0  # steps 100, 200, ..., 1000
    found = alone(run_with(seconds), "step-spikes")
    assert found.steps == (100, 1000)
    assert "one every 100 steps" in found.title
    assert found.severity is Severity.CRITICAL  # 10 x 19 s of 1190 s
    assert found.share == pytest.approx(190 / 1190, rel=0.02)


def test_one_of_few_steps_that_takes_far_longer_than_any_other_sticks_out() -> None:
    seconds = noisy(13, seed=3)
    seconds[7] = 20.0
    found = alone(run_with(seconds), "step-spikes")
    assert found.title.startswith("1 of 12 steps sticks out and costs 6")
    assert found.summary.endswith("How often such steps come, so few do not tell.")
    assert (found.severity, found.confidence) == (Severity.WARNING, "medium")
    assert found.steps == (8, 8)
    seconds[7] = 2.5
    assert why(run_with(seconds), "step-spikes") == "12 timed steps, 20 needed"


def test_what_other_rules_judge_is_without_the_one_step_that_sticks_out() -> None:
    rows = [phase(name, step, 0.3) for step in range(1, 13) for name in ("forward", "backward")]
    rows += [
        phase("backward_allreduce", step, 20.0 if step == 7 else 0.01) for step in range(1, 13)
    ]
    rows += [metric("step_seconds", step, 20.7 if step == 7 else 0.7) for step in range(1, 13)]
    run = run_of(rows)
    assert run.findings[0].rule == "step-spikes"
    assert silent(run, "communication-bound")


def test_spikes_that_follow_each_other_are_told_as_one_stretch_and_not_as_what_a_job_does() -> None:
    seconds = noisy(400, seed=8, spread=0.02)
    seconds[100:120] = 3.0  # steps 101 to 120
    found = alone(run_with(seconds), "step-spikes")
    assert "20 of 399 steps stick out, all within steps 101 to 120, and cost" in found.title
    assert "They lie together, within steps 101 to 120: look for what lasted" in found.summary
    assert [advice.setting for advice in found.advice] == ["GPU clocks and neighbours at that time"]
    seconds = noisy(400, seed=8, spread=0.02)
    seconds[[100, 110, 125, 131, 160, 220, 230, 310]] = 9.0
    assert "at no regular interval" in alone(run_with(seconds), "step-spikes").summary


def test_a_stretch_at_the_beginning_is_a_start_and_no_throttled_clock() -> None:
    seconds = noisy(400, seed=8, spread=0.02)
    seconds[:12] = 3.0  # steps 1 to 12, the first of which is left out
    found = alone(run_with(seconds), "step-spikes")
    assert (
        "11 of 399 steps stick out, all at the beginning, within steps 2 to 12, and cost"
        in found.title
    )
    assert "the longer the run, the less of it they cost" in found.summary
    assert [advice.setting for advice in found.advice] == ["what only the first steps do"]
    excerpt = run_of(metric("step_seconds", 5_001 + n, float(one)) for n, one in enumerate(seconds))
    assert "stick out, all within steps 5,001 to 5,012, and" in alone(excerpt, "step-spikes").title


def test_a_few_cheap_spikes_are_no_finding() -> None:
    seconds = noisy(1_000, seed=7, spread=0.02)
    seconds[[100, 350, 777]] = 3.0
    assert quiet(run_with(seconds), "step-spikes")


def test_steps_that_save_stick_out_for_that_and_are_no_spikes() -> None:
    rows = steps(40, WELL, None)
    for step in range(1, 41):
        saves = step % 10 == 5
        rows.append(metric("step_seconds", step, 3.0 if saves else 1.0))
        rows += [phase("save_checkpoint", step, 2.0)] if saves else []
    run = run_of(rows)
    assert quiet(run, "step-spikes")
    assert alone(run, "checkpoint-stall").seconds_per_step == pytest.approx(0.2)


@pytest.mark.parametrize("whose", [{"segment": 1}, {"engine": 1}])
def test_saves_of_another_launch_or_engine_at_steps_of_these_numbers_hide_no_spikes(
    whose: dict[str, int],
) -> None:
    rows, others = [], []
    for step in range(1, 41):
        longer = 3.0 * (step % 10 == 5)
        rows += [phase("forward", step, 1.0 + longer), metric("step_seconds", step, 1.0 + longer)]
        others += [phase("forward", step, 0.5), metric("step_seconds", step, 0.5)]
        others += [phase("barrier_in_checkpoint", step, longer)] if longer else []
    only = one(run_of(rows), "step-spikes")
    beside = one(run_of([*rows, *(row | whose for row in others)]), "step-spikes")
    assert only.share == pytest.approx(beside.share)
    assert only.title == beside.title.removeprefix("Engine 0: ")


@pytest.mark.parametrize("grows", ["forward", "step"])
def test_steps_that_only_compute_longer_at_no_interval_may_be_longer_batches(grows: str) -> None:
    rows: list[Row] = []
    for number in range(1, 61):
        took = {"forward": 0.5, "step": 0.5}
        took[grows] += 2.0 * (number in {7, 19, 24, 41, 55})
        rows += [phase(name, number, value) for name, value in took.items()]
        rows.append(metric("step_seconds", number, sum(took.values())))
    advice = alone(run_of(rows, world_size=1), "step-spikes").advice
    assert (advice[0].setting == "lengths of the batches") == (grows == "forward")
    assert advice[-1].setting == "what happens at these steps"


@pytest.mark.parametrize(
    ("slow", "is_note"),
    [((1, 2, 3), True), ((1, 2, 3, 4, 5, 6), True), ((3, 4), False), ((1, 2, 25), False)],
)
def test_a_few_first_steps_that_warm_up_are_a_note(slow: tuple[int, ...], is_note: bool) -> None:
    """Of them the first is left out, as always."""
    run = run_with(np.array([2.0 if step in slow else 1.0 for step in range(1, 31)]))
    found = alone(run, "step-spikes")
    assert (found.severity is Severity.INFO) is is_note
    assert ("the longer the run, the less of it they cost" in found.summary) is is_note
    assert (found.advice[0].setting == "what only the first steps do") is is_note


def test_a_single_first_step_that_warms_up_is_told_as_one() -> None:
    summary = alone(run_with(np.array([1.0, 4.0, *[1.0] * 10])), "step-spikes").summary
    assert "It is one of the first: the longer the run, the less of it that costs." in summary
    assert "They" not in summary


def test_first_steps_that_warm_up_hide_no_interval_of_the_others() -> None:
    seconds = np.ones(41)
    seconds[:3] = 2.0  # steps 1 to 3, the first of which is left out
    seconds[4::5] = 3.0
    assert "one every 5 steps" in alone(run_with(seconds), "step-spikes").title


def asked(folder: Path, extra: int, *, longer: int) -> Run:
    """A recording of steps of 60 ms; each tenth has so many more forwards, all longer by some."""
    writer = Writer.create(folder, header())
    forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
    for step in range(1, 61):
        at = step * 1000 * MS
        added = [(30 + longer) * MS, *[30 * MS] * extra] if step % 10 == 0 else [30 * MS]
        for length in added:
            writer.span(forward, at, at + length, step, 0)
            at += length
        writer.span(backward, at, at + 30 * MS, step, 0)
        writer.step(step, step * 1000 * MS, at + 30 * MS)
        writer.flush()
    writer.close()
    return load(folder)


def test_recorded_steps_with_forwards_that_no_backward_follows_may_evaluate_with_gradients(
    tmp_path: Path,
) -> None:
    found = alone(asked(tmp_path / "more", 6, longer=0), "step-spikes")
    assert "In them 6 forwards more than backwards were made: whether that is an" in found.summary
    assert found.advice[0].setting == "evaluation at these steps"
    found = alone(asked(tmp_path / "longer", 0, longer=180), "step-spikes")
    assert "backwards" not in found.summary
    assert [advice.setting for advice in found.advice] == ["what happens at these steps"]


def test_recorded_steps_before_which_nothing_is_timed_tell_between_which_phases_that_lies(
    tmp_path: Path,
) -> None:
    writer, at = Writer.create(tmp_path, header(world=1)), MS
    names = {name: writer.name(name, 0, "compute") for name in ("forward", "backward")}
    for step in range(1, 61):
        began = at
        at += (1 + 300 * (step % 12 == 0)) * MS
        for phase_id in names.values():
            writer.span(phase_id, at, at + 50 * MS, step)
            at += 52 * MS
        writer.step(step, began, at)
    writer.close()
    told = alone(load(tmp_path), "step-spikes").summary
    assert "is time no timer explains; in these steps " in told
    assert "of that lies between backward and the next forward" in told


@pytest.mark.parametrize(
    ("grows", "told", "anew"),
    [
        ("data", {"data_workers": 2, "data_workers_persist": 0}, (21, 41)),
        ("data", {"data_workers": 2}, (21, 50)),
        ("data", {"data_workers": 2, "data_workers_persist": 1}, (21, 41)),
        ("data", {"data_workers": 2}, (51,)),  # one worker may be slow: no epoch begins
        ("data", {}, (21, 41)),
        ("step", {"data_workers": 2}, (21, 41)),
    ],
)
def test_where_first_steps_of_epochs_wait_for_a_loader_its_workers_may_be_started_anew(
    grows: str, told: dict[str, int], anew: tuple[int, ...]
) -> None:
    rows = [config(name, value) for name, value in told.items()]
    rows += [metric("data_iterators", step, 1) for step in anew]
    for number in range(1, 61):
        took = {"data": 0.1, "step": 0.5}
        took[grows] += 20.0 * (number in {21, 41})
        rows += [phase(name, number, value) for name, value in took.items()]
        rows.append(metric("step_seconds", number, sum(took.values())))
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    setting = alone(run, "step-spikes").advice[0].setting
    stays = told.get("data_workers_persist")
    expected = grows == "data" and told and not stays and 21 in anew
    assert ("persistent_workers" in setting) == bool(expected)
    printed = alone(run_of(rows), "step-spikes").advice[0].setting
    assert "persistent_workers" not in printed


@pytest.mark.parametrize(
    ("compiled", "said"),
    [({10, 20, 30, 40}, "each of them"), ({20, 30, 40}, "3 of them"), ({10}, ""),
     (range(1, 51), "")],
)  # fmt: skip
def test_steps_in_which_graphs_are_compiled_are_named(compiled: Iterable[int], said: str) -> None:
    rows = [metric("compilations", step, 2) for step in compiled]
    for step in range(1, 51):
        seconds = 1.0 + 4.0 * (step in {10, 20, 30, 40})
        rows += [phase("forward", step, seconds), metric("step_seconds", step, seconds)]
    found = alone(run_of(rows), "step-spikes")
    assert found.title.endswith(f": torch.compile compiles in {said}") == bool(said)
    assert ("torch.compile" in found.summary) == bool(said)
    assert (found.advice[0].setting == "what torch.compile is given") == bool(said)


@pytest.mark.parametrize(
    ("longer", "ended", "is_note"),
    [
        ("forward", dict.fromkeys(range(5, 51, 5), 1), True),
        ("forward", {step: 1 for step in range(1, 51) if step % 5}, True),  # who was first
        ("forward", dict.fromkeys(range(1, 51), 1), False),
        ("forward", dict.fromkeys(range(4, 50, 5), 1), False),
        ("forward", {}, False),
        ("step", dict.fromkeys(range(5, 51, 5), 1), False),
    ],
)
def test_longer_steps_that_another_optimizer_ends_are_a_note(
    longer: str, ended: dict[int, int], *, is_note: bool
) -> None:
    rows = [metric("optimizer_index", step, index) for step, index in ended.items()]
    for step in range(1, 51):
        took = {"forward": 1.0, "backward_allreduce": 0.1, "step": 0.1}
        took[longer] += 4.0 * (step % 5 == 0)
        rows += [phase(name, step, seconds) for name, seconds in took.items()]
        rows.append(metric("step_seconds", step, sum(took.values())))
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    found = alone(run, "step-spikes")
    assert (found.severity is Severity.INFO) == is_note
    assert found.title.endswith("another of the model's optimizers ends them") == is_note
    assert bool(found.advice) != is_note
    assert (found.gain is None) == is_note


def test_a_clock_that_runs_on_during_saves_makes_no_spikes_of_them() -> None:
    run = run_of(saving_by_the_clock(every=10, took=10.0))
    assert run.steps["seconds"].max() == pytest.approx(11.0)
    assert quiet(run, "step-spikes")


def test_a_step_whose_neighbour_is_as_much_shorter_is_none_that_sticks_out() -> None:
    """As on a TPU: nobody waits for it at the end of each step."""
    took = [5.79 if n in {13, 29} else 0.95 if n in {12, 28} else 3.37 for n in range(40)]
    lines = [
        f"[rank: 0] iter {n} step {n + 1}: iter time: {1000 * seconds:.2f}ms (optimizer.step)\n"
        for n, seconds in enumerate(took)
    ]
    assert quiet(run_of_text(*lines), "step-spikes")


def test_of_three_spikes_nothing_is_said_of_a_rhythm() -> None:
    seconds = noisy(100, seed=6, spread=0.02)
    seconds[[24, 49, 74]] = 20.0
    assert "rhythm" not in alone(run_with(seconds), "step-spikes").summary
    seconds[93] = 20.0
    assert "They come at no regular interval." in alone(run_with(seconds), "step-spikes").summary


def every_tenth(late: dict[int, int]) -> list[Row]:
    """100 steps of 4 ranks; in every tenth the rank that `late` says loads for 2 s."""
    rows: list[Row] = []
    for step in range(1, 101):
        slow = late.get(step)
        rows.append(metric("step_seconds", step, 1.0 if slow is None else 3.0))
        for rank in range(4):
            waits = 0.2 if slow in {None, rank} else 2.2
            rows += [
                phase("data", step, 2.0 if rank == slow else 0.0, rank),
                phase("forward", step, 0.8, rank),
                phase("backward_allreduce", step, waits, rank),
            ]
    return rows


def test_the_rank_that_the_others_wait_for_in_these_steps_is_named() -> None:
    found = alone(run_of(every_tenth(dict.fromkeys(range(10, 101, 10), 3))), "step-spikes")
    assert found.ranks == (3,)
    assert found.phase == "data"
    assert (
        "In all of them rank 3 is the last of 4: it comes 2.00 s after the median rank in the mean "
        "of these 10 steps, most of that in data." in found.summary
    )


def test_no_rank_is_named_where_they_are_late_in_turns() -> None:
    found = alone(
        run_of(every_tenth({step: step // 10 % 4 for step in range(10, 101, 10)})), "step-spikes"
    )
    assert found.ranks == ()
    assert "is the last of" not in found.summary


def test_three_of_five_may_be_chance() -> None:
    rows = every_tenth({20: 1, 40: 1, 60: 2, 80: 1, 100: 2})
    found = alone(run_of(rows), "step-spikes")
    assert found.ranks == ()


@pytest.mark.parametrize(("every", "called"), [(1, "steps"), (10, "windows of 10 steps")])
def test_input_that_is_late_in_a_few_steps_only_is_said_to_be(every: int, called: str) -> None:
    """It takes 3 s in every tenth step, as where an epoch begins; or in each of every tenth ten."""
    rows: list[Row] = []
    for record in range(1, 101):
        step, loading = record * every, 3.0 if record % 10 == 0 else 0.001
        rows.append(metric("step_seconds", step, 1.0 + loading, steps=every))
        parts = {"batch_input": loading, "forward": 1.0}
        rows += [
            phase(name, step, every * seconds) | {"steps": every} for name, seconds in parts.items()
        ]
    found = alone(run_of(rows, world_size=1), "data-bound")
    assert found.title.endswith(
        f"of a step is waiting for input data, 99.7 % of that in 10 of 99 {called}"
    )


def test_one_step_in_which_all_wait_for_one_rank_is_no_matter_of_chance() -> None:
    """What is said is of that step alone."""
    rows = [
        row | ({"seconds": 8.0 * row["seconds"]} if row.get("step") == 50 else {})
        for row in every_tenth({50: 2})
    ]
    found = alone(run_of(rows), "step-spikes")
    assert found.ranks == (2,)
    assert found.title.endswith("of the time: rank 2 is late in it")
    assert "In it rank 2 is the last of 4" in found.summary
    assert "in the mean of these" not in found.summary


def test_waiting_in_the_steps_that_stick_out_is_not_told_as_communication_again() -> None:
    rows = every_tenth(dict.fromkeys(range(10, 101, 10), 3))
    short = [
        row | ({"seconds": row["seconds"] - 0.15} if row["name"] == "backward_allreduce" else {})
        for row in rows
    ]
    run = run_of(short, world_size=4)
    assert alone(run, "step-spikes").ranks == (3,)
    assert quiet(run, "communication-bound")


def test_what_is_longer_in_these_steps_is_named() -> None:
    rows = [
        row
        for row in every_tenth(dict.fromkeys(range(10, 101, 10), 0))
        if row.get("rank") in {0, None}
    ]
    assert "Of what was added, 100 % is data." in alone(run_of(rows), "step-spikes").summary


def test_where_nothing_is_timed_nothing_is_said_of_what_is_longer() -> None:
    seconds = noisy(200, seed=3, spread=0.02)
    seconds[9::10] = 4.0
    assert "does not time what grew" in alone(run_with(seconds), "step-spikes").summary


def test_the_timer_that_grew_is_named_where_all_are_of_one_class() -> None:
    rows = steps(60, {"synchronize": 0.9}, None)
    for step in range(1, 61):
        evaluates = step % 10 == 5
        rows.append(metric("step_seconds", step, 3.0 if evaluates else 1.0))
        rows += [phase("evaluation", step, 1.9)] if evaluates else []
    assert "95 % is evaluation" in alone(run_of(rows), "step-spikes").summary


@pytest.mark.parametrize("evaluates", [True, False])
def test_recorded_steps_that_stick_out_by_an_evaluation_are_told_to_evaluate_less(
    *, evaluates: bool
) -> None:
    """It takes too little of the run for a finding of its own."""
    rows: list[Row] = []
    for step in range(1, 61):
        out = step % 10 == 5
        took = {"forward": 1.0, "evaluation" if evaluates else "step": 0.8 * out}
        rows += [phase(name, step, seconds) for name, seconds in took.items() if seconds]
        rows.append(metric("step_seconds", step, 1.8 if out else 1.0))
    found = alone(run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows]), "step-spikes")
    assert found.title.endswith(": most of it is evaluation") == evaluates
    looked = "steps between evaluations" if evaluates else "what happens at these steps"
    assert found.advice[0].setting == looked


@pytest.mark.parametrize("often", [1, 10])
def test_evaluation_that_does_not_make_steps_stick_out_is_not_said_to(often: int) -> None:
    """A model that only others learn from runs in all steps, or there is a finding of its own."""
    rows: list[Row] = []
    for step in range(1, 61):
        more = 1.35 * (step % 10 == 5)
        took = {"evaluation": 1.0 * often * (step % often == 5 % often), "forward": 0.6 + more}
        rows += [phase(name, step, seconds) for name, seconds in took.items() if seconds]
        rows.append(metric("step_seconds", step, sum(took.values())))
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    assert alone(run, "evaluation-stall")
    assert "evaluation" not in alone(run, "step-spikes").title


def test_no_timer_is_named_that_holds_little_of_what_was_added() -> None:
    rows = steps(60, {"synchronize": 0.9}, None)
    for step in range(1, 61):
        out = step % 10 == 5
        rows.append(metric("step_seconds", step, 3.0 if out else 1.0))
        rows += [phase("evaluation", step, 0.2)] if out else []
    assert "No single timer holds what grew" in alone(run_of(rows), "step-spikes").summary


def rated(each: list[float], *, every: int = 10, mean: float | None = None) -> list[Row]:
    """The rates of every tenth step, with a clock or with the mean that the source states."""
    rows: list[Row] = [{"kind": "config", "name": "train_batch_size", "value": 32.0}]
    at = pd.Timestamp("2024-05-01", tz="UTC")
    for step, seconds in enumerate(each, 1):
        at += pd.Timedelta(seconds=seconds)
        if step % every:
            continue
        stamp = {} if mean else {"at": at}
        rows.append(metric("samples_per_second", step, 32 / seconds) | stamp)
        if mean:
            rows.append(metric("samples_per_second_mean", step, 32 / mean))
    return rows


def at_twenty_fifths(count: int = 400) -> list[float]:
    return [3.0 if step % 25 == 0 else 1.0 for step in range(1, count + 1)]


def test_spikes_among_the_rates_of_every_tenth_step_are_held_against_all_steps_by_the_clock() -> (
    None
):
    found = alone(run_of(rated(at_twenty_fifths())), "step-spikes")
    assert found.share == pytest.approx(16 * 2 / (400 + 16 * 2), rel=0.05)
    assert found.title == "8 of 39 printed steps stick out and cost up to 7.3 % of the time"
    assert "one every" not in found.title  # in truth one every 25, most of them not printed
    assert "By the clock all steps take 1.08 s in the mean, 78.9 ms more than" in found.summary


def test_spikes_among_rates_that_are_not_as_all_steps_are_have_no_price_without_a_clock() -> None:
    found = alone(run_of(rated(at_twenty_fifths(), mean=1.08)), "step-spikes")
    assert found.severity is Severity.INFO
    assert (found.share, found.seconds_per_step, found.gain) == (None, None, None)
    assert "what such steps cost of all the time is unknown" in found.summary


def test_spikes_among_rates_that_are_as_all_steps_are_keep_their_price() -> None:
    each = [1.0] * 400
    each[49::50] = [3.0] * 8
    found = alone(run_of(rated(each, mean=1.41)), "step-spikes")
    assert found.share == pytest.approx(16 / (39 + 16), rel=0.05)
    assert "of their time" in found.title


def test_a_mean_of_ten_steps_by_a_bar_is_not_told_as_one_step() -> None:
    """Step 205 alone takes 20 minutes; the bar is read at each tenth."""
    text, clock = "***** Running training *****\n  Total optimization steps = 400\n", 0
    for step in range(10, 401, 10):
        clock += 1220 if step == 210 else 20
        text += f" {step}%|██    | {step}/400 [{clock // 60:02}:{clock % 60:02}<59:59,  2.00s/it]"
        text += f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {step / 400}}}\n"
    found = alone(run_of_text(text), "step-spikes")
    assert found.title.startswith("1 of 39 windows of 10 steps sticks out")
    assert "It takes 2 min 02 s a step in the mean of its 10 instead of 2" in found.summary
    assert found.evidence[0].text == "step 210: 2 min 02 s a step in the 10 up to it"


def logged(clock: int, said: str) -> str:
    stamp = f"[2026-01-01 00:{clock // 60:02}:{clock % 60:02},000]"
    return f"{stamp} [INFO] [logging.py:107:log_dist] [Rank 0] {said}\n"


def saving_by_the_bar(every: int = 50, took: int = 20, count: int = 400, timers: str = "") -> str:
    """A bar of each step of 1 s behind its timers; lines that begin and end a save after some."""
    text, clock = f"***** Running training *****\n  Total optimization steps = {count}\n", 0
    for step in range(1, count + 1):
        clock += 1
        if timers:
            text += logged(clock, f"time (ms) | {timers}")
        text += bar(step, count, clock) + f"{{'loss': 1.5, 'epoch': {step / count}}}\n"
        for name, line in (("save", "about to be saved!"), ("over", "ready now!")):
            if step % every == 0:
                clock += took * (name == "over")
                text += logged(clock, f"[Torch] Checkpoint global_step{step} is {line}")
    return text


def test_saves_in_windows_of_unlike_length_cost_what_they_take_of_all_steps() -> None:
    run = run_of_text(saving_by_the_bar())
    assert {1, 10} <= set(run.steps["covers"].dropna())
    found = alone(run, "checkpoint-stall")
    assert found.seconds_per_step == pytest.approx(0.4)  # 8 x 20 s in 400 steps
    assert found.share == pytest.approx(0.4 / 1.4, rel=0.02)
    assert quiet(run, "step-spikes")


def test_spikes_in_windows_of_unlike_length_cost_what_they_take_of_all_steps() -> None:
    text = "".join(line for line in saving_by_the_bar().splitlines(True) if "Torch" not in line)
    found = alone(run_of_text(text), "step-spikes")
    assert found.share == pytest.approx(140 / 540, rel=0.05)  # the last save is behind all steps


def test_saves_between_the_timers_of_a_barred_job_are_not_called_unexplained_as_well() -> None:
    timers = "fwd: 300.0 | bwd: 500.0 | bwd_inner: 400.0 | bwd_allreduce: 100.0 | step: 190.0"
    run = run_of_text(saving_by_the_bar(timers=timers))
    found = alone(run, "checkpoint-stall")
    assert found.share == pytest.approx(0.4 / 1.4, rel=0.02)
    assert "The mean step here holds 359 ms of saving." in found.summary
    assert run.judged[0].outside_timers > 0.35
    assert not any("no timer" in other.title for other in run.findings)


@pytest.mark.parametrize(("backward", "evaluates"), [(0.0, True), (2.0, False)])
def test_steps_of_which_forward_alone_is_longer_may_hold_an_evaluation_and_no_longer_batch(
    backward: float, evaluates: bool
) -> None:
    rows: list[Row] = []
    for number in range(1, 61):
        out = number in {7, 19, 24, 41, 55}
        took = {"forward": 0.3 + 2.0 * out, "backward_inner": 0.6 + backward * out, "step": 0.1}
        rows += [phase(name, number, value) for name, value in took.items()]
        rows.append(metric("step_seconds", number, sum(took.values())))
    advice = [said.setting for said in alone(run_of(rows, world_size=1), "step-spikes").advice]
    assert ("evaluation before these steps" in advice) == evaluates
    assert ("lengths of the batches" in advice) != evaluates


def test_what_is_longer_beside_an_evaluation_that_has_a_finding_is_not_said_to_be_it() -> None:
    """Behind each tenth step a recording shows an evaluation of 3 s, and 5 s that nothing times."""
    rows: list[Row] = []
    for step in range(1, 61):
        out = step % 10 == 5
        took = {"forward": 0.5, "step": 0.5, "evaluation": 3.0 * out}
        rows += [phase(name, step, seconds) for name, seconds in took.items() if seconds]
        rows.append(metric("step_seconds", step, 9.0 if out else 1.0))
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    assert alone(run, "evaluation-stall")
    found = alone(run, "step-spikes")
    assert "the longest 6.00 s beside what evaluating and saving take, instead of" in found.summary
    assert "Of what was added, 100 % is time no timer explains" in found.summary
