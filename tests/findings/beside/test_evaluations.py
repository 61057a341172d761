"""Evaluations: what they take of the training, where the trainer states how long each took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from dsprof.events import Severity
from dsprof.recording import Writer
from dsprof.run import Run, load
from dsprof.text.words import cost
from tests.findings.plants import (
    WELL,
    Row,
    alone,
    metric,
    one,
    phase,
    quiet,
    rules,
    run_of,
    silent,
    steps,
    why,
)
from tests.loaded import run_of_text
from tests.recording.recorded import MS, header

RULE = "evaluation-stall"


def beside_a_bar(takes: int, said: float | None = None, end: str = "") -> Run:
    """100 steps of 1 s by a bar, and an evaluation behind each 20."""
    text, clock = "***** Running training *****\n  Total optimization steps = 100\n", 0
    for step in range(10, 101, 10):
        clock += 10
        text += f" {step}%|██    | {step}/100 [{clock // 60:02}:{clock % 60:02}<59:59,  1.00s/it]"
        text += f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {step / 100}}}\n"
        if step % 20 == 0:
            clock += takes
            text += f"{{'eval_loss': 1.5, 'eval_runtime': {said or takes}, 'epoch': 0.5}}\n"
    return run_of_text(text + end)


def test_the_last_evaluation_before_the_trainer_is_over_is_of_the_training_too() -> None:
    behind = "{'eval_loss': 1.5, 'eval_runtime': 90.0, 'epoch': 1.0}\n"
    over = "{'train_runtime': 175.0, 'train_loss': 1.5, 'epoch': 1.0}\n"
    found = alone(beside_a_bar(15, end=over + behind), RULE)
    assert found.summary.startswith("5 evaluations took 75.0 s in 100 steps, ")
    assert found.share == pytest.approx(0.75 / 1.75)


def test_evaluations_that_the_trainer_times_are_a_finding_with_a_gain() -> None:
    found = alone(beside_a_bar(15), RULE)
    assert found.severity is Severity.CRITICAL
    assert found.title == "Evaluating takes 40 % of the training time"  # the fifth is behind it
    assert found.summary.startswith("4 evaluations took 60.0 s in 90 steps, ")
    assert found.seconds_per_step == pytest.approx(60 / 90)
    assert found.gain == pytest.approx((30 / 90, 60 / 90))
    assert found.advice[0].setting == "eval_steps"


@pytest.mark.parametrize("evaluates", [0, 12])
def test_what_a_bar_shows_of_saves_is_told_apart_from_evaluations(evaluates: int) -> None:
    """300 steps of 1 s, behind each 50 of which the Trainer evaluates and saves for 20 s."""
    text, clock = "***** Running training *****\n  Total optimization steps = 300\n", 0
    for step in range(10, 301, 10):
        clock += 10
        text += f" {step}%|██    | {step}/300 [{clock // 60:02}:{clock % 60:02}<59:59,  1.00s/it]"
        text += f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {step / 300}}}\n"
        if step % 50 == 0:
            clock += 20 + evaluates
            text += f"{{'eval_loss': 1.5, 'eval_runtime': {evaluates}.0}}\n" if evaluates else ""
            text += f"Saving model checkpoint to out/checkpoint-{step}\n"
    run = run_of_text(text)
    found = alone(run, "checkpoint-stall")
    assert found.summary.startswith("5 saves took 100 s in 300 steps, ")  # the sixth is behind it
    others = 300 + 300 / 290 * 5 * evaluates  # all but the first ten steps are timed
    assert found.share == pytest.approx(100 / (100 + others), rel=0.01)
    assert ("evaluation-stall" in rules(run)) == (evaluates > 0)
    assert "step-spikes" not in rules(run)


def test_short_evaluations_are_no_finding() -> None:
    assert quiet(beside_a_bar(2), RULE)


def test_evaluations_that_are_said_to_take_longer_than_passed_prove_nothing() -> None:
    assert "not known to lie between" in (why(beside_a_bar(5, said=40), RULE) or "")


def test_without_a_bar_evaluations_are_set_beside_the_steps() -> None:
    timed = steps(20, WELL)
    evaluation = metric("eval_runtime", 10, 10.0)
    half = len(timed) // 2
    run = run_of([*timed[:half], evaluation, *timed[half:]], world_size=2)
    found = alone(run, RULE)
    assert found.share == pytest.approx(0.5 / 1.5)
    assert found.summary.startswith("1 evaluation took 10.0 s in 20 steps: as if ")


def test_an_evaluation_that_megatron_times_is_no_part_of_a_step() -> None:
    """Steps of 1 s, and an evaluation of 5 s behind each tenth of them."""
    line = " iteration {:8d}/     100 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.5 |\n"
    head = "(min, max) time across ranks (ms):\n"
    parts = head + "    forward-backward {}: (900.00, 990.00)\n".format(31 * ".")
    evaluation = head + "    evaluate {}: (4990.00, 5000.00)\n".format(39 * ".")
    run = run_of_text(*(line.format(step) + parts + evaluation for step in range(10, 101, 10)))
    assert run.steps["seconds"].eq(1.0).all()
    assert set(run.phases["name"]) == {"forward-backward"}
    found = one(run, RULE)
    assert found.share == pytest.approx(0.45 / 1.45)
    assert [advice.setting for advice in found.advice] == ["--eval-interval", "--eval-iters"]


def evaluating_in_timers(counted: float) -> Run:
    """60 steps of 1 s; of an evaluation of 6 s behind each tenth the next step's forward holds
    `counted`."""
    rows: list[Row] = []
    for step in range(1, 61):
        longer = counted * (step % 10 == 1 and step > 1)
        took = WELL | {"forward": WELL["forward"] + longer}
        rows += [phase(name, step, value) for name, value in took.items()]
        rows.append(metric("step_seconds", step, 1 + longer))
        rows += [metric("eval_runtime", step, 6.0)] if step % 10 == 0 else []
    return run_of(rows, world_size=2, zero_stage=1)


@pytest.mark.parametrize("counted", [0.0, 4.0, 6.0])
def test_what_timers_count_of_an_evaluation_has_one_price(counted: float) -> None:
    run = evaluating_in_timers(counted)
    found = alone(run, RULE)
    assert found.share == pytest.approx((5 * 6 / 60) / (1 + 5 * 6 / 60), rel=0.02)
    assert (f"{5 * counted:.1f} s lie in the steps after" in found.summary) == (counted > 0)
    assert "step-spikes" not in rules(run)


def test_what_is_beyond_an_evaluation_still_sticks_out() -> None:
    found = alone(evaluating_in_timers(9.0), "step-spikes")
    assert found.seconds_per_step == pytest.approx(5 * 3 / 59)


def test_steps_that_stick_out_for_a_recorded_evaluation_are_no_spikes() -> None:
    run = recorded(0.5, 1.5, every=10, count=60)
    assert alone(run, RULE).severity is Severity.CRITICAL
    assert quiet(run, "step-spikes")


@pytest.mark.parametrize(
    ("runtime", "share"), [(200.0, 0.6), (100.0, None), (0.0, None), (None, None)]
)
def test_where_no_step_has_a_time_evaluations_are_set_beside_the_whole_training(
    runtime: float | None, share: float | None
) -> None:
    """The last evaluation is made when the training is over."""
    text = "".join(
        f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {n / 4}}}\n"
        "{'eval_loss': 1.5, 'eval_runtime': 30.0, 'epoch': 0.5}\n"
        for n in range(1, 5)
    )
    if runtime is not None:
        text += f"{{'train_runtime': {runtime}, 'train_loss': 1.5, 'epoch': 1.0}}\n"
    run = run_of_text(text + "{'eval_loss': 1.5, 'eval_runtime': 900.0, 'epoch': 1.0}\n")
    if share is None:
        assert why(run, RULE) == "no step has a time to compare evaluating with"
        return
    found = alone(run, RULE)
    assert found.share == pytest.approx(share)
    assert found.seconds_per_step is None
    assert found.summary.startswith("4 evaluations took 2 min 00 s of the 3 min 20 s that the")
    assert cost(None, found.share, None) == "60 % of the time"


def test_an_evaluation_of_all_nodes_takes_no_more_than_it_lasts_however_many_tell_of_it() -> None:
    said = [
        f"{node}: {{'eval_loss': 0.5, 'eval_runtime': {took}, 'epoch': 3.0}}\n"
        for node, took in [("10.0.0.1", 2810.15), ("10.0.0.2", 2810.14), ("10.0.0.3", 2809.02)]
    ]
    over = "10.0.0.1: {'train_runtime': 10530.0, 'train_steps_per_second': 0.168, 'epoch': 3.0}\n"
    found = alone(run_of_text("".join(said) + over), RULE)
    assert found.title == "Evaluating takes 27 % of the training time"
    assert found.summary.startswith("1 evaluation took 46 min 50 s of the ")


def test_where_no_step_has_a_time_evaluations_are_set_beside_what_the_bar_counted() -> None:
    bar = " 50%|██    | 105/210 [02:00<02:00,  1.10s/it]"
    record = "{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    evaluation = "{'eval_loss': 1.5, 'eval_runtime': 45.0, 'epoch': 0.4}\n"
    found = alone(run_of_text(evaluation + bar + record + evaluation), RULE)
    assert found.title == "Evaluating takes at least 38 % of the training time"
    assert found.summary.startswith("1 evaluation took 45.0 s of the 2 min 00 s that the progress")
    assert found.seconds_per_step is None
    assert why(run_of_text(bar + record + evaluation), RULE) is not None
    ahead = evaluation.replace(", 'epoch': 0.4", "")  # of training: its bar has not begun
    assert why(run_of_text(ahead + bar + record), RULE) is not None
    launch = "[2024-03-01 10:00:00,000] [INFO] [runner.py:555:main] cmd = python train.py\n"
    twice = run_of_text(launch + evaluation + bar + record + launch + bar + record)
    assert why(twice, RULE) is not None


def test_an_evaluation_behind_the_last_step_takes_nothing_from_training() -> None:
    run = run_of([*steps(20, WELL), metric("eval_runtime", None, 60.0)], world_size=2)
    assert "not known to lie between" in (why(run, RULE) or "")


def stamped(
    pauses: Mapping[int, float],
    name: str,
    value: float | None,
    saving: tuple[int, float | None] | None = None,
) -> Run:
    """40 steps of 1 s by time stamps of 10 ms; behind each of `pauses` so many seconds pass, and a
    line tells of an evaluation. Behind one, a save also begins, timed or not."""
    marks, at = [], pd.Timestamp("2024-05-01")
    for step in range(1, 41):
        at += pd.Timedelta(1.0 + 0.01 * (step % 3), "s")
        marks.append(metric("loss", step, 1.0, at=at))
        if step in pauses:
            at += pd.Timedelta(pauses[step], "s")
            marks.append(metric(name, step, value))
        if saving and step == saving[0]:
            timed = saving[1] is not None
            marks.append(
                phase("save-checkpoint", step, saving[1] or 0.0)
                if timed
                else metric("checkpoint_begin", step, None)
            )
    return run_of(marks)


def test_evaluations_without_a_duration_take_what_steps_around_them_are_further_apart() -> None:
    found = alone(stamped({10: 9.0, 20: 9.0, 30: 12.0}, "eval_loss", 1.5), RULE)
    assert found.title == "Evaluating takes up to 43 % of the training time"
    assert found.summary.startswith("3 evaluations took 30.0 s in 40 steps, ")
    assert "The mean step here holds 769 ms of evaluating. No time stamp says" in found.summary
    assert found.confidence == "medium"
    assert found.seconds_per_step == pytest.approx(30 / 40, 0.01)
    assert found.advice[0].setting == "steps between evaluations"


def test_steps_that_hold_evaluations_stick_out_by_nothing_else() -> None:
    assert quiet(stamped({10: 9.0, 20: 9.0, 30: 12.0}, "eval_loss", 1.5), "step-spikes")
    found = alone(stamped({20: 3.5}, "eval_loss", 1.5), "step-spikes")
    assert found.title.endswith(": most of it is evaluation")
    assert found.advice[0].setting == "steps between evaluations"


def test_an_evaluation_that_the_clock_does_not_show_is_left_out_of_what_they_take() -> None:
    found = alone(stamped({10: 9.0, 20: 0.0, 30: 9.0}, "eval_loss", 1.5), RULE)
    assert found.title.startswith("Evaluating takes about 31 % of")
    assert found.summary.startswith("2 evaluations took 18.0 s")
    assert why(stamped({10: 0.0, 20: 0.0}, "eval_loss", 1.5), RULE) is not None


@pytest.mark.parametrize("result", ["Validation loss: 2.5", "ppl: 12.25, loss: 2.5"])
def test_what_a_script_prints_of_its_evaluations_is_enough_beside_deepspeeds_stamps(
    result: str,
) -> None:
    """A step a second; after each ten steps the script evaluates for five."""
    lines, at = [], pd.Timestamp("2024-05-06 07:00:00.250")
    for step in range(2, 81, 2):
        at += pd.Timedelta(2 + 5 * (step % 10 == 2 and step > 2), "s")
        if step % 10 == 2 and step > 2:
            lines.append(f"{result}\n")
        stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO]"
        step_line = f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], mom=[0]"
        lines.append(f"{stamp} {step_line}\n")
    found = alone(run_of_text(*lines), RULE)
    assert found.title == "Evaluating takes up to 30 % of the training time"
    assert found.summary.startswith("7 evaluations took 35.0 s in 80 steps, ")


def test_what_a_save_takes_beside_an_evaluation_is_none_of_it() -> None:
    run = stamped({10: 9.0, 20: 9.0, 30: 9.0}, "eval_loss", 1.5, saving=(20, 5.0))
    assert alone(run, RULE).summary.startswith("3 evaluations took 22.0 s in 40 steps, ")


def test_of_an_evaluation_beside_a_save_of_unknown_duration_both_are_told_together() -> None:
    run = stamped({10: 9.0, 20: 9.0, 30: 9.0}, "eval_loss", 1.5, saving=(20, None))
    found = alone(run, RULE)
    assert found.title == "Evaluating and saving take up to 40 % of the training time"
    said = "3 evaluations (1 with a save beside it) took 27.0 s in 40 steps, "
    assert found.summary.startswith(said)
    assert found.advice[1].setting == "save interval"
    (both,) = alone(
        stamped({10: 9.0, 20: 12.0, 30: 9.0}, "eval_loss", 1.5, saving=(20, None)), RULE
    ).evidence
    assert both.text == "evaluation and save: 12.0 s"
    assert why(run, "checkpoint-stall") == "no line tells how long saving a checkpoint takes"


def test_of_steps_told_by_time_stamps_evaluations_that_the_trainer_times_are_told_apart() -> None:
    found = alone(stamped({10: 9.5, 20: 9.5, 30: 9.5}, "eval_runtime", 9.0), RULE)
    assert found.summary.startswith("3 evaluations took 27.0 s in 40 steps, ")
    assert found.confidence == "high"
    assert found.share == pytest.approx(27 / (27 + 1.5 + 40), 0.02)


def test_what_is_said_to_take_longer_than_the_clock_counts_is_of_no_step() -> None:
    run = stamped({10: 0.0, 20: 9.5}, "eval_runtime", 9.0)
    assert "not known to lie between" in (why(run, RULE) or "")
    assert "not known to lie between" in (why(stamped({40: 9.0}, "eval_runtime", 9.0), RULE) or "")


def test_without_a_duration_nothing_is_said() -> None:
    assert "no line tells" in (why(run_of(steps(20, WELL)), RULE) or "")


def recorded(evaluation: float, seconds: float, *, every: int = 1, count: int = 10) -> Run:
    """Steps of a recording that take `seconds` in the mean, `evaluation` of it evaluating: all of
    that in each n-th step."""
    rows = []
    for step in range(1, count + 1):
        took = evaluation * every if step % every == 0 else 0.0
        rows += [phase(name, step, value) for name, value in WELL.items()]
        rows += [phase("evaluation", step, took)] if took else []
        rows.append(metric("step_seconds", step, seconds - evaluation + took))
    return run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])


def test_an_evaluation_that_a_recording_times_is_told_by_its_name_and_not_as_unexplained() -> None:
    run = recorded(0.5, 1.5, every=5)
    found = alone(run, RULE)
    assert found.severity is Severity.CRITICAL
    assert (
        found.title == "Evaluating takes 36 % of the training time"
    )  # two of nine: the first warms up
    assert found.phase == "evaluation"
    assert found.seconds_per_step == pytest.approx(5 / 9)
    assert quiet(run, "unaccounted-time")


@pytest.mark.parametrize(("compiling", "confidence"), [(5, "low"), (3, "high")])
def test_of_an_evaluation_that_may_compile_its_graphs_no_gain_is_promised(
    compiling: int, confidence: str
) -> None:
    rows = [phase(name, step, took) for step in range(1, 13) for name, took in WELL.items()]
    rows += [phase("evaluation", 5, 9.0), phase("evaluation", 10, 0.1)]
    more = {5: 9.0, 10: 0.1}
    rows += [metric("step_seconds", step, 1.0 + more.get(step, 0.0)) for step in range(1, 13)]
    rows.append(metric("compilations", compiling, 1))
    found = alone(run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows]), RULE)
    assert (found.confidence, found.gain is None) == (confidence, confidence == "low")
    assert ("torch.compile" in found.summary) == (confidence == "low")


def evaluating_alone(ranks: int) -> Run:
    """41 recorded steps of 1 s; in each tenth rank 0 evaluates for 9 s more, which the others wait
    in their next collective."""
    rows = []
    for step in range(1, 42):
        took = 9.0 * (step % 10 == 0)
        for rank in range(ranks):
            rows.append(phase("forward", step, 0.95, rank))
            rows.append(phase("reduce_grads", step, 0.05 + (took if rank else 0.0), rank))
        rows += [phase("evaluation", step, took, 0)] if took else []
        rows.append(metric("step_seconds", step, 1.0 + took))
    return run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])


@pytest.mark.parametrize("ranks", [2, 8])
def test_what_the_others_wait_for_a_rank_that_evaluates_alone_is_of_its_evaluation(
    ranks: int,
) -> None:
    run = evaluating_alone(ranks)
    assert rules(run)[0] == RULE
    found = alone(run, RULE)
    assert found.seconds_per_step == pytest.approx(36 / 40)
    assert found.share == pytest.approx(36 / 76)
    assert [advice.setting for advice in found.advice] == [
        "steps between evaluations", "evaluation data set", "batches of an evaluation",
    ]  # fmt: skip
    assert f"{900 * (ranks - 1) / ranks:.0f} ms of it as waiting for ranks" in found.summary
    assert silent(run, "communication-bound")
    assert silent(run, "step-spikes")


def evaluating_together(folder: Path, *, every: int) -> Run:
    """60 recorded steps of 90 ms on two ranks; in each n-th an evaluation of 400 ms, of which 300
    are gathers of few bytes, as FSDP makes them for each module."""
    for rank in range(2):
        writer, at = Writer.create(folder, header(rank)), MS
        forward, backward = (writer.name(name, 0, "compute") for name in ("forward", "backward"))
        evaluation = writer.name("evaluation", 0, "other")
        gather = writer.name("all_gather_into_tensor", evaluation)
        reduce, group = writer.name("reduce_scatter_tensor", backward), writer.name("world ranks")
        for step in range(1, 61):
            began = at
            writer.span(forward, at, at + 30 * MS, step)
            writer.collective(reduce, group, at, at + 80 * MS, 10 * MS, step, 0, 1 << 24, 1, step)
            writer.span(backward, at + 30 * MS, at + 90 * MS, step)
            at += 90 * MS
            if step % every == 0:
                for call in range(1, 21):
                    then, number = at + call * 20 * MS - 15 * MS, 1000 + 20 * step + call
                    writer.collective(gather, group, then, then, 15 * MS, step, 0, 4096, 1, number)
                writer.span(evaluation, at, at + 400 * MS, step)
                at += 400 * MS
            writer.step(step, began, at)
            writer.flush()
        writer.close()
    return load(folder)


def test_what_ranks_gather_within_an_evaluation_is_of_the_evaluation(tmp_path: Path) -> None:
    run = evaluating_together(tmp_path, every=10)
    found = alone(run, RULE)
    assert found.seconds_per_step == pytest.approx(6 * 0.4 / 59)  # the first step warms up
    assert "30.5 ms of it in collectives" in found.summary
    for rule in ("small-messages", "communication-bound", "step-spikes"):
        assert quiet(run, rule)


def test_what_ranks_gather_in_forwards_of_each_step_is_communication(tmp_path: Path) -> None:
    run = evaluating_together(tmp_path, every=1)
    assert alone(run, RULE).seconds_per_step == pytest.approx(0.1)
    assert alone(run, "small-messages").seconds_per_step == pytest.approx(0.3, rel=0.1)


def test_forwards_without_a_backward_in_each_step_are_not_said_to_evaluate() -> None:
    """GRPO and PPO generate so; nothing is to be left out then."""
    found = alone(recorded(0.5, 1.5), RULE)
    assert found.title == "Forwards without a backward take 33 % of the training time"
    assert "generate, score or evaluate" in found.summary
    assert "eval_steps" not in {one.setting for one in found.advice}
    assert found.gain is None


def test_forwards_without_a_backward_in_each_step_of_another_engine_are_not_of_this_one() -> None:
    rows = []
    for step in range(1, 11):
        took = 2.5 * (step % 5 == 0)
        rows += [phase(name, step, value) for name, value in WELL.items()]
        rows += [phase("evaluation", step, took)] if took else []
        rows.append(metric("step_seconds", step, 1.0 + took))
        other = [phase("evaluation", step, 0.5), metric("step_seconds", step, 0.5)]
        rows += [row | {"engine": 1} for row in other]
    run = run_of([row | {"source": "rank-00000.1.dsprof"} for row in rows])
    found = next(found for found in run.findings if found.rule == RULE and found.engine == 0)
    assert found.title == "Engine 0: Evaluating takes 36 % of a step"


def test_what_lies_beside_a_recorded_evaluation_is_still_explained_by_no_timer() -> None:
    found = alone(recorded(0.5, 2.0), "unaccounted-time")
    assert found.title == "25 % of a step is explained by no timer"
    assert found.seconds_per_step == pytest.approx(0.5)
    assert quiet(recorded(0.01, 1.01), RULE)
