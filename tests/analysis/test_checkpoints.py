"""How long saves took, by lines that begin and end one, or that begin one alone (0.18 on)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
import pytest

import dsprof
from dsprof.analysis.checkpoints import (
    apart_from_saves,
    calls_of_saves,
    saves,
    waits_for_evaluations,
    waits_for_saves,
)
from dsprof.recording import Writer
from dsprof.run.table import tidy
from tests.findings.plants import one, why
from tests.recording.recorded import CLASSES, MS, header
from tests.text.said import shown

_STEP = "[Rank 0] step={step}, skipped=0, lr=[0.001], mom=[[0.9, 0.999]]"
_SAVE = "[Rank 0] [Torch] Checkpoint global_step{step} is about to be saved!"
_EVALUATED = "{'eval_loss': 2.0, 'eval_runtime': 3.0, 'epoch': 1.0}"


def saved(
    folder: Path, after: Mapping[int, float], printed: Iterable[int], evaluated: int = 0
) -> pd.DataFrame:
    """Saves of a log of 100 ms a step; `after` steps, so many seconds pass beside."""
    lines, clock, begin = [], pd.Timestamp("2026-01-01"), "[{},{:03}] [INFO] [logging.py:96:x] "
    for step in range(1, 41):
        clock += pd.Timedelta(seconds=0.1)
        stamp = begin.format(clock.strftime("%Y-%m-%d %H:%M:%S"), clock.microsecond // 1000)
        if step in set(printed):
            lines.append(stamp + _STEP.format(step=step))
        if step in after:
            lines.append(stamp + _SAVE.format(step=step))
            clock += pd.Timedelta(seconds=after[step])
        if step == evaluated:
            lines.append(_EVALUATED)
    (folder / "job.log").write_text("\n".join(lines) + "\n")
    run = dsprof.load(folder / "job.log")
    return saves(run.told, run.phases, run.steps)


def test_a_save_takes_what_the_steps_around_it_are_further_apart(tmp_path: Path) -> None:
    found = saved(tmp_path, {10: 2.0, 30: 3.0}, range(1, 41))
    assert found["seconds"].tolist() == pytest.approx([2.0, 3.0])
    assert found["step"].tolist() == [10, 30]
    assert found["inferred"].all()


def test_steps_printed_now_and_then_tell_it_too(tmp_path: Path) -> None:
    found = saved(tmp_path, {13: 2.0, 33: 3.0}, range(5, 41, 5))
    assert found["seconds"].tolist() == pytest.approx([2.0, 3.0])


def test_no_save_is_told_where_steps_without_one_are_as_far_apart(tmp_path: Path) -> None:
    assert len(saved(tmp_path, {10: 0.0, 30: 0.0}, range(1, 41))) == 0


def test_too_few_steps_without_a_save_tell_nothing(tmp_path: Path) -> None:
    assert len(saved(tmp_path, {10: 2.0, 20: 2.0, 30: 2.0}, range(5, 41, 5))) == 0


def test_where_the_job_evaluated_too_nothing_is_charged_to_the_save(tmp_path: Path) -> None:
    found = saved(tmp_path, {10: 2.0, 30: 9.0}, range(1, 41), evaluated=30)
    assert found["step"].tolist() == [10]


def test_nothing_is_told_of_a_log_without_saves(tmp_path: Path) -> None:
    assert len(saved(tmp_path, {}, range(1, 41))) == 0


def paired(folder: Path, *lines: tuple[float, str]) -> pd.DataFrame:
    """Saves of a log of these lines, each with the seconds at which it was printed."""
    stamps = [pd.Timestamp("2026-01-01") + pd.Timedelta(seconds=second) for second, _ in lines]
    text = [
        f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO] [logging.py:107:x] {line}"
        for at, (_, line) in zip(stamps, lines, strict=True)
    ]
    (folder / "job.log").write_text("\n".join(text) + "\n")
    run = dsprof.load(folder / "job.log")
    return saves(run.told, run.phases, run.steps)


_READY = "[Torch] Checkpoint global_step{step} is ready now!"


def test_a_save_that_rank_0_begins_is_over_with_a_line_that_tells_no_rank(tmp_path: Path) -> None:
    found = paired(
        tmp_path,
        (0, _STEP.format(step=10)), (0, _SAVE.format(step=10)), (4, _READY.format(step=10)),
        (9, _STEP.format(step=20)), (9, _SAVE.format(step=20)), (12, _READY.format(step=20)),
    )  # fmt: skip
    assert found["seconds"].tolist() == pytest.approx([4, 3])
    assert found["step"].tolist() == [10, 20]
    assert not found["inferred"].any()


def test_a_save_is_over_when_the_last_rank_says_so(tmp_path: Path) -> None:
    ready = _READY.format(step=10)
    found = paired(tmp_path, (0, _SAVE.format(step=10)), (4, ready), (6, ready))
    assert found["seconds"].tolist() == pytest.approx([6])


def test_a_save_that_never_ended_does_not_take_the_end_of_the_next_one(tmp_path: Path) -> None:
    begin, end = (
        "saving checkpoint at iteration {} to out",
        "successfully saved checkpoint at iteration {} to out",
    )
    found = paired(tmp_path, (0, begin.format(10)), (60, begin.format(20)), (62, end.format(20)))
    assert found["seconds"].tolist() == pytest.approx([2])
    assert found["step"].tolist() == [20]


def test_what_a_recorded_job_loaded_is_no_save(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for step in range(13, 31):
        at = step * 100 * MS
        if step == 13:
            writer.span(writer.name("load_checkpoint", 0, "checkpoint"), at, at + 60 * MS, step)
        if step == 25:
            writer.span(writer.name("checkpoint", 0, "checkpoint"), at, at + 10 * MS, step)
        writer.step(step, at, at + 100 * MS)
    writer.close()
    run = dsprof.load(tmp_path)
    found = saves(run.told, run.phases, run.steps)
    assert found["step"].tolist() == [25]
    assert found["seconds"].tolist() == pytest.approx([0.01])


def recorded_saves(folder: Path, inside: Iterable[int]) -> dsprof.Run:
    """20 steps of 100 ms; rank 0 of two saves for 40 ms `inside` some, for 300 ms behind them."""
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank))
        forward, save = (
            writer.name("forward", 0, "compute"),
            writer.name("checkpoint", 0, "checkpoint"),
        )
        for step in range(1, 21):
            at = step * 100 * MS
            writer.span(forward, at, at + 50 * MS, step)
            if step in set(inside) and rank == 0:
                writer.span(save, at + 50 * MS, at + 90 * MS, step)
            writer.step(step, at, at + 100 * MS, CLASSES)
        if rank == 0:
            writer.span(save, 2100 * MS, 2400 * MS, 21)
        writer.close()
    return dsprof.load(folder)


def test_a_save_behind_the_last_step_counts_with_the_others(tmp_path: Path) -> None:
    run = recorded_saves(tmp_path, [5, 15])
    found = saves(run.told, run.phases, run.steps)
    assert sorted(found["seconds"]) == pytest.approx([0.04, 0.04, 0.3])
    assert "3 saves took 380 ms in 20 steps" in one(run, "checkpoint-stall").summary
    assert "saving took 300 ms after the last step" in shown(run, 200)


def test_a_save_in_which_a_rank_waited_until_it_gave_up_is_none_that_took_that_long(
    tmp_path: Path,
) -> None:
    run = recorded_saves(tmp_path, [5, 15])
    last = run.told[run.told["step"] == 21].iloc[0]
    end = last["at"] + pd.Timedelta(seconds=last["seconds"])
    failed = last.to_dict() | {"kind": "problem", "name": "exception", "step": 20, "at": end}
    told = tidy(pd.concat([run.told, pd.DataFrame([failed])], ignore_index=True))
    assert saves(told, run.phases, run.steps)["seconds"].tolist() == pytest.approx([0.04, 0.04])


def test_a_save_that_only_ends_the_run_is_told_and_no_stall(tmp_path: Path) -> None:
    run = recorded_saves(tmp_path, [])
    assert saves(run.told, run.phases, run.steps).empty
    assert why(run, "checkpoint-stall")
    assert "saving took 300 ms after the last step" in shown(run, 200)


def ended_with(folder: Path, *calls: tuple[str, int]) -> dsprof.Run:
    """20 steps of two ranks, and behind them, in each, phases of so many ms; rank 1 waits less."""
    for rank in (0, 1):
        writer = Writer.create(folder, header(rank))
        forward, evaluation = writer.name("forward", 0, "compute"), writer.name("evaluation")
        names = {"evaluation": evaluation, "save": writer.name("checkpoint", 0, "checkpoint")}
        for step in range(1, 21):
            at = step * 100 * MS
            writer.span(forward, at, at + 50 * MS, step)
            if step == 10:
                writer.span(evaluation, at + 50 * MS, at + 90 * MS, step)
            writer.step(step, at, at + 100 * MS, CLASSES)
            writer.flush()
        at = 2100 * MS
        for name, length in calls:
            writer.span(names[name], at, at + (length - rank) * MS, 21)
            at += length * MS
        writer.close()
    return dsprof.load(folder)


def test_evaluations_behind_the_last_step_are_told(tmp_path: Path) -> None:
    run = ended_with(tmp_path, ("evaluation", 200), ("evaluation", 100))
    assert "; evaluating took at least 300 ms after the last step" in " ".join(shown(run).split())


def test_all_that_is_done_behind_the_last_step_is_told(tmp_path: Path) -> None:
    run = ended_with(tmp_path, ("evaluation", 200), ("save", 100), ("save", 50))
    told = "; saving took 150 ms and evaluating took at least 200 ms after the last step"
    assert told in " ".join(shown(run).split())


def test_saves_and_steps_that_a_second_launch_repeats_count_once_more(tmp_path: Path) -> None:
    """Ten steps with a save in the fifth, then all again and ten more, with three such saves."""
    for launch, last in enumerate((10, 20)):
        writer = Writer.create(tmp_path, header(launch=str(launch), restart=launch))
        save, forward = (
            writer.name("checkpoint", 0, "checkpoint"),
            writer.name("forward", 0, "compute"),
        )
        for step in range(1, last + 1):
            at = (launch * 100 + step) * 100 * MS
            writer.span(forward, at, at + 10 * MS, step)
            if step % 5 == 0 and step < last:
                writer.span(save, at + 10 * MS, at + (90 - 10 * launch) * MS, step)
            writer.step(step, at, at + 100 * MS, CLASSES)
        writer.close()
    run = dsprof.load(tmp_path)
    found = saves(run.told, run.phases, run.steps)
    assert list(zip(found["segment"], found["step"], strict=True)) == [
        (0, 5), (1, 5), (1, 10), (1, 15)
    ]  # fmt: skip
    assert found["seconds"].tolist() == pytest.approx([0.08, 0.07, 0.07, 0.07])
    assert "4 saves took 290 ms in 30 steps" in one(run, "checkpoint-stall").summary


def test_saves_of_two_engines_in_steps_of_one_number_are_two(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    save = writer.name("checkpoint", 0, "checkpoint")
    for step in range(1, 21):
        for engine in (0, 1):
            at = (2 * step + engine) * 100 * MS
            if step == 10:
                writer.span(save, at, at + 40 * MS, step, engine=engine)
            writer.step(step, at, at + 100 * MS, CLASSES, engine=engine)
    writer.close()
    run = dsprof.load(tmp_path)
    assert saves(run.told, run.phases, run.steps)["seconds"].tolist() == pytest.approx([0.04] * 2)


def saving_alone() -> pd.DataFrame:
    """Rank 0 saves for 0.5 s in step 7; rank 1 waits in its collective, and in no other step."""
    columns = ["step", "rank", "name", "class", "self_seconds"]
    rows: list[tuple[int, int, str, str, float]] = [
        (7, 0, "checkpoint", "checkpoint", 0.5),
        (7, 0, "gather_in_checkpoint", "communication", 9.0),
        (7, 0, "all_reduce", "communication", 0.1),
        (7, 1, "all_reduce", "communication", 0.4),
        (8, 0, "all_reduce", "communication", 0.1),
        (8, 1, "all_reduce", "communication", 0.7),
    ]
    return pd.DataFrame(rows, columns=columns).assign(segment=0, engine=0)


def test_what_ranks_wait_for_the_one_that_saves_is_at_most_their_communication() -> None:
    rows = saving_alone()
    assert waits_for_saves(rows).to_dict() == pytest.approx({(0, 0, 7): 0.2})  # of two ranks
    longer = rows["self_seconds"].mask(rows["self_seconds"] == 0.4, 0.9)
    waited = waits_for_saves(rows.assign(self_seconds=longer))
    assert waited.to_dict() == pytest.approx({(0, 0, 7): 0.25})


def test_what_ranks_wait_for_the_one_that_evaluates_longer_is_told_like_that_for_a_save() -> None:
    shorter = {"step": 7, "rank": 1, "name": "evaluation", "class": "other", "self_seconds": 0.2}
    rows = saving_alone().replace({"checkpoint": "evaluation"})
    rows = pd.concat([rows, pd.DataFrame([shorter | {"segment": 0, "engine": 0}])])
    assert waits_for_evaluations(rows).to_dict() == pytest.approx({(0, 0, 7): 0.15})
    assert waits_for_saves(rows).empty


def test_saves_and_the_calls_inside_them_are_told_from_other_phases() -> None:
    rows = saving_alone()
    assert calls_of_saves(rows)["name"].tolist() == ["gather_in_checkpoint"]
    left = apart_from_saves(rows)
    assert set(left["name"]) == {"all_reduce"}
    waits = left["self_seconds"].tolist()  # rank 1 waits for the save in step 7 alone
    assert waits == pytest.approx([0.1, 0.0, 0.1, 0.7])
